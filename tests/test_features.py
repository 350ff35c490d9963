"""The paths of lesser devices: the same bits with optional features hidden."""

from __future__ import annotations

import numpy as np
import pytest
from algorithms import roundings
from bits import assert_same_bits
from golden import CASES
from twin import assert_like_reference

import hzb
import hzb.reference

pytestmark = pytest.mark.vulkan

# All that is hidden at once, and less. A slow device, which lacks some of it anyway, leaves this to
# the whole sweeps.
HIDDEN = [
    pytest.param(hidden, marks=pytest.mark.whole_if_slow)
    for hidden in (
        "storage16,subgroup_size_control,images,unified,pipeline_robustness",
        "storage16",
        "storage16,subgroup_size_control",
        "images",
        "unified",
    )
]


@pytest.fixture(scope="module", params=HIDDEN)
def context(request, device):
    """Give a context on the device less some of its features."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HZB_HIDE_FEATURES", request.param)
        context = hzb.Context(device=device)
    with context:
        yield context


@pytest.fixture(scope="module")
def build(context, algorithm):
    def build(depth, **options):
        return context.build(depth, algorithm=algorithm, **options)

    return build


def test_golden_cases(build, algorithm, share_of_sweep):
    for case in CASES[::share_of_sweep]:
        if case.options.get("rounding", "conservative") in roundings(algorithm):
            assert_like_reference(build, case.depth, case.levels, **case.options)


@pytest.mark.parametrize(
    ("sizing", "dtype"),
    [("pow2", np.float16), ("floor", np.float16), ("ceil", np.float16), ("floor", np.float32)],
)
def test_sizes(build, rng, sizing, dtype):
    for shape in [(1, 1), (2, 3), (5, 4, 6), (7, 1, 300), (31, 33), (2, 129, 64), (255, 257)]:
        depth = rng.standard_normal(shape, np.float32)
        assert_like_reference(build, depth, bounds="both", sizing=sizing, dtype=dtype)


@pytest.mark.parametrize("shape", [(2100, 2, 3), (300, 9, 7), (1, 100_000), (16_385, 3)], ids=str)
def test_more_than_limits(build, rng, shape):
    depth = rng.random(shape, np.float32)
    assert_like_reference(build, depth, bounds="both")


def test_out_and_fewer_levels(build, rng):
    depth = rng.random((3, 50, 70), np.float32)
    for levels in range(1, len(hzb.level_shapes(depth.shape)) + 1):
        out = [np.empty(s, np.float16) for s in hzb.level_shapes(depth.shape, levels=levels)]
        assert build(depth, levels=levels, out=out) is out
        assert_same_bits(out, hzb.reference.build(depth, levels=levels))
