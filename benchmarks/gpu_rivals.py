"""What one would write instead of `hzb` on an NVIDIA GPU: the same chains in PyTorch and in CUDA.

Each makes the levels of `hzb.build(depth)`, bit for bit, of float32 depth in [0, 1): minimum (or
maximum) of 2x2 texels, level 0 rounded to float16 toward the bound, and from there on compared as
16-bit integers, which orders numbers that are not negative alike. Sizes are those of "ceil", or of
"pow2" where the frame's sides are even. Every one is captured in CUDA graphs, one a copy of the
frame, so that memory rotates as it does for `hzb`, and timed by CUDA events around a replay.
"""

from __future__ import annotations

import functools
import importlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import hzb

QUEUED = 60  # replays between two looks at the device
AHEAD_CYCLES = 6_000_000  # about 3 ms, in which the host queues so many


def imported(name):
    """Return a module, or None and why there is none."""
    try:
        return importlib.import_module(name), None
    except Exception as error:  # a broken installation raises anything
        return None, f"not there ({type(error).__name__}: {error})"


torch, torch_fault = imported("torch")
cupy, cupy_fault = imported("cupy")
if torch and not torch.cuda.is_available():
    torch_fault = f"{torch.__version__}, which finds no CUDA device"


# ---- in tensors ----


def halve(level, reduce, axis):
    """Reduce neighbours along an axis; the last of an odd number stays as it is."""

    def every_second(first):
        return level[(..., slice(first, None, 2), *(slice(None),) * (-1 - axis))]

    if level.shape[axis] == 1:
        return level
    left, right = every_second(0), every_second(1)
    if level.shape[axis] % 2:
        right = torch.cat([right, left.narrow(axis, left.shape[axis] - 1, 1)], axis)
    return reduce(left, right)


def extend(level, sides):
    """Repeat the last row and column up to these sides."""
    for axis, side in zip((-2, -1), sides, strict=True):
        have = level.shape[axis]
        if have < side:
            shape = list(level.shape)
            shape[axis] = side - have
            level = torch.cat([level, level.narrow(axis, have - 1, 1).expand(shape)], axis)
    return level


def round_by_comparing(x, up):
    """Round to nearest, then move the bits by one where that went the wrong way."""
    near = x.half()
    bits = near.view(torch.int16)
    return bits + (near < x) if up else bits - (near > x).to(torch.int16)


def round_by_shifting(x, up):
    """Shift the bits into place; below 2**-14, count units of 2**-24.

    For torch.compile, which keeps float16 in float32, where comparing would find nothing.
    """
    bits = x.view(torch.int32)
    normal = (bits - 0x38000000 + (0x1FFF if up else 0)) >> 13
    units = x * 2.0**24
    subnormal = (units.ceil() if up else units).to(torch.int32)
    return torch.where(bits < 0x38800000, subnormal, normal).to(torch.int16)


def tensor_chain(shape, sizing, bounds, to_half):
    if sizing == "pow2" and any(side % 2 for side in shape[-2:]):
        raise ValueError('"pow2" of odd sides is not written in tensors')
    sides = hzb.level_shapes(shape, sizing=sizing)[0][-2:]

    def levels_of(depth, takes_max):
        reduce = torch.maximum if takes_max else torch.minimum
        level = to_half(halve(halve(depth, reduce, -2), reduce, -1), takes_max)
        levels = [extend(level, sides)]
        while max(levels[-1].shape[-2:]) > 1:
            levels.append(halve(halve(levels[-1], reduce, -2), reduce, -1))
        return levels

    def chain(depth):
        return [level for takes_max in range(bounds) for level in levels_of(depth, takes_max)]

    return chain


def eager_chain(shape, sizing, bounds):
    return tensor_chain(shape, sizing, bounds, round_by_comparing)


def compiled_by(mode):
    def make_chain(shape, sizing, bounds):
        torch._dynamo.reset()
        chain = tensor_chain(shape, sizing, bounds, round_by_shifting)
        return torch.compile(chain, mode=mode, dynamic=False)

    return make_chain


# ---- in CUDA ----

CUDA = r"""
typedef unsigned short half_bits;

__device__ half_bits stored(half_bits x, bool) { return x; }

__device__ half_bits stored(float x, bool up)
{
    half_bits result;
    if (up)
        asm("cvt.rp.f16.f32 %0, %1;" : "=h"(result) : "f"(x));
    else
        asm("cvt.rm.f16.f32 %0, %1;" : "=h"(result) : "f"(x));
    return result;
}

template <class T>
__device__ void reduce(const T *low, const T *high, int height, int width, int last_y, int last_x,
                       half_bits *to_low, half_bits *to_high, int rows, int columns)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows)
        return;
    size_t frame = (size_t)blockIdx.z * height * width;
    int left = min(2 * x, last_x), right = min(left + 1, width - 1);
    int top = min(2 * y, last_y), bottom = min(top + 1, height - 1);
    size_t first = frame + (size_t)top * width, second = frame + (size_t)bottom * width;
    size_t target = ((size_t)blockIdx.z * rows + y) * columns + x;
    T a = low[first + left], b = low[first + right];
    T c = low[second + left], d = low[second + right];
    to_low[target] = stored((T)min(min(a, b), min(c, d)), false);
    if (!to_high)
        return;
    if (high != low) {
        a = high[first + left], b = high[first + right];
        c = high[second + left], d = high[second + right];
    }
    to_high[target] = stored((T)max(max(a, b), max(c, d)), true);
}

#define KERNEL(name, T)                                                                           \
    extern "C" __global__ void name(const T *low, const T *high, int height, int width,           \
                                    int last_y, int last_x, half_bits *to_low,                    \
                                    half_bits *to_high, int rows, int columns)                    \
    {                                                                                             \
        reduce(low, high, height, width, last_y, last_x, to_low, to_high, rows, columns);         \
    }

KERNEL(from_depth, float)
KERNEL(from_level, half_bits)
"""
BLOCK = (32, 8, 1)


def cuda_chain(shape, sizing, bounds):
    module = cupy.RawModule(code=CUDA)
    kernels = [module.get_function(name) for name in ("from_depth", "from_level")]
    shapes = hzb.level_shapes(shape, sizing=sizing)
    frames = int(np.prod(shape[:-2]))

    def launch(kernel, sources, targets):
        height, width = sources[0].shape[-2:]
        rows, columns = targets[0].shape[-2:]
        # Windows are pushed back inside the source where sizes are powers of two.
        last = [max(side - 2, 0) if sizing == "pow2" else side - 1 for side in (height, width)]
        pointers = [np.uint64(tensor.data_ptr()) for tensor in (*sources, *targets)]
        if bounds == 1:
            pointers = [pointers[0], pointers[0], pointers[1], np.uint64(0)]
        grid = (-(-columns // BLOCK[0]), -(-rows // BLOCK[1]), frames)
        sizes = [np.int32(number) for number in (height, width, *last)]
        arguments = (*pointers[:2], *sizes, *pointers[2:], np.int32(rows), np.int32(columns))
        kernel(grid, BLOCK, arguments)

    def chain(depth):
        chains = [[] for _ in range(bounds)]
        sources = [depth] * bounds
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            for k, level_shape in enumerate(shapes):
                targets = [
                    torch.empty(level_shape, dtype=torch.int16, device=depth.device)
                    for _ in range(bounds)
                ]
                launch(kernels[k > 0], sources, targets)
                for levels, target in zip(chains, targets, strict=True):
                    levels.append(target)
                sources = targets
        return [level for levels in chains for level in levels]

    return chain


# ---- measured ----


@dataclass(frozen=True)
class Rival:
    name: str
    how: str
    make_chain: Callable
    fault: str | None  # why it cannot run
    tuned: bool = False  # takes long to make


RIVALS = (
    Rival(
        "torch.compile",
        "minimum and maximum of strided halves, its default mode",
        compiled_by(None),
        torch_fault,
    ),
    Rival(
        "torch eager",
        "the same, kernel by kernel",
        eager_chain,
        torch_fault,
    ),
    Rival(
        "CuPy",
        "a raw CUDA kernel a level, one thread a texel of both chains",
        cuda_chain,
        cupy_fault or torch_fault,
    ),
    Rival(
        "torch.compile, tuned",
        'the first with mode="max-autotune-no-cudagraphs"',
        compiled_by("max-autotune-no-cudagraphs"),
        torch_fault,
        tuned=True,
    ),
)


def versions():
    """Say what is installed."""
    result = {"PyTorch": torch_fault or f"{torch.__version__}, CUDA {torch.version.cuda}"}
    if torch:
        triton, triton_fault = imported("triton")
        result["Triton"] = triton_fault or triton.__version__
    return result | {"CuPy": cupy_fault or cupy.__version__}


def copy_bandwidth():
    """Return bytes read and written a second by a large device copy, in TB/s, or None."""
    if torch_fault:
        return None
    source = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
    copy = functools.partial(torch.empty_like(source).copy_, source)
    result = round(2 * source.nbytes / statistics.median(event_times([copy], 40, 0.1)) / 1e6, 2)
    del source, copy
    torch.cuda.empty_cache()
    return result


def event_times(works, repeats, heat_s):
    """Run works in turn, and return the microseconds of each repeat after so much heat."""
    turn = 0
    until = time.perf_counter() + heat_s
    while time.perf_counter() < until:
        for _ in range(QUEUED):
            works[turn % len(works)]()
            turn += 1
        torch.cuda.synchronize()
    times = []
    while len(times) < repeats:
        events = [
            [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            for _ in range(min(QUEUED, repeats - len(times)))
        ]
        # The device waits until all is queued: otherwise the host's pace would be measured.
        torch.cuda._sleep(AHEAD_CYCLES)
        for start, end in events:
            start.record()
            works[turn % len(works)]()
            end.record()
            turn += 1
        torch.cuda.synchronize()
        times += [start.elapsed_time(end) * 1e3 for start, end in events]
    return times


def captured(chain, source, copies):
    """Return graphs of a chain, each of its own copy of the source, and what they read and make."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    graphs, kept = [], []
    with torch.cuda.stream(stream):
        for _ in range(3):
            chain(source)  # compiles
        for _ in range(copies):
            depth = source.clone()
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                levels = chain(depth)
            finally:
                graph.capture_end()
            graphs.append(graph)
            kept.append((depth, levels))
    torch.cuda.synchronize()
    return graphs, kept


def check_bits(levels, expected):
    """Compare all levels with those of hzb."""
    if len(levels) != len(expected):
        raise AssertionError(f"{len(levels)} levels instead of {len(expected)}")
    for k, (level, right) in enumerate(zip(levels, expected, strict=True)):
        bits = level.cpu().numpy().view(np.uint16)
        if bits.shape != right.shape:
            raise AssertionError(f"array {k} has shape {bits.shape} instead of {right.shape}")
        wrong = np.count_nonzero(bits != right.view(np.uint16))
        if wrong:
            raise AssertionError(f"array {k} has other bits than hzb in {wrong} texels")


def times_of(rival, frame, sizing, expected, copies, repeats, heat_s):
    """Return a rival's times in microseconds, once its bits were right.

    `expected` holds one chain or two, one after the other.
    """
    bounds = len(expected) // len(hzb.level_shapes(frame.shape, sizing=sizing))
    graphs, kept = [], []
    try:
        with torch.no_grad():
            source = torch.from_numpy(frame).cuda()
            chain = rival.make_chain(frame.shape, sizing, bounds)
            graphs, kept = captured(chain, source, copies)
            for graph in (graphs[0], graphs[-1]):
                graph.replay()
            torch.cuda.synchronize()
            check_bits(kept[0][1], expected)
            check_bits(kept[-1][1], expected)
            return event_times([graph.replay for graph in graphs], repeats, heat_s)
    finally:
        graphs.clear()
        kept.clear()
        torch.cuda.empty_cache()


def empty_times(repeats, heat_s):
    """Return the times of a graph of one kernel on one number, between the same events."""
    source = torch.zeros(1, device="cuda")
    graphs, _kept = captured(lambda depth: depth + 1, source, 8)
    return event_times([graph.replay for graph in graphs], repeats, heat_s)
