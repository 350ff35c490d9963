"""Every kind of input: types, byte orders, strides, array-likes; and that it is copied once."""

from __future__ import annotations

import array
import ctypes
import mmap

import child
import numpy as np
import pytest
from bits import assert_same_bits
from twin import assert_like_reference

import hzb
import hzb.reference

EXACT = ["float32", "float16", "int8", "uint8", "int16", "uint16"]
ROUNDED_TO_ODD = ["float64", "int32", "uint32", "int64", "uint64"]
SHAPE = (2, 3, 13, 22)

FRAME = np.array([[3, 1, 2], [5, 4, 6]], np.float32)


@pytest.fixture
def build(device):
    """Give ``hzb.build`` on one of the devices: how depth is read depends on no algorithm."""

    def build(depth, **options):
        return hzb.build(depth, device=device, **options)

    return build


def any_bits(rng, dtype, shape):
    """Give numbers of every kind that a type has: subnormals, infinities, NaN of any payload."""
    dtype = np.dtype(dtype)
    depth = np.frombuffer(rng.bytes(dtype.itemsize * int(np.prod(shape))), dtype).reshape(shape)
    # NaN spreads: where it is rare, the levels still hold numbers.
    return np.where(rng.random(shape) < 0.5, depth, dtype.type(7)).astype(dtype)


def sliced(depth):
    *batch, height, width = depth.shape
    room = np.zeros((*batch, 2 * height, 3 * width), depth.dtype)
    room[..., 1::2, ::3] = depth
    return room[..., 1::2, ::3]


def unaligned(depth):
    room = np.zeros(depth.nbytes + 1, np.uint8)
    room[1:] = np.frombuffer(depth.tobytes(), np.uint8)
    return room[1:].view(depth.dtype).reshape(depth.shape)


def read_only(depth):
    depth = depth.copy()
    depth.flags.writeable = False
    return depth


def swapped(depth):
    return depth.byteswap().view(depth.dtype.newbyteorder())


LAYOUTS = {
    "contiguous": np.copy,
    "fortran": np.asfortranarray,
    "swapped": swapped,
    "rows-up": lambda depth: depth[..., ::-1, :],
    "backwards": lambda depth: depth[::-1, ::-1, ::-1, ::-1],
    "sliced": sliced,
    "one-row": lambda depth: np.broadcast_to(depth[..., :1, :], depth.shape),
    "one-column": lambda depth: np.broadcast_to(depth[..., :1], depth.shape),
    "one-frame": lambda depth: np.broadcast_to(depth[:1, :1], depth.shape),
    "frames-last": lambda depth: np.moveaxis(np.moveaxis(depth, 0, -1).copy(), -1, 0),
    "unaligned": unaligned,
    "unaligned-swapped": lambda depth: unaligned(swapped(depth)),
    "read-only": read_only,
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", EXACT + ROUNDED_TO_ODD)
def test_every_type_in_every_layout(build, rng, dtype, layout):
    depth = LAYOUTS[layout](any_bits(rng, dtype, SHAPE))
    before = depth.tobytes()
    for nan in ("propagate", "ignore"):
        assert_like_reference(build, depth, bounds="both", nan=nan)
    assert depth.tobytes() == before


@pytest.mark.parametrize("dtype", EXACT)
def test_exact_types_have_exact_levels(build, rng, dtype):
    depth = any_bits(rng, dtype, SHAPE)
    for layout in LAYOUTS.values():
        assert_like_reference(build, layout(depth), bounds="both", nan="ignore", dtype="float32")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_view_rectangle_of_every_layout(build, rng, layout):
    depth = LAYOUTS[layout](any_bits(rng, "float64", SHAPE))
    x0, y0, x1, y1 = 5, 2, 18, 12
    want = hzb.reference.build(depth[..., y0:y1, x0:x1], bounds="both")
    assert_same_bits(build(depth, bounds="both", view_rect=(x0, y0, x1, y1)), want)


@pytest.mark.parametrize("batch", [(), (1,), (4,), (0,), (2, 0, 3), (2, 1, 3), (1,) * 30])
def test_leading_axes(build, rng, batch):
    assert_like_reference(build, rng.random((*batch, 5, 7), np.float32), bounds="both")


# What is no ndarray


class Labelled(np.ndarray):
    """A subclass; its levels are to be plain arrays all the same."""


@pytest.mark.parametrize("kind", [Labelled, np.matrix, np.recarray])
def test_subclasses(build, kind):
    levels = build(FRAME.view(kind))
    assert_same_bits(levels, hzb.reference.build(FRAME))
    assert {type(level) for level in levels} == {np.ndarray}


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_maps(build, rng, tmp_path, mode):
    depth = rng.random((40, 30), np.float32)
    depth.tofile(tmp_path / "depth")
    mapped = np.memmap(tmp_path / "depth", np.float32, mode, shape=depth.shape)
    assert_same_bits(build(mapped), hzb.reference.build(depth))
    assert (tmp_path / "depth").read_bytes() == depth.tobytes()


def anonymous_map():
    room = mmap.mmap(-1, FRAME.nbytes)
    room.write(FRAME.tobytes())
    return memoryview(room).cast("f", FRAME.shape)


BUFFERS = {
    "memoryview": lambda: memoryview(FRAME),
    "reversed memoryview": lambda: memoryview(FRAME[::-1].copy())[::-1],
    "array.array": lambda: memoryview(array.array("f", FRAME.ravel())).cast("B").cast("f", (2, 3)),
    "bytes": lambda: memoryview(FRAME.tobytes()).cast("f", FRAME.shape),
    "bytearray": lambda: memoryview(bytearray(FRAME.tobytes())).cast("f", FRAME.shape),
    "mmap": anonymous_map,
    "ctypes": lambda: (ctypes.c_float * 3 * 2)(*map(tuple, FRAME.tolist())),
    "big-endian ctypes": lambda: (ctypes.c_float.__ctype_be__ * 3 * 2)(*map(tuple, FRAME.tolist())),
    "little-endian ctypes": lambda: (ctypes.c_float.__ctype_le__ * 3 * 2)(
        *map(tuple, FRAME.tolist())
    ),
}


@pytest.mark.parametrize("kind", BUFFERS)
def test_buffers(build, kind):
    assert_same_bits(build(BUFFERS[kind]()), hzb.reference.build(FRAME))


def test_buffers_are_released(build):
    depth = array.array("f", FRAME.ravel())
    build(memoryview(depth).cast("B").cast("f", FRAME.shape))
    depth.append(0)  # BufferError while anything holds its memory


class Exporter:
    """An object with DLPack alone, which counts how often it is asked."""

    def __init__(self, place=(1, 0), error=None, frame=FRAME):
        self.calls = 0
        self._place = place
        self._error = error
        self._frame = frame

    def __dlpack_device__(self):
        return self._place

    def __dlpack__(self, **options):
        self.calls += 1
        if self._error:
            raise self._error
        return self._frame.__dlpack__(**options)


class ArrayMethod:
    def __array__(self, dtype=None, copy=None):
        return 2 * FRAME


class ExporterWithArray(Exporter, ArrayMethod):
    pass


class Interface:
    """An object with the interface that came before ``__array__``."""

    __array_interface__ = FRAME.__array_interface__


@pytest.mark.parametrize("place", [(1, 0), (3, 0), (11, 2)], ids=["CPU", "CUDA host", "ROCm host"])
def test_dlpack(build, place):
    source = Exporter(place)
    assert_same_bits(build(source), hzb.reference.build(FRAME))
    assert source.calls == 1


def test_strided_dlpack(build):
    depth = np.asfortranarray(FRAME)[::-1]
    assert_same_bits(build(Exporter(frame=depth)), hzb.reference.build(depth))


@pytest.mark.parametrize("dtype", EXACT + ROUNDED_TO_ODD)
def test_types_through_dlpack(build, dtype):
    depth = FRAME.astype(dtype)
    assert_same_bits(build(Exporter(frame=depth)), hzb.reference.build(depth))


def test_ways_are_tried_in_order(build):
    exported = ExporterWithArray()
    assert_same_bits(build(exported), hzb.reference.build(FRAME))
    assert exported.calls == 1
    for error in (BufferError, RuntimeError, TypeError, ValueError):
        unwilling = ExporterWithArray(error=error("not this one"))
        assert_same_bits(build(unwilling), hzb.reference.build(2 * FRAME))
        assert unwilling.calls
    assert_same_bits(build(ArrayMethod()), hzb.reference.build(2 * FRAME))


@pytest.mark.parametrize(
    "depth",
    [
        FRAME.tolist(),
        tuple(map(tuple, FRAME.tolist())),
        list(FRAME),
        [array.array("d", row) for row in FRAME],
        FRAME.astype(int).tolist(),
        Interface(),
    ],
    ids=["lists", "tuples", "arrays in a list", "buffers in a list", "ints", "interface"],
)
def test_nested_sequences(build, depth):
    assert_same_bits(build(depth), hzb.reference.build(FRAME))


def test_other_exceptions_of_array_likes_pass(build):
    class Stopped:
        def __array__(self, dtype=None, copy=None):
            raise KeyboardInterrupt

    class Odd:
        @property
        def __dlpack__(self):
            raise ZeroDivisionError

    with pytest.raises(KeyboardInterrupt):
        build(Stopped())
    with pytest.raises(ZeroDivisionError):
        build(Odd())
    assert_same_bits(build(FRAME), hzb.reference.build(FRAME))


# Memory

PEAK = """
import sys
import numpy as np
import hzb

def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

device, rect = sys.argv[1], tuple(map(int, sys.argv[2:])) or None
depth = np.empty((2048, 4096), np.float64, order="F")
for column in range(depth.shape[1]):
    depth[:, column] = column
assert depth.nbytes == 64 << 20
# The same pipelines and the driver's threads, so that only the frame is new.
hzb.build(depth, view_rect=(0, 0, 2, 2), device=device, algorithm="per_level")
before = peak()
levels = hzb.build(depth, view_rect=rect, device=device, algorithm="per_level")
print(peak() - before)
x0 = rect[0] if rect else 0
assert levels[0][0, :3].tolist() == [x0, x0 + 2, x0 + 4]
assert levels[-1].item() == x0
"""


def growth_of_peak(spec, *rect):
    # The validation layer has memory of its own.
    return int(child.run(PEAK, spec, *rect, HZB_VALIDATION="0"))


@pytest.fixture
def host_device(device):
    if device.kind not in {"software", "native"}:
        pytest.skip("a device's own memory is not the process's")
    return device


def test_frame_is_copied_once_at_most(host_device, spec):
    frame = 2048 * 4096 * 4
    levels = sum(2 * height * width for height, width in hzb.level_shapes((2048, 4096)))
    # Upload, read-back and result, and no second frame: as float64 it has twice the bytes of the
    # upload, as float32 as many. The native path has the result alone.
    most = levels if host_device.kind == "native" else frame + 2 * levels
    assert growth_of_peak(spec) < most + frame // 2


@pytest.mark.usefixtures("host_device")
def test_only_the_rectangle_is_copied(spec):
    assert growth_of_peak(spec, 100, 200, 356, 456) < 8 << 20
