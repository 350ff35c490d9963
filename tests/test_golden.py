"""The golden cases on every device, by every algorithm."""

from __future__ import annotations

import pytest
from algorithms import WITH_AUTO, roundings
from bits import assert_same_bits
from golden import CASES

RUNS = [
    (algorithm, case)
    for algorithm in WITH_AUTO
    for case in CASES
    if case.options.get("rounding", "conservative") in roundings(algorithm)
]


@pytest.mark.parametrize(
    ("algorithm", "case"),
    RUNS,
    ids=[f"{algorithm}-{case}" for algorithm, case in RUNS],
    indirect=["algorithm"],
    scope="session",
)
def test_levels(build, case):
    assert_same_bits(build(case.depth, **case.options), case.levels)
