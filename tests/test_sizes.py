"""Frames of every kind of size: what is lost or read twice at odd, narrow and pushed-back edges."""

from __future__ import annotations

import functools

import footprints
import numpy as np
import pytest
from bits import assert_same_bits
from twin import assert_like_reference

import hzb
import hzb.reference

SIZINGS = ("pow2", "floor", "ceil")
BOUNDS = ("furthest", "closest")

SMALL = [(height, width) for height in range(1, 41) for width in range(1, 41)]
POWERS = [2**exponent for exponent in range(1, 11)]
AROUND_POWERS = [
    shape
    for power in POWERS
    for shape in ((power - 1, power), (power, power + 1), (power + 1, power - 1))
]
LONG = [(1, 4096), (4096, 1), (3, 4097), (4097, 3), (2, 16384), (16384, 3), (5, 16383)]

# Every side up to 130 beside a side of each kind: around powers of two, odd, prime, video's.
SPREAD = sorted(
    {power + step for power in POWERS for step in (-1, 0, 1)}
    | {1, 6, 10, 12, 20, 37, 97, 105, 131, 210, 251, 330, 509, 720, 769, 850, 1000, 1021}
)
SWEEP = [
    (short, long) if (short + long) % 2 else (long, short)
    for short in range(1, 131)
    for long in SPREAD
]


def frame(shape):
    return np.random.default_rng(shape).random(shape, np.float32)


@functools.cache
def levels_of_frame(shape, sizing):
    return hzb.reference.build(frame(shape), bounds="both", sizing=sizing)


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize(
    "shapes", [SMALL, AROUND_POWERS, LONG], ids=["small", "around-powers", "long"]
)
def test_every_size(build, shapes, sizing):
    for shape in shapes:
        want = levels_of_frame(shape, sizing)
        assert_like_reference(build, frame(shape), want, bounds="both", sizing=sizing)


@pytest.mark.parametrize("sizing", SIZINGS)
def test_sample_of_the_sweep(build, rng, sizing):
    for shape in map(tuple, rng.choice(SWEEP, 40, replace=False).tolist()):
        want = levels_of_frame(shape, sizing)
        assert_like_reference(build, frame(shape), want, bounds="both", sizing=sizing)


@pytest.mark.whole
@pytest.mark.parametrize("sizing", SIZINGS)
def test_sweep(build, share_of_sweep, sizing):
    for shape in SWEEP[::share_of_sweep]:
        assert_like_reference(build, frame(shape), bounds="both", sizing=sizing)


def assert_single_pixels_arrive(build, side, sizing):
    """Build a frame for each position in a square, with a far pixel there and a near one after it.

    A texel of the furthest chain must be far just where its footprint holds the far pixel, and one
    of the closest chain near just where it holds the near one.
    """
    count = side * side
    position = np.arange(count)
    following = (position + 1) % count
    depth = np.full((count, count), 0.5, np.float32)
    depth[position, following] = 1
    depth[position, position] = 0
    built = build(depth.reshape(count, side, side), bounds="both", sizing=sizing)

    sides = [shape[-1] for shape in hzb.level_shapes((side, side), sizing=sizing)]
    spans = footprints.spans(side, sizing, sides)
    for level, (first, last) in enumerate(spans):
        under = (first[:, None] <= np.arange(side)) & (np.arange(side) <= last[:, None])
        holds = np.einsum("iy,jx->yxij", under, under).reshape(built.furthest[level].shape)
        where = f"{side} x {side}, {sizing}, level {level}"
        assert np.array_equal(built.furthest[level] == 0, holds), where
        # In a single pixel the far one took the near one's place.
        near = holds[following] if count > 1 else ~holds
        assert np.array_equal(built.closest[level] == 1, near), where


@pytest.mark.parametrize("sizing", SIZINGS)
def test_one_pixel_reaches_every_level(build, share_of_sweep, sizing):
    for side in range(1, 34, share_of_sweep):
        assert_single_pixels_arrive(build, side, sizing)


@pytest.mark.whole
@pytest.mark.parametrize("sizing", SIZINGS)
def test_one_pixel_reaches_every_level_of_more_squares(build, share_of_sweep, sizing):
    for side in (*range(1, 34), *range(34, 67, share_of_sweep)):
        assert_single_pixels_arrive(build, side, sizing)


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize("shape", [(4, 7), (7, 4), (7, 7), (1, 5), (5, 1), (9, 6), (1023, 3)])
def test_last_row_and_column_count(build, shape, sizing):
    depth = np.ones(shape, np.float32)
    depth[-1, -1] = 0
    for level in build(depth, sizing=sizing):
        assert level[-1, -1] == 0
        assert (level == 0).sum() == 1 or sizing == "pow2"


def test_odd_side_takes_three_taps_in_floor(build):
    depth = np.array([[1, 1, 0, 1, 1]], np.float32)
    want = [np.zeros((1, 2), np.float16), np.zeros((1, 1), np.float16)]
    assert_same_bits(build(depth, sizing="floor"), want)
    assert_same_bits(build(depth.T, sizing="floor"), [level.T for level in want])


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize("value", [0.5, pytest.param(1.0, marks=pytest.mark.whole_if_slow)])
def test_constant_frames_stay_constant(build, value, sizing, bounds):
    # A read past an edge, past a side that is 1 already or past a last partial tile brings in
    # something else, as does padding by any constant.
    for shape in [(1, 64), (64, 1), (8, 1024), (1024, 8), (32, 128), (65, 33), (850, 850)] + [
        (height, width) for height in range(1, 10) for width in range(1, 10)
    ]:
        for number, level in enumerate(
            build(np.full(shape, value, np.float32), sizing=sizing, bounds=bounds)
        ):
            assert (level == value).all(), f"{shape}, level {number}"


@pytest.mark.parametrize("sizing", SIZINGS)
def test_fewer_levels_leave_the_memory_beyond_untouched(build, rng, sizing):
    depth = rng.random((61, 95), np.float32)
    full = hzb.reference.build(depth, sizing=sizing)
    guard = np.uint16(0x5555)
    for levels in range(1, len(full) + 1):
        arena = np.full((levels, full[0].size + 256), guard)
        out = [
            row[: level.size].view(np.float16).reshape(level.shape)
            for row, level in zip(arena, full, strict=False)
        ]
        assert build(depth, sizing=sizing, levels=levels, out=out) is out
        assert_same_bits(out, full[:levels])
        for row, level in zip(arena, full, strict=False):
            assert (row[level.size :] == guard).all()


@pytest.mark.parametrize("sizing", SIZINGS)
def test_nothing_outside_the_view_rectangle_counts(build, rng, sizing):
    depth = np.full((70, 90), np.nan, np.float32)
    for x0, y0, x1, y1 in [(0, 0, 90, 1), (89, 69, 90, 70), (5, 3, 56, 34), (33, 17, 90, 70)]:
        view = rng.random((y1 - y0, x1 - x0), np.float32)
        depth[...] = np.nan
        depth[y0:y1, x0:x1] = view
        want = hzb.reference.build(view, bounds="both", sizing=sizing)
        got = build(depth, bounds="both", sizing=sizing, view_rect=(x0, y0, x1, y1))
        assert_same_bits(got, want)
