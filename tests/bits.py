"""Comparison of levels bit for bit.

Values are not enough where bits are promised: NaN differs from itself, and -0 equals +0.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PATTERNS = {2: np.uint16, 4: np.uint32}


def patterns(array: NDArray[Any]) -> NDArray[Any]:
    """Give the bit patterns of a float16 or float32 array, in its shape."""
    return array.view(_PATTERNS[array.dtype.itemsize])


def assert_same_bits(got: Sequence[Any], want: Sequence[Any]) -> None:
    """Compare two lists of levels, or two pairs of such lists, by shape, type and bit patterns."""
    __tracebackhide__ = True
    if want and not isinstance(want[0], np.ndarray):
        assert len(got) == len(want) == 2, f"{len(got)} chains instead of {len(want)}"
        for name, got_chain, want_chain in zip(("furthest", "closest"), got, want, strict=True):
            _assert_same_chain(f"{name}, ", got_chain, want_chain)
    else:
        _assert_same_chain("", got, want)


def _assert_same_chain(name: str, got: Sequence[Any], want: Sequence[Any]) -> None:
    __tracebackhide__ = True
    assert len(got) == len(want), f"{name}{len(got)} levels instead of {len(want)}"
    for level, (have, expected) in enumerate(zip(got, want, strict=True)):
        where = f"{name}level {level}"
        assert isinstance(have, np.ndarray), f"{where}: {type(have)} instead of an ndarray"
        assert have.shape == expected.shape, f"{where}: shape {have.shape}, not {expected.shape}"
        assert have.dtype == expected.dtype, f"{where}: {have.dtype}, not {expected.dtype}"
        assert have.dtype.isnative, f"{where}: not in {sys.byteorder}-endian order"
        have_bits, expected_bits = patterns(have), patterns(expected)
        if np.array_equal(have_bits, expected_bits):
            continue
        differing = np.argwhere(have_bits != expected_bits)
        index = tuple(differing[0].tolist())
        digits = 2 * have.dtype.itemsize
        raise AssertionError(
            f"{where}: {len(differing)} of {have.size} texels differ, first {index}: "
            f"0x{have_bits[index]:0{digits}x} ({have[index]!r}) instead of "
            f"0x{expected_bits[index]:0{digits}x} ({expected[index]!r})"
        )
