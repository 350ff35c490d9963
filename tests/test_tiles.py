"""The kernels of large tiles, in two passes or one, and what ``auto`` takes.

That their bits are right for all options and inputs is asserted with those of the other kernels,
elsewhere; here are the sizes at which they take another way, and that no build sees another one.
"""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from bits import assert_same_bits

import hzb
import hzb.reference
from hzb import _core

pytestmark = pytest.mark.vulkan

TILED = ("two_pass", "single_pass")

# Builds of one frame in a row; `make soak` takes more.
REPEATS = int(os.environ.get("HZB_TEST_REPEATS", "20"))


@pytest.fixture(scope="module", params=TILED)
def tiled(request):
    return request.param


def plan(shape, device, **options):
    return _core._describe_plan(shape, device=device, **options)


def steps(shape, device, **options):
    made = plan(shape, device, **options)["dispatches"]
    return [(step["kernel"], step["first"], step["count"]) for step in made]


def mixed_numbers(rng, shape):
    """Depth of which some is negative, subnormal, beyond float16 or no number."""
    depth = rng.random(shape, np.float32)
    kind = rng.integers(0, 60, shape)
    for k, factor in enumerate((-1, 1e-6, 1e-42, 1e6, 0, -0.0, np.inf, -np.inf, np.nan)):
        depth[kind == k] *= np.float32(factor)
    return depth


def has_wide_tiles(shape, chains=1):
    """Whether a submission takes tiles of 128x128 pixels: many, at least half of each in use."""
    *frames, height, width = shape
    narrow = -(-height // 64) * -(-width // 64)
    wide = -(-height // 128) * -(-width // 128)
    return 2 * wide <= narrow and chains * int(np.prod(frames)) * wide >= 1000


# ---- dispatches ----


@pytest.mark.parametrize("sizing", ["pow2", "ceil"])
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1), (2, 2), (64, 64), (65, 64), (1080, 1920), (4320, 7680), (1, 1 << 23),
        (65, 127_872), (65, 127_873), (999, 128, 128), (1000, 128, 128),
    ],
    ids=str,
)  # fmt: skip
def test_one_dispatch_or_two(device, sizing, shape):
    levels = len(hzb.level_shapes(shape, sizing=sizing))
    first = 7 if has_wide_tiles(shape) else 6
    single = steps(shape, device, sizing=sizing, algorithm="single_pass")
    assert single == [("single_pass", 0, levels)]
    two = steps(shape, device, sizing=sizing, algorithm="two_pass")
    tail = [("two_pass", first, levels - first)] if levels > first else []
    assert two == [("two_pass", 0, min(levels, first)), *tail]


def test_floor_is_batched_where_a_side_is_odd(device, tiled):
    assert {
        kernel for kernel, *_ in steps((1080, 1920), device, sizing="floor", algorithm=tiled)
    } == {"batched"}
    made = steps((1024, 2048), device, sizing="floor", algorithm=tiled)
    assert made == steps((1024, 2048), device, sizing="ceil", algorithm=tiled)


def test_more_levels_than_the_kernel_knows_are_batched(device, tiled):
    shape = (1, (1 << 24) + 1)
    assert len(hzb.level_shapes(shape)) == 25
    assert {kernel for kernel, *_ in steps(shape, device, algorithm=tiled)} == {"batched"}


def test_padding_is_filled_where_there_is_much_of_it(device, tiled):
    if not plan((64, 64), device)["storage16"]:
        assert plan((1030, 1100), device, algorithm=tiled)["dispatches"][0]["run"] == 0
        return
    # 18 x 17 tiles of the frame, with the first beyond, of 32 x 32.
    step = plan((1030, 1100), device, algorithm=tiled)["dispatches"][0]
    assert (step["tiles_x"], step["tiles"]) == (19, 19 * 18)
    assert step["run"] == 8
    padding = 2 * 18 + 2 * 32  # runs of 13 to the right, and of 14 below all 32
    assert step["groups"] == (19, 18 + -(-padding // 19))
    # 34 x 18 tiles of the frame, twice as large, with the first beyond, of 64 x 32.
    step = plan((2160, 4100), device, algorithm=tiled, bounds="both")["dispatches"][0]
    assert (step["tile_side"], step["tiles_x"], step["tiles"]) == (128, 34, 34 * 18)
    assert step["run"] == 2
    padding = 15 * 18 + 7 * 64  # runs of 30 to the right, and of 14 below all 64
    assert step["groups"] == (34, 18 + -(-padding // 34))
    for shape, options in [
        ((1000, 1000), {}),
        ((1030, 1100), {"sizing": "ceil"}),
        ((1030, 1100), {"dtype": np.float32}),
    ]:
        assert plan(shape, device, algorithm=tiled, **options)["dispatches"][0]["run"] == 0


def test_auto(device):
    def auto(shape, **options):
        return {kernel for kernel, *_ in steps(shape, device, **options)}

    if device.kind != "software":
        assert auto((1080, 1920)) == auto((64, 1080, 1920)) == auto((3, 3)) == {"single_pass"}
        # Of "floor" with odd sides, large frames go level by level for two chains.
        assert auto((1080, 1920), sizing="floor", bounds="both") == {"batched"}
        assert auto((4320, 7680), sizing="floor") == {"batched"}
        assert auto((4320, 7680), sizing="floor", bounds="both") == {"per_level"}
        assert auto((2, 2160, 3840), sizing="floor", bounds="both") == {"per_level"}
        assert auto((4096, 4096), sizing="floor", bounds="both") == {"single_pass"}
    elif "llvmpipe" in device.name:
        assert auto((300, 300)) == auto((0, 9, 9)) == {"batched"}
        assert auto((300, 301)) == auto((2, 300, 300)) == {"per_level"}
    else:
        assert auto((3, 3)) == auto((300, 301)) == {"per_level"}


def test_auto_takes_an_image_for_a_frame_that_no_buffer_gives(device):
    details = next(
        details
        for record, details in zip(hzb.devices(), _core._device_details(), strict=True)
        if record.uuid == device.uuid
    )
    height = 8192
    while height * 16384 * 4 <= details["storage_range"] and height < 16384:
        height *= 2
    if height * 16384 * 4 > details["storage_range"]:
        step = plan((height, 16384), device)["dispatches"][0]
        assert (step["kernel"], step["source"]) == ("batched", "image")


def test_devices_without_shuffles(device, tiled, monkeypatch):
    monkeypatch.setenv("HZB_HIDE_FEATURES", "shuffle,unified")
    with hzb.Context(device) as context:
        assert {
            step["kernel"] for step in _core._describe_plan((99, 99), context=context)["dispatches"]
        } == {"batched"}
        with pytest.raises(ValueError, match=f'algorithm="{tiled}" needs .* subgroup shuffles'):
            context.build(np.zeros((4, 4)), algorithm=tiled)


@pytest.mark.parametrize("algorithm", ["per_level", *TILED])
def test_unreal_rounding_is_refused(device, algorithm):
    with pytest.raises(ValueError, match=f'not "{algorithm}"'):
        hzb.build(np.zeros((4, 4)), algorithm=algorithm, rounding="unreal", device=device)


@pytest.mark.parametrize("bounds", ["furthest", "both"])
@pytest.mark.parametrize(
    "shape",
    [
        (1440, 2560), (2160, 3840), (4320, 7680), (499, 99, 99), (500, 99, 99), (999, 99, 99),
        (4000, 64, 64), (4000, 64, 192), (4000, 65, 192), (4000, 192, 192),
    ],
    ids=str,
)  # fmt: skip
def test_large_tiles_are_wide_where_there_are_many(device, tiled, shape, bounds):
    *_, height, width = shape
    side = 128 if has_wide_tiles(shape, 2 if bounds == "both" else 1) else 64
    step = plan(shape, device, algorithm=tiled, sizing="ceil", bounds=bounds)["dispatches"][0]
    assert step["tile_side"] == side
    assert step["tiles_x"] == -(-width // side)
    assert step["tiles"] == -(-height // side) * -(-width // side)
    # A wide tile stores two levels at least.
    step = plan(shape, device, algorithm=tiled, sizing="ceil", levels=1)["dispatches"][0]
    assert step["tile_side"] == 64


# ---- bits ----

# Around the sides of tiles and of what a lane takes; rows of the first level that are of fours, of
# twos and odd; more tiles than 64, which are another round, along either side; and tiles beyond the
# frame, few or many.
SHAPES = [
    (64, 63), (65, 64), (66, 130), (131, 250), (4097, 3), (130, 4200), (70, 8300), (8300, 72),
    (1030, 1100), (1000, 520),
]  # fmt: skip


@pytest.fixture(params=[64, 128])
def tile_side(request):
    """Take tiles of the frame of this side, however many there are."""
    _core._set_tile_side(request.param)
    yield request.param
    _core._set_tile_side(0)


@pytest.mark.parametrize("sizing", ["pow2", "ceil"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sizes(device, tiled, tile_side, rng, sizing, shape):
    options = {"sizing": sizing, "bounds": "both"}
    step = plan(shape, device, algorithm=tiled, **options)["dispatches"][0]
    assert step["tile_side"] == tile_side
    depth = rng.random(shape, np.float32)
    half = (..., slice(shape[1] // 2, None))
    depth[half] = mixed_numbers(rng, depth[half].shape)
    got = hzb.build(depth, algorithm=tiled, device=device, **options)
    assert_same_bits(got, hzb.reference.build(depth, **options))


@pytest.mark.parametrize(
    ("shape", "sizing"),
    [((1, 600_000), "pow2"), ((600_000, 1), "ceil")],
    ids=str,
)
@pytest.mark.whole_if_slow
def test_four_rounds(device, tiled, rng, shape, sizing):
    depth = rng.random(shape, np.float32)
    got = hzb.build(depth, algorithm=tiled, device=device, sizing=sizing)
    assert_same_bits(got, hzb.reference.build(depth, sizing=sizing))


# With "pow2" workgroups of their own fill padding, where levels are stored in 16 bits.
@pytest.mark.parametrize("sizing", ["ceil", pytest.param("pow2", marks=pytest.mark.whole_if_slow)])
@pytest.mark.parametrize("levels", [1, 2, 3, 6, 7, 8, 12, 13, 14])
def test_fewer_levels(device, tiled, tile_side, rng, levels, sizing):
    depth = rng.random((2, 70, 8300), np.float32)
    options = {"sizing": sizing, "levels": levels}
    got = hzb.build(depth, algorithm=tiled, device=device, **options)
    assert_same_bits(got, hzb.reference.build(depth, **options))


@pytest.mark.parametrize(
    "shape",
    [
        (300, 90, 70),
        pytest.param((1000, 66, 65), marks=pytest.mark.whole_if_slow),
        (3, 8192, 1),
        pytest.param((70_000, 2, 2), marks=pytest.mark.whole_if_slow),
    ],
    ids=str,
)
def test_batches(device, tiled, rng, shape):
    depth = rng.random(shape, np.float32)
    got = hzb.build(depth, algorithm=tiled, device=device)
    assert_same_bits(got, hzb.reference.build(depth))


# With tiles of 64x64, they are in the tests of all algorithms.
@pytest.mark.parametrize(
    ("dtype", "rounding", "nan", "bounds"),
    [
        pytest.param(*choice, marks=[] if sample else pytest.mark.whole_if_slow)
        for choice, sample in zip(
            itertools.product(
                (np.float16, np.float32),
                ("conservative", "nearest"),
                ("propagate", "ignore"),
                ("furthest", "closest"),
            ),
            # Each two choices together at least once.
            (1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 1, 1, 0),
            strict=True,
        )
    ],
)
@pytest.mark.parametrize("tile_side", [128], indirect=True)
def test_options(device, tiled, tile_side, rng, dtype, rounding, nan, bounds):
    options = {"dtype": dtype, "rounding": rounding, "nan": nan, "bounds": bounds}
    depth = mixed_numbers(rng, (150, 140))
    got = hzb.build(depth, algorithm=tiled, device=device, **options)
    assert_same_bits(got, hzb.reference.build(depth, **options))


@pytest.mark.parametrize(
    "hidden",
    [
        pytest.param("storage16", marks=pytest.mark.whole_if_slow),
        pytest.param("subgroup_size_control", marks=pytest.mark.whole_if_slow),
        "storage16,subgroup_size_control,unified",
    ],
)
def test_lesser_devices(device, tiled, tile_side, rng, monkeypatch, hidden):
    monkeypatch.setenv("HZB_HIDE_FEATURES", hidden)
    with hzb.Context(device) as context:
        for shape in ((66, 130), (70, 4200)):
            depth = mixed_numbers(rng, shape)
            got = context.build(depth, algorithm=tiled, bounds="both")
            assert_same_bits(got, hzb.reference.build(depth, bounds="both"))


@pytest.mark.parametrize("tile_side", [128], indirect=True)
def test_wide_tiles_have_no_24th_level(device, tiled, tile_side):
    """Their last round would look one beyond it."""
    for levels, side in [(23, 128), (24, 64)]:
        made = plan((1, 1 << 24), device, algorithm=tiled, levels=levels)
        assert made["dispatches"][0]["tile_side"] == side


def test_tile_sides_that_there_are():
    for side in (-1, 1, 32, 256):
        with pytest.raises(ValueError, match=f"side: {side} is not accepted"):
            _core._set_tile_side(side)
    with pytest.raises(TypeError):
        _core._set_tile_side(None)


# ---- from workgroup to workgroup ----


@pytest.mark.parametrize(("side", "tile_side"), [(1024, 64), (4096, 128)], indirect=["tile_side"])
def test_the_last_workgroup_sees_what_all_others_left(device, rng, side, tile_side):
    """Each tile holds numbers of its own, so that one that is read too early shows."""
    tiles = rng.random((side // 32, side // 32), np.float32)
    depth = np.repeat(np.repeat(tiles, 32, axis=0), 32, axis=1)
    want = hzb.reference.build(depth)
    with hzb.Context(device) as context:
        for _ in range(REPEATS):
            assert_same_bits(context.build(depth, algorithm="single_pass"), want)


def test_counts_begin_anew_after_a_build_that_failed(device, rng):
    depths = [rng.random((200, 300), np.float32) for _ in range(2)]
    wants = [hzb.reference.build(depth) for depth in depths]
    with hzb.Context(device) as context:
        assert_same_bits(context.build(depths[0], algorithm="single_pass"), wants[0])
        _core._arm_fault("vulkan", 0)
        context.build(depths[0], algorithm="single_pass")
        calls = _core._fault_calls("vulkan")
        for nth in range(1, calls + 1):
            _core._arm_fault("vulkan", nth)
            try:
                got = context.build(depths[nth % 2], algorithm="single_pass")
            except hzb.VulkanError:
                pass
            else:  # memory that the device fills has a substitute
                assert_same_bits(got, wants[nth % 2])
            _core._arm_fault("vulkan", 0)
            got = context.build(depths[1 - nth % 2], algorithm="single_pass")
            assert_same_bits(got, wants[1 - nth % 2])
