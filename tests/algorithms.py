"""The algorithms that the suite runs.

They give the same bits, but for Unreal's rounding: the partition of levels into dispatches defines
it, and only ``batched`` has that one.
"""

from __future__ import annotations

import pytest

ALGORITHMS = ("per_level", "batched", "two_pass", "single_pass")
WITH_AUTO = (*ALGORITHMS, "auto")


def roundings(algorithm):
    unreal = ("unreal",) if algorithm in ("batched", "auto") else ()
    return ("conservative", "nearest", *unreal)


# For tests that take the fixtures build and algorithm, and a rounding.
each_rounding = pytest.mark.parametrize(
    ("algorithm", "rounding"),
    [(algorithm, rounding) for algorithm in ALGORITHMS for rounding in roundings(algorithm)],
    indirect=["algorithm"],
    scope="session",
)
