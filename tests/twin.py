"""Comparison of builds with the reference in loops over many inputs: a failure names its input."""

from __future__ import annotations

from bits import assert_same_bits

import hzb.reference


def assert_like_reference(build, depth, want=None, **options):
    """Build `depth` and compare with what the reference makes of it, or with `want`."""
    __tracebackhide__ = True
    if want is None:
        want = hzb.reference.build(depth, **options)
    try:
        assert_same_bits(build(depth, **options), want)
    except AssertionError as error:
        raise AssertionError(f"{depth.dtype} {depth.shape}, {options}: {error}") from None
