"""Many frames, and frames longer than images and dispatches can be."""

from __future__ import annotations

import re

import footprints
import numpy as np
import pytest
from bits import assert_same_bits
from twin import assert_like_reference

import hzb

SIZINGS = ("pow2", "floor", "ceil")


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize("batch", [(1,), (3,), (2, 3), (1, 1, 1), (2, 1, 3, 2)])
def test_frames_of_a_batch_are_independent(build, rng, batch, sizing):
    depth = rng.random((*batch, 21, 34), np.float32)
    built = build(depth, bounds="both", sizing=sizing)
    for index in np.ndindex(batch):
        alone = build(depth[index], bounds="both", sizing=sizing)
        assert_same_bits([[level[index] for level in levels] for levels in built], alone)


# 2048 is what devices commonly allow in layers of an image, 256 what they must.
@pytest.mark.parametrize(
    "shape", [(2049, 3, 2), (300, 9, 7), (257, 65, 2), (33, 2, 70, 90)], ids=str
)
@pytest.mark.parametrize("sizing", SIZINGS)
def test_more_frames_than_layers(build, rng, shape, sizing):
    assert_like_reference(build, rng.random(shape, np.float32), bounds="both", sizing=sizing)


@pytest.mark.whole_if_slow
def test_more_frames_than_workgroups(build, rng):
    # 65535 along an axis is what devices must allow, and what many do.
    assert_like_reference(build, rng.random((70_000, 2, 2), np.float32), bounds="both")


@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 0, 4, 5), (0, 0, 1, 1)], ids=str)
def test_batch_axis_of_zero(build, shape):
    depth = np.empty(shape, np.float32)
    want = [np.empty(level, np.float16) for level in hzb.level_shapes(shape)]
    assert_same_bits(build(depth, bounds="both"), (want, want))
    assert build(depth, out=want) is want


# 16384 is the usual limit of an image's side.
@pytest.mark.parametrize(
    "shape",
    [
        (1, 100_003),
        pytest.param((200_000, 1), marks=pytest.mark.whole_if_slow),
        pytest.param((3, 16_385), marks=pytest.mark.whole_if_slow),
        (16_385, 3),
        pytest.param((2, 3, 20_001), marks=pytest.mark.whole_if_slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("sizing", SIZINGS)
def test_frames_longer_than_images(build, rng, shape, sizing):
    assert_like_reference(build, rng.random(shape, np.float32), sizing=sizing)


# 65536 tiles of 8x8 texels beside each other, and as many groups of 64 texels.
@pytest.mark.parametrize(
    ("algorithm", "width"),
    [("batched", 525_001), ("per_level", 4_200_001)],
    indirect=["algorithm"],
    scope="session",
)
def test_frames_longer_than_dispatches(build, rng, width):
    assert_like_reference(build, rng.random((1, width), np.float32))


def assert_right_or_refused(build, device, rng, shape, **options):
    """Build a frame of few far pixels; its levels follow from where these are.

    A device may be too small for the frame: then the call says by which limit, before it allocates.
    """
    depth = np.ones(shape, np.uint8)
    places = rng.integers(0, shape, (20, 2))
    depth[tuple(places.T)] = 0
    shapes = hzb.level_shapes(shape, **options)
    rows = footprints.spans(shape[0], options["sizing"], [level[0] for level in shapes])
    columns = footprints.spans(shape[1], options["sizing"], [level[1] for level in shapes])
    want = [np.ones(level, np.float16) for level in shapes]
    for y, x in places:
        for level, (first_y, last_y), (first_x, last_x) in zip(want, rows, columns, strict=True):
            under_y = (first_y <= y) & (y <= last_y)
            under_x = (first_x <= x) & (x <= last_x)
            level[np.ix_(under_y, under_x)] = 0
    try:
        built = build(depth, **options)
    except (ValueError, hzb.OutOfMemoryError) as error:
        refusal = str(error)
    else:
        assert_same_bits(built, want)
        return
    assert re.search(rf" \d+ bytes.*{re.escape(device.name)}.* \d+ ", refusal), refusal


@pytest.mark.whole_if_slow
def test_frame_beyond_128_mib(build, device, rng):
    # The largest range of a storage buffer that every device must allow.
    assert_right_or_refused(build, device, rng, (4099, 8211), sizing="ceil", levels=1)


@pytest.mark.whole
def test_frame_of_16384_squared(build, device, rng):
    assert_right_or_refused(build, device, rng, (16_384, 16_384), sizing="pow2")
