"""Which source pixels every texel stands for, and the exact bound over them.

An oracle beside ``hzb.reference``: it composes footprints instead of reducing level by level, so a
level follows from the source alone. Knows no rounding and no NaN.
"""

from __future__ import annotations

import itertools

import numpy as np


def spans(source, sizing, levels):
    """Give, for each level of one axis, the first and the last source pixel under its texels.

    Parameters
    ----------
    source : int
        The side of the source, in pixels.
    sizing : {"pow2", "floor", "ceil"}
    levels : sequence of int
        The sides of the levels.

    Returns
    -------
    list of (ndarray, ndarray)
        First and last pixel, of shape ``(side,)`` each. The pixels between them are under the texel
        too: footprints have no gaps.
    """
    first = last = np.arange(source)
    result = []
    for side, target in itertools.pairwise([source, *levels]):
        start = 2 * np.arange(target)
        if sizing == "pow2":
            start = np.minimum(start, max(side - 2, 0))
        taps = 3 if sizing == "floor" and side % 2 and side > 1 else 2
        first = first[np.minimum(start, side - 1)]
        last = last[np.minimum(start + taps - 1, side - 1)]
        result.append((first, last))
    return result


def bounds(ufunc, source, sizing, shapes):
    """Give the exact minimum or maximum (`ufunc`) of `source` under every texel of every level."""
    rows = spans(source.shape[-2], sizing, [shape[-2] for shape in shapes])
    columns = spans(source.shape[-1], sizing, [shape[-1] for shape in shapes])
    return [
        _over(ufunc, _over(ufunc, source, -2, *row), -1, *column)
        for row, column in zip(rows, columns, strict=True)
    ]


def _over(ufunc, source, axis, first, last):
    """Reduce along one axis over the spans from `first` to `last`."""
    # reduceat reduces from each index up to the next, or takes one entry where the next is not
    # greater; the ends are exclusive, so one more entry is needed for them to point at.
    padding = [(0, 0)] * source.ndim
    padding[axis] = (0, 1)
    ends = np.stack([first, last + 1], axis=-1).ravel()
    reduced = ufunc.reduceat(np.pad(source, padding, mode="edge"), ends, axis=axis)
    return reduced.take(np.arange(0, len(ends), 2), axis=axis)
