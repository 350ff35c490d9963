"""The kernels that take large tiles, in two passes or one: the same bits, in few dispatches.

What they share with the other kernels (options, inputs, refusals) is tested with those.
"""

from __future__ import annotations

import numpy as np
import pytest
from bits import assert_same_bits
from golden import CASES

import hzb
import hzb.reference
from hzb import _core

ALGORITHMS = ("two_pass", "single_pass")

# Around the sides of tiles and of what a lane takes; 1 to 4096 tiles long.
SHAPES = [(1, 1), (3, 2), (5, 4), (64, 63), (65, 64), (66, 130), (1, 4096), (4097, 3), (200, 333)]
# Enough frames that a lane takes four blocks.
BATCHES = [(400, 1, 2), (420, 66, 31), (200, 65, 130)]


@pytest.fixture(scope="module", params=ALGORITHMS)
def algorithm(request):
    return request.param


@pytest.fixture(scope="module")
def share(request, share_of_sweep):
    """Give the step through cases: pipelines of these kernels take long to make on a processor."""
    return share_of_sweep if request.config.getoption("--whole") else 4 * share_of_sweep


def dispatches(shape, device, **options):
    return _core._describe_plan(shape, device=device, **options)["dispatches"]


def mixed_numbers(rng, shape):
    """Depth of which some is negative, subnormal, beyond float16 or NaN."""
    depth = rng.random(shape, np.float32)
    kind = rng.integers(0, 40, shape)
    for k, factor in enumerate((-1, 1e-6, 1e-42, 1e6, np.nan)):
        depth[kind == k] *= np.float32(factor)
    return depth


@pytest.mark.parametrize("sizing", ["pow2", "ceil"])
@pytest.mark.parametrize("shape", [*SHAPES, (2160, 3840)])
def test_dispatches(device, algorithm, sizing, shape):
    made = dispatches(shape, device, sizing=sizing, algorithm=algorithm)
    levels = len(hzb.level_shapes(shape, sizing=sizing))
    if algorithm == "single_pass":
        assert [(step["kernel"], step["count"]) for step in made] == [("single_pass", levels)]
    elif levels <= 6:
        assert [(step["kernel"], step["count"]) for step in made] == [("tiles", levels)]
    else:
        tile = 7 if shape == (2160, 3840) else 6
        assert [(step["kernel"], step["count"]) for step in made] == [
            ("tiles", tile),
            ("tail", levels - tile),
        ]


def test_floor_takes_more_dispatches_where_odd_sides_force_it(device):
    made = dispatches((1080, 1920), device, sizing="floor", algorithm="single_pass")
    # 540, 270 and 135 rows: three footprints of the next level are too many for one workgroup.
    assert [(step["kernel"], step["first"], step["count"]) for step in made] == [
        ("tiles", 0, 3),
        ("single_pass", 3, 7),
    ]


def test_golden_cases(device, algorithm, share):
    for case in CASES[::share]:
        if case.options.get("rounding") != "unreal":
            got = hzb.build(case.depth, algorithm=algorithm, device=device, **case.options)
            assert_same_bits(got, case.levels)


@pytest.mark.parametrize("sizing", ["pow2", "floor", "ceil"])
@pytest.mark.parametrize(
    "dtype", [np.float16, pytest.param(np.float32, marks=pytest.mark.whole)], ids=["half", "float"]
)
def test_sizes(device, algorithm, rng, sizing, dtype):
    options = {"sizing": sizing, "dtype": dtype, "nan": "ignore", "bounds": "both"}
    for shape in (*SHAPES, *BATCHES):
        for depth in (rng.random(shape, np.float32), mixed_numbers(rng, shape)):
            got = hzb.build(depth, algorithm=algorithm, device=device, **options)
            assert_same_bits(got, hzb.reference.build(depth, **options))


@pytest.mark.whole
@pytest.mark.parametrize("reversed_z", [True, False])
@pytest.mark.parametrize("rounding", ["conservative", "nearest"])
def test_one_chain(device, algorithm, rng, reversed_z, rounding):
    depth = mixed_numbers(rng, (150, 290))
    options = {"reversed_z": reversed_z, "rounding": rounding}
    got = hzb.build(depth, algorithm=algorithm, device=device, **options)
    assert_same_bits(got, hzb.reference.build(depth, **options))


@pytest.mark.parametrize(
    "levels", [2, 7, *(pytest.param(n, marks=pytest.mark.whole) for n in (1, 3, 6, 8))]
)
def test_fewer_levels(device, algorithm, rng, levels):
    depth = rng.random((130, 200), np.float32)
    got = hzb.build(depth, algorithm=algorithm, device=device, levels=levels)
    assert_same_bits(got, hzb.reference.build(depth, levels=levels))


@pytest.mark.parametrize("shape", [(300, 40, 52), (70_000, 2, 2), (8192, 1)], ids=str)
def test_many(device, algorithm, rng, shape):
    depth = rng.random(shape, np.float32)
    got = hzb.build(depth, algorithm=algorithm, device=device)
    assert_same_bits(got, hzb.reference.build(depth))


def test_the_last_workgroup_sees_what_all_others_stored(device, algorithm, rng, share_of_sweep):
    """Each tile holds numbers of its own, so that one that was read too early shows."""
    side = 4096 if share_of_sweep == 1 else 512
    tiles = rng.random((side // 32, side // 32), np.float32)
    depth = np.kron(tiles, np.ones((32, 32), np.float32))
    want = hzb.reference.build(depth)
    with hzb.Context(device) as context:
        for _ in range(20):
            assert_same_bits(context.build(depth, algorithm=algorithm), want)


@pytest.mark.parametrize(
    "hidden",
    [
        "storage16,subgroup_size_control,unified",
        *(
            pytest.param(hidden, marks=pytest.mark.whole)
            for hidden in ("storage16", "subgroup_size_control", "unified")
        ),
    ],
)
def test_lesser_devices(device, algorithm, rng, monkeypatch, hidden):
    monkeypatch.setenv("HZB_HIDE_FEATURES", hidden)
    depth = mixed_numbers(rng, (130, 270))
    with hzb.Context(device) as context:
        got = context.build(depth, algorithm=algorithm, bounds="both")
    assert_same_bits(got, hzb.reference.build(depth, bounds="both"))


def test_no_shuffles(device, algorithm, monkeypatch):
    monkeypatch.setenv("HZB_HIDE_FEATURES", "shuffle")
    with (
        hzb.Context(device) as context,
        pytest.raises(ValueError, match=f'algorithm="{algorithm}" needs .* shuffles'),
    ):
        context.build(np.zeros((4, 4)), algorithm=algorithm)


def test_unreal_is_refused(device, algorithm):
    with pytest.raises(ValueError, match=f'not "{algorithm}"'):
        hzb.build(np.zeros((4, 4)), algorithm=algorithm, rounding="unreal", device=device)
