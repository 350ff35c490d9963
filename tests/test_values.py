"""Numbers at which rounding, order or NaN can go wrong: every boundary of float16, and all NaNs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from algorithms import each_rounding
from bits import assert_same_bits, patterns
from twin import assert_like_reference

HALVES = np.arange(2**16, dtype=np.uint16).view(np.float16)
FINITE = HALVES[np.isfinite(HALVES)]
# Each once, ordered, with one zero.
ORDERED = np.unique(HALVES[~np.isnan(HALVES)])

NAN_BITS = [
    sign | 0x7F800000 | payload
    for sign in (0, 0x80000000)
    for payload in (*(1 << bit for bit in range(23)), 0x3FFFFF, 0x400001, 0x7FFFFF)
]


def float32(bits):
    return np.array(bits, np.uint32).view(np.float32)


def boundaries():
    """Give every finite float16 number as float32, with the float32 numbers beside it."""
    exact = FINITE.astype(np.float32)
    return np.concatenate(
        [exact, np.nextafter(exact, np.float32(-np.inf)), np.nextafter(exact, np.float32(np.inf))]
    )


def extremes():
    """Give float32 numbers of every exponent: subnormal ones, ones beyond float16, infinities."""
    exponents = (np.arange(255, dtype=np.uint32) << 23)[:, None]
    fractions = np.array([0, 1, 0x1000, 0x1FFF, 0x2000, 0x400000, 0x7FFFFF], np.uint32)
    positive = np.append((exponents | fractions).ravel(), np.uint32(0x7F800000))
    return np.concatenate([positive, positive | np.uint32(0x80000000)]).view(np.float32)


NUMBERS = np.concatenate([boundaries(), extremes()])


def double_boundaries():
    """Give every float16 number and every middle of two as float64, with the numbers beside it.

    They lie closer to it than float32 can tell.
    """
    ordered = np.unique(FINITE.astype(np.float64))
    exact = np.concatenate([ordered, (ordered[1:] + ordered[:-1]) / 2])
    return np.concatenate([exact, np.nextafter(exact, -np.inf), np.nextafter(exact, np.inf)])


def rounded(numbers, rounding, lowest):
    """Round to float16 by search among all of its numbers, the independent way."""
    below = ORDERED[np.searchsorted(ORDERED.astype(np.float32), numbers, "right") - 1]
    above = ORDERED[np.searchsorted(ORDERED.astype(np.float32), numbers, "left")]
    if rounding == "nearest":
        with np.errstate(over="ignore"):
            stored = numbers.astype(np.float16)
    elif rounding == "conservative":
        stored = below if lowest else above
    elif lowest:
        stored = np.where(numbers < 0, above, below)
    else:
        with np.errstate(over="ignore"):
            stored = np.where(numbers < 0, above, np.nextafter(below + np.float16(0), np.inf))
    return stored + np.float16(0)


def as_quads(values):
    """Lay values out in rows of 2x2 quads, one value a quad; the last row is filled with zeros."""
    columns = 512
    padded = np.zeros(-(-len(values) // columns) * columns, values.dtype)
    padded[: len(values)] = values
    return padded.reshape(-1, columns).repeat(2, axis=0).repeat(2, axis=1)


@each_rounding
def test_every_boundary_alone(build, rounding):
    frame = as_quads(NUMBERS)
    built = build(frame, bounds="both", rounding=rounding, levels=1)
    for levels, lowest in zip(built, (True, False), strict=True):
        got = levels[0].ravel()[: len(NUMBERS)]
        assert_same_bits([got], [rounded(NUMBERS, rounding, lowest)])
    assert_like_reference(build, frame, bounds="both", rounding=rounding)


@pytest.mark.parametrize("rounding", ["conservative", "nearest"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_every_boundary_of_doubles(build, rounding, order):
    numbers = double_boundaries()
    frame = as_quads(numbers).astype(f"{order}f8")
    built = build(frame, bounds="both", rounding=rounding, levels=1)
    for levels, lowest in zip(built, (True, False), strict=True):
        got = levels[0].ravel()[: len(numbers)]
        assert_same_bits([got], [rounded(numbers, rounding, lowest)])


@pytest.mark.parametrize("rounding", ["conservative", "nearest"])
def test_every_boundary_in_standard_z(build, rounding):
    furthest, closest = build(as_quads(NUMBERS), bounds="both", rounding=rounding, levels=1)
    swapped = build(as_quads(NUMBERS), bounds="both", rounding=rounding, levels=1, reversed_z=False)
    assert_same_bits(swapped, (closest, furthest))


@each_rounding
def test_every_boundary_among_others(build, rng, rounding):
    numbers = rng.permutation(NUMBERS)
    sizings = ("pow2",) if rounding == "unreal" else ("pow2", "floor", "ceil")
    for sizing in sizings:
        frame = numbers[: 441 * 439].reshape(441, 439)
        assert_like_reference(build, frame, bounds="both", rounding=rounding, sizing=sizing)


def test_exact_levels_of_every_boundary(build, rng):
    built = build(as_quads(NUMBERS), bounds="both", dtype=np.float32, levels=1)
    for levels in built:
        assert_same_bits([levels[0].ravel()[: len(NUMBERS)]], [NUMBERS + np.float32(0)])
    frame = rng.permutation(NUMBERS)[: 441 * 439].reshape(441, 439)
    for reversed_z in (True, False):
        assert_like_reference(build, frame, bounds="both", dtype=np.float32, reversed_z=reversed_z)


@each_rounding
@pytest.mark.parametrize("nan", ["propagate", "ignore"])
def test_every_float16_pattern_as_input(build, rounding, nan):
    frame = as_quads(HALVES)
    assert_like_reference(build, frame, bounds="both", rounding=rounding, nan=nan)
    if rounding == "conservative":
        number = ~np.isnan(HALVES)
        for levels in build(frame, bounds="both", nan=nan, levels=1):
            got = patterns(levels[0].ravel()[: len(HALVES)])
            assert (got[number] == patterns(HALVES[number] + np.float16(0))).all()
            assert (got[~number] == 0x7E00).all()


# What may stand beside each other in a footprint: numbers of every kind, and four kinds of NaN.
MIXED = np.concatenate(
    [
        float32([0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x7F800000, 0xFF800000]),
        np.array([1, -1, 3e-5, 70000], np.float32),
        float32([0x7FC00000, 0xFFC00001, 0x7F800001, 0xFFBFFFFF]),
    ]
)


def bound(quads, nan, lowest):
    """Reduce the last axis by the rule for NaN, in comparisons of numbers alone."""
    is_nan = np.isnan(quads)
    neutral = np.float32(np.inf if lowest else -np.inf)
    numbers = np.where(is_nan, neutral, quads)
    reduced = numbers.min(axis=-1) if lowest else numbers.max(axis=-1)
    lost = is_nan.any(axis=-1) if nan == "propagate" else is_nan.all(axis=-1)
    return reduced, lost


def every_mixture(places):
    """Give every way to fill so many places, one a row."""
    return np.array(list(itertools.product(MIXED, repeat=places)))


def frame_of(quads):
    """Lay out a square number of 2x2 quads, given as rows of four, in one frame."""
    side = math.isqrt(len(quads))
    return quads.reshape(side, side, 2, 2).swapaxes(1, 2).reshape(2 * side, 2 * side)


@each_rounding
@pytest.mark.parametrize("nan", ["propagate", "ignore"])
def test_every_mixture_in_a_quad(build, rounding, nan):
    quads = every_mixture(4)
    side = math.isqrt(len(quads))
    built = build(frame_of(quads), bounds="both", rounding=rounding, nan=nan, levels=1)
    for levels, lowest in zip(built, (True, False), strict=True):
        numbers, lost = bound(quads, nan, lowest)
        want = rounded(np.where(lost, 0, numbers), rounding, lowest)
        want[lost] = np.uint16(0x7E00).view(np.float16)
        # Beyond these the level repeats its edge.
        got = levels[0][:side, :side]
        assert_same_bits([got], [want.reshape(side, side)])


@pytest.mark.parametrize("nan", ["propagate", "ignore"])
@pytest.mark.parametrize("shape", [(1, 3), (3, 1)], ids=["row", "column"])
def test_every_mixture_of_three_exactly(build, shape, nan):
    triples = every_mixture(3)
    frames = triples.reshape(-1, *shape)
    built = build(frames, bounds="both", sizing="floor", dtype=np.float32, nan=nan)
    for levels, lowest in zip(built, (True, False), strict=True):
        numbers, lost = bound(triples, nan, lowest)
        want = numbers + np.float32(0)
        want[lost] = float32([0x7FC00000])
        assert_same_bits(levels, [want.reshape(-1, 1, 1)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("nan", ["propagate", "ignore"])
def test_every_nan_payload(build, nan, dtype):
    # A frame for each payload at each place among numbers, and one where nothing else is left.
    payloads = float32(NAN_BITS)
    frames = np.full((9, len(payloads), 3, 3), 0.25, np.float32)
    for place in range(9):
        frames[place, :, place // 3, place % 3] = payloads
    alone = np.broadcast_to(payloads[:, None, None], (len(payloads), 3, 3))
    expected = np.dtype(dtype).type(0.25 if nan == "ignore" else np.nan)
    for sizing in ("pow2", "floor", "ceil"):
        options = {"bounds": "both", "sizing": sizing, "nan": nan, "dtype": dtype}
        assert_like_reference(build, frames, **options)
        for levels in build(frames, **options):
            assert_same_bits([levels[-1]], [np.full((9, len(payloads), 1, 1), expected)])
        for levels in build(alone, **options):
            shapes = [level.shape for level in levels]
            assert_same_bits(levels, [np.full(shape, np.nan, dtype) for shape in shapes])


@pytest.mark.parametrize("nan", ["propagate", "ignore"])
def test_frame_of_set_bits(build, nan):
    # What a depth buffer cleared by memset(0xFF) holds.
    frame = np.full((37, 61), 0xFFFFFFFF, np.uint32).view(np.float32)
    for levels in build(frame, bounds="both", nan=nan):
        for level in levels:
            assert (patterns(level) == 0x7E00).all()
