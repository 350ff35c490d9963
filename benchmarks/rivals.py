"""What one would write instead of `hzb` on the processor: the same chains with other packages.

Each makes the "pow2" levels of a frame of even sides that has no negative numbers and no NaN, with
level 0 stored to nearest even: what `hzb.build(depth, rounding="nearest")` gives, bit for bit, and
not a bound of the depth. From level 0 on float16 is compared as 16-bit integers, which orders
numbers that are not negative alike and is faster than float16 in all of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


def padding(shape):
    """Count the rows and columns that level 0 has beyond half of the frame."""
    return [(1 << (side - 1).bit_length()) // 2 - side // 2 for side in shape]


def halves(level, reduce):
    """Reduce rows, then columns, two by two; a side of 1 stays."""
    if level.shape[0] > 1:
        level = reduce(level[0::2], level[1::2])
    if level.shape[1] > 1:
        level = reduce(level[:, 0::2], level[:, 1::2])
    return level


def numpy_like(quarter):
    """Make a chain of arrays of a function that reduces 2x2 texels."""

    def chain(depth, takes_max):
        level = quarter(depth, takes_max).astype(np.float16)
        beyond = [(0, side) for side in padding(depth.shape)]
        level = np.pad(level, beyond, mode="edge").view(np.uint16)
        levels = [level]
        while level.size > 1:
            level = quarter(level, takes_max)
            levels.append(level)
        return levels

    return chain


def numpy_chain():
    return numpy_like(
        lambda level, takes_max: halves(level, np.maximum if takes_max else np.minimum)
    )


def torch_chain():
    import torch

    def chain(depth, takes_max):
        reduce = torch.maximum if takes_max else torch.minimum
        level = halves(torch.from_numpy(depth), reduce).half()
        rows, columns = padding(depth.shape)
        if rows or columns:
            beyond = (0, columns, 0, rows)
            level = torch.nn.functional.pad(level[None], beyond, mode="replicate")[0]
        level = level.view(torch.int16)
        levels = [level]
        while level.numel() > 1:
            level = halves(level, reduce)
            levels.append(level)
        return levels

    return chain


def opencv_chain():
    import cv2

    # It takes and gives matrices, of columns too that are but one.
    def quarter(level, takes_max):
        reduce = cv2.max if takes_max else cv2.min
        return halves(level, lambda a, b: reduce(a, b).reshape(a.shape))

    return numpy_like(quarter)


def skimage_chain():
    from skimage.measure import block_reduce

    def quarter(level, takes_max):
        block = tuple(min(2, side) for side in level.shape)
        return block_reduce(level, block, np.max if takes_max else np.min)

    return numpy_like(quarter)


def numba_chain():
    import numba

    def kernel(reduce):
        @numba.njit(parallel=True)
        def quarter(level, target):
            # A side of 1 stays: both taps are the same.
            down, right = min(1, level.shape[0] - 1), min(1, level.shape[1] - 1)
            for y in numba.prange(target.shape[0]):
                for x in range(target.shape[1]):
                    row, column = y * (1 + down), x * (1 + right)
                    first = reduce(level[row, column], level[row, column + right])
                    second = reduce(level[row + down, column], level[row + down, column + right])
                    target[y, x] = reduce(first, second)

        return quarter

    kernels = [kernel(min), kernel(max)]

    def quarter(level, takes_max):
        target = np.empty([max(1, side // 2) for side in level.shape], level.dtype)
        kernels[takes_max](level, target)
        return target

    return numpy_like(quarter)


def torch_threads(threads):
    import torch

    torch.set_num_threads(threads)


def opencv_threads(threads):
    import cv2

    cv2.setNumThreads(threads)


def numba_threads(threads):
    import numba

    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))


@dataclass
class Rival:
    name: str
    module: str
    how: str
    make_chain: Callable
    set_threads: Callable | None = None  # None: it has one thread

    def version(self):
        """Return the version that is there and can be imported, or None."""
        try:
            return importlib.import_module(self.module).__version__
        except ImportError:
            return None


RIVALS = [
    Rival("NumPy", "numpy", "minimum of strided halves", numpy_chain),
    Rival("PyTorch", "torch", "eager minimum of strided halves", torch_chain, torch_threads),
    Rival("OpenCV", "cv2", "min of row and column halves", opencv_chain, opencv_threads),
    Rival("scikit-image", "skimage", "block_reduce", skimage_chain),
    Rival("numba", "numba", "parallel loops over 2x2 texels", numba_chain, numba_threads),
]
