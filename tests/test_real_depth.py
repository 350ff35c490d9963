"""Depth that real renderers and sensors gave, as its own conventions read it."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from bits import assert_same_bits
from twin import assert_like_reference

import hzb.reference

FOLDER = Path(__file__).parent / "data" / "depth"
SIZINGS = ("pow2", "floor", "ceil")

# What data/depth/README.md says of each file: whether larger is nearer.
REVERSED_Z = {
    "exr_beachball_z_911x876": False,
    "exr_widefloatrange_500x500": True,
    "gltf_rotunda_reversedz_1264x808": True,
    "gltf_terrain_linear_850x850": False,
    "rgbd_pclzf_boxes_640x480": False,
    "stereo_pcl_mug_nan_640x480": False,
}


@functools.cache
def load(name):
    with np.load(FOLDER / f"{name}.npz") as file:
        depth = file["depth"]
    depth.flags.writeable = False
    return depth


@functools.cache
def levels_of(name, **options):
    return hzb.reference.build(load(name), **options)


def test_every_file_is_used():
    assert sorted(REVERSED_Z) == sorted(file.stem for file in FOLDER.glob("*.npz"))


@pytest.mark.parametrize("name", REVERSED_Z)
@pytest.mark.parametrize("sizing", SIZINGS)
def test_levels(build, name, sizing):
    options = {"bounds": "both", "sizing": sizing, "reversed_z": REVERSED_Z[name]}
    assert_like_reference(build, load(name), levels_of(name, **options), **options)


@pytest.mark.parametrize(
    "options", [{"dtype": np.float32}, {"nan": "ignore"}, {"rounding": "nearest"}], ids=str
)
def test_options(build, options, share_of_sweep):
    for name in list(REVERSED_Z)[::share_of_sweep]:
        all_options = {"bounds": "both", "reversed_z": REVERSED_Z[name], **options}
        want = levels_of(name, **all_options)
        assert_like_reference(build, load(name), want, **all_options)


@pytest.mark.parametrize("name", REVERSED_Z)
def test_last_level_bounds_the_whole_frame(build, name):
    depth = load(name)
    nan = "ignore" if np.isnan(depth).any() else "propagate"
    lowest, highest = build(depth, bounds="both", dtype=np.float32, nan=nan)
    assert lowest[-1] == np.nanmin(depth)
    assert highest[-1] == np.nanmax(depth)


def test_integers_are_counts(build):
    # Millimetres, to 1713: below 2048 float16 holds every count.
    counts = load("rgbd_pclzf_boxes_640x480")
    built = build(counts, bounds="both", sizing="ceil")
    for levels in built:
        for level in levels:
            assert (level == level.astype(np.uint16)).all()
    assert_same_bits(build(counts.astype(np.float32), bounds="both", sizing="ceil"), built)
    assert (built.furthest[0] == counts.reshape(240, 2, 320, 2).min(axis=(1, 3))).all()


def test_uncovered_pixels_of_reversed_z_stay_far(build):
    # Far seen through holes: 0 wherever a 2x2 quad has one uncovered pixel, and nowhere else.
    depth = load("gltf_rotunda_reversedz_1264x808")
    furthest = build(depth, sizing="ceil")
    quads = depth.reshape(404, 2, 632, 2)
    assert ((furthest[0] == 0) == (quads == 0).any(axis=(1, 3))).all()
