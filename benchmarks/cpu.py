"""Time from array to arrays on the native path, beside what users would write otherwise.

    [HZB_NUM_THREADS=1] python benchmarks/cpu.py [--sizes 1920x1080 …]

Medians in milliseconds over twelve frames taken in turn, so that none is in a cache. Beside `hzb`
on the device "cpu", in the same run: `d.min()`, which reads a frame once; a furthest chain in NumPy
(strided minimum, float16, edge padding, then 16-bit words); the same chain in PyTorch, where it is
installed, on its own number of threads.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import numpy as np

import hzb

FRAMES = 12


def milliseconds(run, frames, repeats=36):
    for frame in frames[:3]:
        run(frame)
    times = []
    for i in range(repeats):
        start = time.perf_counter()
        run(frames[i % FRAMES])
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def quarter(array, minimum):
    """Reduce 2x2 texels; a side of 1 stays."""
    if array.shape[0] > 1:
        array = minimum(array[0::2], array[1::2])
    if array.shape[1] > 1:
        array = minimum(array[:, 0::2], array[:, 1::2])
    return array


def numpy_chain(depth):
    level = quarter(depth, np.minimum).astype(np.float16)
    padding = [(0, (1 << (side - 1).bit_length()) // 2 - side // 2) for side in depth.shape]
    level = np.pad(level, padding, mode="edge").view(np.uint16)  # not negative: orders alike
    chain = [level]
    while level.size > 1:
        level = quarter(level, np.minimum)
        chain.append(level)
    return chain


def torch_chain(depth):
    import torch

    level = quarter(depth, torch.minimum).half()
    chain = [level]
    while min(level.shape) > 1:
        level = level[: level.shape[0] // 2 * 2, : level.shape[1] // 2 * 2]
        level = quarter(level, torch.minimum)
        chain.append(level)
    return chain


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["1920x1080", "3840x2160"], metavar="WxH")
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    with hzb.Context("cpu") as context:
        print(f"{context.device}\nthreads: {os.environ.get('HZB_NUM_THREADS', 'all')}")
        for size in arguments.sizes:
            width, height = map(int, size.split("x"))
            frames = [generator.random((height, width), np.float32) for _ in range(FRAMES)]
            rows = {
                "d.min()": milliseconds(np.min, frames),
                "NumPy, furthest": milliseconds(numpy_chain, frames, FRAMES),
                "hzb, furthest": milliseconds(context.build, frames),
                "hzb, both": milliseconds(lambda d: context.build(d, bounds="both"), frames),
            }
            try:
                import torch
            except ImportError:
                pass
            else:
                tensors = [torch.from_numpy(frame) for frame in frames]
                name = f"PyTorch, furthest, {torch.get_num_threads()} threads"
                rows[name] = milliseconds(torch_chain, tensors)
            print(size + "".join(f"\n  {name:<34} {time:8.3f}" for name, time in rows.items()))
        small = generator.random((64, 64), np.float32)
        print(f"64x64, a call: {milliseconds(context.build, [small] * FRAMES, 3000) * 1e3:.1f} µs")


if __name__ == "__main__":
    main()
