"""Properties of all builds, over inputs drawn by hypothesis."""

from __future__ import annotations

import footprints
import numpy as np
import pytest
from algorithms import roundings
from hypothesis import given
from hypothesis import strategies as st
from twin import assert_like_reference

import hzb
import hzb.reference

SIZINGS = ("pow2", "floor", "ceil")
EXACT = ("f2", "f4", "i1", "u1", "i2", "u2")
THROUGH_ODD = ("f8", "i4", "u4", "i8", "u8")

shapes = st.tuples(
    st.lists(st.integers(1, 3), max_size=2), st.integers(1, 70), st.integers(1, 70)
).map(lambda parts: (*parts[0], *parts[1:]))


def any_bits(rng, shape, dtype):
    """Give numbers of every magnitude, NaNs and infinities among them; all integers are alike."""
    return np.frombuffer(rng.bytes(dtype.itemsize * int(np.prod(shape))), dtype).reshape(shape)


def few_values(rng, shape, dtype):
    """Give ties, zeros of both signs, and numbers beyond float16 or at the end of the type."""
    if dtype.kind == "f":
        values = np.array([0.0, -0.0, 1.0, -1.0, 3e-8, np.inf, -np.inf, np.nan], dtype)
        values = np.append(values, np.finfo(dtype).max)
    else:
        values = np.array([0, 1, 2, np.iinfo(dtype).max, np.iinfo(dtype).min], dtype)
    return rng.choice(values, shape)


def depths(rng, shape, dtype):
    """Give numbers in [0, 1), or integers in [0, 100)."""
    return (rng.random(shape) * (1 if dtype.kind == "f" else 100)).astype(dtype)


# Views of the same or fewer texels, laid out in every way that strides allow.
LAYOUTS = {
    "C order": lambda depth: depth,
    "Fortran order": np.asfortranarray,
    "rows reversed": lambda depth: depth[..., ::-1, :],
    "columns reversed": lambda depth: depth[..., ::-1],
    "every second row": lambda depth: depth[..., ::2, :],
    "every third column": lambda depth: depth[..., ::3],
    "transposed": lambda depth: depth.swapaxes(-1, -2),
    "frames reversed": lambda depth: depth[::-1],
    "one row for all": lambda depth: np.broadcast_to(depth[..., :1, :], depth.shape),
    "one column for all": lambda depth: np.broadcast_to(depth[..., :1], depth.shape),
    "one frame for all": lambda depth: np.broadcast_to(depth, (3, *depth.shape)),
    "other byte order": lambda depth: depth.astype(depth.dtype.newbyteorder()),
    "unaligned": lambda depth: unaligned(depth),
    "field of records": lambda depth: field(depth),
}


def unaligned(depth):
    moved = np.zeros(depth.nbytes + 1, np.uint8)[1:].view(depth.dtype).reshape(depth.shape)
    moved[...] = depth
    return moved


def field(depth):
    records = np.zeros(depth.shape, [("flag", "u1"), ("depth", depth.dtype)])
    records["depth"] = depth
    return records["depth"]


@st.composite
def inputs(draw, dtypes):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    content = draw(st.sampled_from([any_bits, few_values, depths]))
    layout = LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))]
    return layout(content(rng, draw(shapes), np.dtype(draw(st.sampled_from(dtypes)))))


@st.composite
def options(draw, depth, roundings):
    chosen = {
        "bounds": draw(st.sampled_from(["furthest", "closest", "both"])),
        "nan": draw(st.sampled_from(["propagate", "ignore"])),
        "rounding": draw(st.sampled_from(roundings)),
    }
    if chosen["rounding"] != "unreal":
        chosen["reversed_z"] = draw(st.booleans())
        chosen["sizing"] = draw(st.sampled_from(SIZINGS))
        if depth.dtype.newbyteorder("=").str[1:] in EXACT:
            chosen["dtype"] = draw(st.sampled_from([np.float16, np.float32]))
    height, width = depth.shape[-2:]
    if draw(st.booleans()):
        x0, y0 = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        x1, y1 = draw(st.integers(x0 + 1, width)), draw(st.integers(y0 + 1, height))
        chosen["view_rect"] = (x0, y0, x1, y1)
    if draw(st.booleans()):
        sizes = {name: chosen[name] for name in ("sizing", "view_rect") if name in chosen}
        chosen["levels"] = draw(st.integers(1, len(hzb.level_shapes(depth.shape, **sizes))))
    return chosen


@given(data=st.data())
def test_device_equals_reference(build, algorithm, data):
    depth = data.draw(inputs(EXACT + THROUGH_ODD))
    chosen = data.draw(options(depth, roundings(algorithm)))
    before = depth.tobytes()
    plain = np.array(depth, depth.dtype.newbyteorder("="), order="C")
    assert_like_reference(build, depth, hzb.reference.build(plain, **chosen), **chosen)
    assert depth.tobytes() == before


@pytest.mark.parametrize("reversed_z", [True, False])
@given(data=st.data())
def test_levels_bound_their_pixels_tightly(build, reversed_z, data):
    depth = data.draw(inputs(["f4", "f8", "u2", "i4"]))
    if depth.dtype.kind == "f":
        depth = np.where(np.isnan(depth), depth.dtype.type(0), depth)
    sizing = data.draw(st.sampled_from(SIZINGS))
    built = build(depth, bounds="both", sizing=sizing, reversed_z=reversed_z)
    lowest, highest = built if reversed_z else reversed(built)
    exact = depth.astype(np.float64)
    shapes = hzb.level_shapes(depth.shape, sizing=sizing)
    for levels, ufunc, beyond in (
        (lowest, np.minimum, np.float16(np.inf)),
        (highest, np.maximum, np.float16(-np.inf)),
    ):
        for level, truth in zip(
            levels, footprints.bounds(ufunc, exact, sizing, shapes), strict=True
        ):
            # No pixel is beyond the level, and the next float16 would be beyond one.
            assert (ufunc(level, truth) == level).all()
            with np.errstate(over="ignore", under="ignore"):
                tighter = np.nextafter(level, beyond)
            assert ((level == truth) | (ufunc(tighter, truth) == truth)).all()


@pytest.mark.parametrize("sizing", SIZINGS)
@given(data=st.data())
def test_exact_levels_are_the_bounds(build, sizing, data):
    depth = data.draw(inputs(["f4", "f2", "i2"]))
    if depth.dtype.kind == "f":
        depth = np.where(np.isnan(depth), depth.dtype.type(0), depth)
    built = build(depth, bounds="both", sizing=sizing, dtype=np.float32)
    shapes = hzb.level_shapes(depth.shape, sizing=sizing)
    exact = depth.astype(np.float32)
    for levels, ufunc in zip(built, (np.minimum, np.maximum), strict=True):
        truths = footprints.bounds(ufunc, exact, sizing, shapes)
        for level, truth in zip(levels, truths, strict=True):
            assert (level == truth).all()
