"""The NumPy twin against the golden cases, worked values and a scalar oracle.

The oracle below is the rules in plain Python, on exact numbers and one texel at a time. Nothing
here needs a device; what the kernels give is compared with the twin elsewhere.
"""

from __future__ import annotations

import array
import ctypes
import functools
import itertools
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import golden
import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from bits import assert_same_bits, patterns
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hzb
from hzb import reference

NAN = float("nan")
INF = float("inf")
SIZINGS = ("pow2", "floor", "ceil")
ROUNDINGS = ("conservative", "nearest", "unreal")
DEPTH_FILES = sorted((Path(__file__).parent / "data" / "depth").glob("*.npz"))

# All float16 numbers in order, once with each zero folded into +0.
HALF_PATTERNS = [*range(0xFC00, 0x8000, -1), *range(0x7C01)]
HALVES = [struct.unpack("<e", struct.pack("<H", pattern))[0] for pattern in HALF_PATTERNS]


# The oracle


def oracle_round(x: float, rounding: str, lowest: bool) -> int:
    """Give the float16 pattern of an exact number (int or float) in a min or a max chain."""
    if x != x:
        return 0x7E00
    below = bisect_right(HALVES, x) - 1
    above = bisect_left(HALVES, x)
    if rounding == "nearest":
        return oracle_nearest(x, below, above)
    if rounding == "conservative":
        return HALF_PATTERNS[below if lowest else above]
    if lowest:
        return HALF_PATTERNS[below if x >= 0 else above]
    return min(HALF_PATTERNS[below] + 1, 0x7C00) if x >= 0 else HALF_PATTERNS[above]


def oracle_nearest(x: float, below: int, above: int) -> int:
    if abs(x) == INF or below == above:
        return HALF_PATTERNS[below]

    # Infinity stands where the number after 65504 would be.
    def distance(index: int) -> Fraction:
        return abs(Fraction(x) - Fraction(max(-65536, min(HALVES[index], 65536))))

    candidates = (distance(below), distance(above))
    if candidates[0] == candidates[1]:
        return next(HALF_PATTERNS[i] for i in (below, above) if HALF_PATTERNS[i] % 2 == 0)
    return HALF_PATTERNS[below if candidates[0] < candidates[1] else above]


def oracle_side(side: int, sizing: str, level: int) -> int:
    if sizing == "ceil":
        return -(-side // 2)
    if sizing == "pow2" and level == 0:
        power = 1
        while power < side:
            power *= 2
        return max(1, power // 2)
    return max(1, side // 2)


def oracle_taps(index: int, side: int, sizing: str) -> set[int]:
    if sizing == "pow2":
        start = min(2 * index, max(side - 2, 0))
        wanted = {start, start + 1}
    elif sizing == "floor" and side % 2 == 1 and side > 1:
        wanted = {2 * index, 2 * index + 1, 2 * index + 2}
    else:
        wanted = {2 * index, 2 * index + 1}
    return {min(tap, side - 1) for tap in wanted}


def oracle_texel(footprint: list[float], nan: str, lowest: bool) -> float:
    numbers = [value for value in footprint if value == value]
    if not numbers or (nan == "propagate" and len(numbers) < len(footprint)):
        return NAN
    return min(numbers) if lowest else max(numbers)


def oracle_frame(
    frame: list[list[float]], sizing: str, rounding: str, nan: str, stored: str, lowest: bool
) -> list[list[list[int]]]:
    """Give the patterns of all levels of one frame."""
    chain: list[list[list[int]]] = []
    while not chain or (len(frame), len(frame[0])) != (1, 1):
        height, width = len(frame), len(frame[0])
        frame = [
            [
                oracle_texel(
                    [
                        frame[y][x]
                        for y in oracle_taps(row, height, sizing)
                        for x in oracle_taps(column, width, sizing)
                    ],
                    nan,
                    lowest,
                )
                for column in range(oracle_side(width, sizing, len(chain)))
            ]
            for row in range(oracle_side(height, sizing, len(chain)))
        ]
        if stored == "float32":
            chain.append([[float32_pattern(x) for x in row] for row in frame])
        else:
            chain.append([[oracle_round(x, rounding, lowest) for x in row] for row in frame])
        if rounding == "unreal" and len(chain) % 4 == 0:
            frame = [
                [struct.unpack("<e", struct.pack("<H", half))[0] for half in row]
                for row in chain[-1]
            ]
    return chain


def float32_pattern(x: float) -> int:
    if x != x:
        return 0x7FC00000
    return struct.unpack("<I", struct.pack("<f", x + 0.0))[0]


def oracle_build(
    depth: NDArray[Any],
    *,
    bounds: str,
    reversed_z: bool,
    sizing: str,
    rounding: str,
    nan: str,
    view_rect: tuple[int, int, int, int] | None,
    levels: int | None,
    dtype: str,
) -> Any:
    if bounds == "both":
        return tuple(
            oracle_build(
                depth,
                bounds=bound,
                reversed_z=reversed_z,
                sizing=sizing,
                rounding=rounding,
                nan=nan,
                view_rect=view_rect,
                levels=levels,
                dtype=dtype,
            )
            for bound in ("furthest", "closest")
        )
    x0, y0, x1, y1 = view_rect or (0, 0, depth.shape[-1], depth.shape[-2])
    lowest = (bounds == "furthest") == reversed_z
    *batch, _, _ = depth.shape
    chains = [
        oracle_frame(depth[index][y0:y1, x0:x1].tolist(), sizing, rounding, nan, dtype, lowest)
        for index in np.ndindex(*batch)
    ]
    stored = np.dtype(dtype)
    return [
        np.array(frames, f"u{stored.itemsize}").view(stored).reshape(*batch, *np.shape(frames[0]))
        for frames in itertools.islice(zip(*chains, strict=True), levels)
    ]


def exact_round_to_odd(x: float) -> int:
    """Give the float32 pattern of an exact number, rounded to odd, in rational arithmetic."""
    sign = 0x80000000 if x < 0 else 0
    if abs(x) == INF:
        return sign | 0x7F800000
    magnitude = abs(Fraction(x))
    if magnitude >= 2**128:
        return sign | 0x7F7FFFFF
    exponent = -126
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = magnitude / Fraction(2) ** (exponent - 23)
    kept = int(steps)
    # Subnormals have no leading one to leave out, and the exponent field 0.
    pattern = kept + ((exponent + 126) << 23)
    return sign | pattern | (kept != steps)


def round_scalars(values: Any, **options: Any) -> NDArray[np.uint16]:
    """Store each number by itself: as a batch of 1x1 frames."""
    frames = np.asarray(values)[:, None, None]
    (level,) = reference.build(frames, **options)
    return level.view(np.uint16).ravel()


def from_float32(bits: Any) -> NDArray[np.float32]:
    return np.asarray(bits, np.uint32).view(np.float32)


# Golden cases, worked values, sizes


@pytest.mark.parametrize("case", golden.CASES, ids=str)
def test_golden_case(case: golden.Case) -> None:
    assert_same_bits(reference.build(case.depth, **case.options), case.levels)


def test_golden_cases_are_all_there() -> None:
    assert len(golden.CASES) == 127
    assert sum(case.options.get("rounding") == "unreal" for case in golden.CASES) >= 20


@pytest.mark.parametrize(
    ("value", "down", "up"),
    [
        (1e-4, 0x068D, 0x068E),
        (0.99999, 0x3BFF, 0x3C00),
        (2.9e-8, 0x0000, 0x0001),
        (1.0, 0x3C00, 0x3C00),
        (3e-5, 0x01F7, 0x01F8),
        (1e-40, 0x0000, 0x0001),
        (-1e-40, 0x8001, 0x0000),
        (-0.0, 0x0000, 0x0000),
        (65504.0, 0x7BFF, 0x7BFF),
        (65505.0, 0x7BFF, 0x7C00),
        (70000.0, 0x7BFF, 0x7C00),
        (-70000.0, 0xFC00, 0xFBFF),
        (-65504.0, 0xFBFF, 0xFBFF),
        (INF, 0x7C00, 0x7C00),
        (-INF, 0xFC00, 0xFC00),
        (NAN, 0x7E00, 0x7E00),
    ],
)
def test_conservative_worked_values(value: float, down: int, up: int) -> None:
    frame = np.full((1, 1), value, np.float32)
    furthest, closest = reference.build(frame, bounds="both")
    assert (patterns(furthest[0])[0, 0], patterns(closest[0])[0, 0]) == (down, up)


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        (-70000.0, 0xFBFF, 0xFBFF),
        (-1e-9, 0x0000, 0x0000),
        (-1e-40, 0x0000, 0x0000),
        (-0.0, 0x0000, 0x0001),
        (0.0, 0x0000, 0x0001),
        (1e-40, 0x0000, 0x0001),
        (1.0, 0x3C00, 0x3C01),
        (0.99999, 0x3BFF, 0x3C00),
        (65504.0, 0x7BFF, 0x7C00),
        (70000.0, 0x7BFF, 0x7C00),
        (INF, 0x7C00, 0x7C00),
        (-INF, 0xFC00, 0xFC00),
        (-1.0, 0xBC00, 0xBC00),
        (NAN, 0x7E00, 0x7E00),
    ],
)
def test_unreal_worked_values(value: float, low: int, high: int) -> None:
    frame = np.full((1, 1), value, np.float32)
    furthest, closest = reference.build(frame, bounds="both", rounding="unreal")
    assert (patterns(furthest[0])[0, 0], patterns(closest[0])[0, 0]) == (low, high)


def test_unreal_adds_once_a_dispatch() -> None:
    levels = reference.build(np.ones((1, 4096)), bounds="closest", rounding="unreal")
    assert [set(patterns(level).flat) for level in levels] == (
        [{0x3C01}] * 4 + [{0x3C02}] * 4 + [{0x3C03}] * 4
    )


def test_unreal_starts_again_from_the_stored_level() -> None:
    # Stored, -1e-40 is +0; the next dispatch takes that zero for a number to add to.
    levels = reference.build(
        np.full((1, 64), -1e-40, np.float32), bounds="closest", rounding="unreal"
    )
    assert [set(patterns(level).flat) for level in levels] == [{0}] * 4 + [{1}] * 2


@pytest.mark.parametrize("nan", ["propagate", "ignore"])
def test_unreal_carries_nan_into_the_next_dispatch(nan: str) -> None:
    depth = np.ones((1, 64), np.float32)
    depth[0, :32] = NAN
    levels = reference.build(depth, bounds="closest", rounding="unreal", nan=nan)
    assert patterns(levels[4]).tolist() == [[0x7E00, 0x3C02]]
    assert patterns(levels[5]).tolist() == [[0x7E00 if nan == "propagate" else 0x3C02]]


@pytest.mark.parametrize(
    ("sizing", "sides"),
    [
        ("pow2", [512, 256, 128, 64, 32, 16, 8, 4, 2, 1]),
        ("floor", [425, 212, 106, 53, 26, 13, 6, 3, 1]),
        ("ceil", [425, 213, 107, 54, 27, 14, 7, 4, 2, 1]),
    ],
)
def test_documented_sizes(sizing: str, sides: list[int]) -> None:
    assert reference.level_shapes((850, 850), sizing=sizing) == [(s, s) for s in sides]


def test_a_side_of_one_stays() -> None:
    assert reference.level_shapes((808, 1264)) == [
        *((2**k, 2 ** (k + 1)) for k in range(9, -1, -1)),
        (1, 1),
    ]
    assert reference.level_shapes((1, 1)) == [(1, 1)]


def test_shapes_keep_leading_axes() -> None:
    assert reference.level_shapes((0, 5, 3, 4)) == [(0, 5, 2, 2), (0, 5, 1, 1)]
    assert reference.level_shapes((7, 9, 9), view_rect=(1, 2, 4, 4), levels=1) == [(7, 1, 2)]


@pytest.mark.parametrize("sizing", SIZINGS)
def test_shapes_follow_the_rules_for_every_side(sizing: str) -> None:
    for side in range(1, 600):
        expected, level = [side], 0
        while level == 0 or expected[-1] > 1:
            expected.append(oracle_side(expected[-1], sizing, level))
            level += 1
        assert reference.level_shapes((side, 1), sizing=sizing) == [(s, 1) for s in expected[1:]]


def test_covered_part_and_the_rest() -> None:
    assert reference.level_shapes((1, 20), covered=True)[:2] == [(1, 10), (1, 5)]
    assert reference.level_shapes((3, 1, 20), covered=True)[-1] == (3, 1, 1)
    assert reference.level_shapes((5, 5), sizing="floor", covered=True) == [(2, 2), (1, 1)]
    depth = np.arange(20.0)[None]
    first, second, *_ = reference.build(depth, bounds="furthest")
    assert first.shape == (1, 16)
    assert set(second[0, 5:]) == {first[0, -1]} == {18.0}
    assert second[0, 4] == 16.0


# Rounding, over every float16 number


@functools.cache
def around_every_half() -> NDArray[np.float32]:
    """Give all finite float16 numbers, the middles between them, and a float32 ulp either side."""
    halves = np.array(HALVES[1:-1], np.float32)
    middles = np.r_[-65520, (halves[:-1] + halves[1:]) / 2, 65520].astype(np.float32)
    numbers = np.r_[halves, middles]
    around = np.r_[
        numbers, np.nextafter(numbers, np.float32(INF)), np.nextafter(numbers, np.float32(-INF))
    ]
    return np.sort(around)


def test_every_half_is_bounded_tightly() -> None:
    numbers = around_every_half()
    down = round_scalars(numbers, bounds="furthest").view(np.float16)
    up = round_scalars(numbers, bounds="closest").view(np.float16)
    with np.errstate(over="ignore", under="ignore"):
        after = np.nextafter(down, np.float16(INF))
        before = np.nextafter(up, np.float16(-INF))
    assert (down <= numbers).all()
    assert (numbers <= up).all()
    assert (after > numbers).all()
    assert (before < numbers).all()
    assert not (np.signbit(down) & (down == 0)).any()
    assert not (np.signbit(up) & (up == 0)).any()


def test_nearest_is_what_numpy_casts_to() -> None:
    numbers = around_every_half()
    with np.errstate(over="ignore", under="ignore"):
        expected = numbers.astype(np.float16) + np.float16(0)
    for bounds in ("furthest", "closest"):
        got = round_scalars(numbers, rounding="nearest", bounds=bounds)
        assert np.array_equal(got, expected.view(np.uint16))


@pytest.mark.parametrize("bounds", ["furthest", "closest"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_rounding_keeps_order_and_agrees_with_the_oracle(rounding: str, bounds: str) -> None:
    numbers = around_every_half()
    got = round_scalars(numbers, rounding=rounding, bounds=bounds)
    stored = got.view(np.float16)
    assert (stored[1:] >= stored[:-1]).all()
    sample = slice(None, None, 23)
    expected = [oracle_round(x, rounding, bounds == "furthest") for x in numbers[sample].tolist()]
    assert got[sample].tolist() == expected


@pytest.mark.parametrize("reversed_z", [True, False])
def test_stored_halves_round_to_themselves(reversed_z: bool) -> None:
    halves = np.array(HALF_PATTERNS, np.uint16).view(np.float16)
    for bounds, rounding in itertools.product(("furthest", "closest"), ROUNDINGS[:2]):
        got = round_scalars(halves, bounds=bounds, rounding=rounding, reversed_z=reversed_z)
        assert got.tolist() == HALF_PATTERNS


@pytest.mark.parametrize("bounds", ["furthest", "closest"])
def test_float32_levels_are_exact(bounds: str) -> None:
    numbers = around_every_half()
    for rounding in ("conservative", "nearest"):
        (level,) = reference.build(
            numbers[:, None, None], dtype=np.float32, bounds=bounds, rounding=rounding
        )
        assert level.dtype == np.float32
        assert np.array_equal(patterns(level.ravel()), patterns(numbers + np.float32(0)))


# Rounding to odd


SPECIAL_DOUBLES = [
    *(sign * x for sign in (1.0, -1.0) for x in (0.0, 5e-324, 2.0**-149, 2.0**-150, 2.0**-126)),
    *(np.nextafter(x, y) for x in (2.0**-149, 2.0**-126, 1.0, 2.0**128, 65504.0) for y in (0, INF)),
    *(2.0**128, -(2.0**128), 1.7e308, -1.7e308, INF, -INF, 2.0**128 - 2.0**104, 0.1, 1 / 3, -1e-9),
]
SPECIAL_INTEGERS = sorted(
    {
        sign * (2**power + offset)
        for power in (0, 11, 16, 23, 24, 25, 31, 32, 52, 53, 54, 62, 63, 64)
        for offset in (-1025, -513, -2, -1, 0, 1, 2, 512, 513, 1025)
        for sign in (1, -1)
    }
)


def test_doubles_round_to_odd() -> None:
    rng = np.random.default_rng(4)
    anywhere = rng.integers(0, 2**64, 1500, np.uint64).view(np.float64)
    numbers = np.r_[
        SPECIAL_DOUBLES,
        anywhere[~np.isnan(anywhere)],
        rng.standard_normal(500) * 2.0 ** rng.integers(-155, 130, 500),
    ]
    got = reference._float32_bits(numbers).view(np.uint32)
    # Keep the sign of zero out of it: the rule is about numbers.
    expected = [exact_round_to_odd(x) | (np.signbit(x) << 31) for x in numbers.tolist()]
    assert got.tolist() == expected


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_integers_round_to_odd(dtype: type[np.integer[Any]]) -> None:
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(5)
    wide = rng.integers(limits.min, limits.max, 1000, dtype, endpoint=True)
    special = [x for x in SPECIAL_INTEGERS if limits.min <= x <= limits.max]
    numbers = np.r_[
        np.array([limits.min, limits.max, *special], dtype),
        wide,
        wide >> rng.integers(0, limits.bits - 1, 1000, dtype),
    ]
    assert numbers.dtype == dtype
    got = reference._float32_bits(numbers).view(np.uint32)
    assert got.tolist() == [exact_round_to_odd(x) for x in numbers.tolist()]


@pytest.mark.parametrize("bits", [0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF, 0x7FF8000000000000])
def test_double_nan_stays_nan(bits: int) -> None:
    depth = np.array([[bits]], np.uint64).view(np.float64)
    assert round_scalars(depth[0]).tolist() == [0x7E00]


# NaN


@pytest.mark.parametrize("bounds", ["furthest", "closest"])
@pytest.mark.parametrize(
    "bits", [0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00001, 0xFFFFFFFF]
)
def test_nan_of_any_payload_at_every_position(bits: int, bounds: str) -> None:
    frames = np.tile(from_float32(0x3F000000), (40, 2, 20))
    for position in range(40):
        frames.view(np.uint32)[position, position // 20, position % 20] = bits
    for level in reference.build(frames, bounds=bounds, nan="ignore"):
        assert set(patterns(level).flat) == {0x3800}
    last = reference.build(frames, bounds=bounds)[-1]
    assert set(patterns(last).flat) == {0x7E00}
    exact = reference.build(frames, bounds=bounds, dtype=np.float32)[-1]
    assert set(patterns(exact).flat) == {0x7FC00000}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_buffer_of_all_ones_is_nan(dtype: Any) -> None:
    depth = np.frombuffer(b"\xff" * 72 * np.dtype(dtype).itemsize, dtype).reshape(6, 12)
    for nan in ("propagate", "ignore"):
        for level in reference.build(depth, nan=nan):
            assert set(patterns(level).flat) == {0x7E00}


@pytest.mark.parametrize("bits", [0x7C01, 0x7D00, 0x7E00, 0xFC01, 0xFFFF])
def test_half_nan_of_any_payload(bits: int) -> None:
    depth = np.array([[bits, 0x3C00]], np.uint16).view(np.float16)
    assert patterns(reference.build(depth)[0]).tolist() == [[0x7E00]]
    assert patterns(reference.build(depth, nan="ignore")[0]).tolist() == [[0x3C00]]


# Footprints, and faults that other builders had


def last(depth: Any, **options: Any) -> float:
    level = reference.build(np.asarray(depth, np.float32), **options)[-1]
    assert level.shape[-2:] == (1, 1)
    return level.item()


@pytest.mark.parametrize("sizing", SIZINGS)
@pytest.mark.parametrize("bounds", ["furthest", "closest"])
def test_one_pixel_reaches_every_level(sizing: str, bounds: str) -> None:
    value = 0.0 if bounds == "furthest" else 1.0
    for side in (1, 2, 3, 5, 6, 7, 8, 9, 15, 16, 17, 25, 31, 32, 33):
        frames = np.full((side * side, side * side), 1 - value, np.float32)
        np.fill_diagonal(frames, value)
        levels = reference.build(frames.reshape(-1, side, side), sizing=sizing, bounds=bounds)
        assert all((level == value).any(axis=(-2, -1)).all() for level in levels)


def test_floor_reads_three_taps_on_odd_sides() -> None:
    depth = np.array([[1, 1, 0, 1, 1]], np.float32)
    for frame in (depth, depth.T):
        assert reference.build(frame, sizing="floor")[0].ravel().tolist() == [0, 0]
        assert reference.build(frame, sizing="ceil")[0].ravel().tolist() == [1, 0, 1]
        assert reference.build(frame, sizing="pow2")[0].ravel().tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize("sizing", SIZINGS)
def test_edges_repeat_and_nothing_is_padded(sizing: str) -> None:
    for shape in ((3, 3), (1, 64), (8, 1024), (1, 5), (5, 1), (32, 128)):
        both = reference.build(np.full(shape, 0.5), bounds="both", sizing=sizing)
        assert all((level == 0.5).all() for chain in both for level in chain)


def test_pow2_pushes_its_window_back() -> None:
    first = reference.build(np.arange(5.0)[None], bounds="both")
    assert first.furthest[0].tolist() == [[0, 2, 3, 3]]
    assert first.closest[0].tolist() == [[1, 3, 4, 4]]


def test_last_row_and_column_count() -> None:
    for sizing, (y, x) in itertools.product(SIZINGS, ((3, 6), (0, 6), (3, 0))):
        depth = np.ones((4, 7))
        depth[y, x] = 0.25
        assert last(depth, sizing=sizing) == 0.25


def test_view_rect_is_the_chain_of_the_slice() -> None:
    rng = np.random.default_rng(1)
    depth = rng.random((2, 21, 34), np.float32)
    outside = np.full_like(depth, NAN)
    outside[:, 3:20, 5:30] = depth[:, 3:20, 5:30]
    for sizing in SIZINGS:
        want = reference.build(depth[:, 3:20, 5:30], sizing=sizing, bounds="both")
        got = reference.build(outside, sizing=sizing, bounds="both", view_rect=[5, 3, 30, 20])
        assert_same_bits(got, want)


def test_many_frames_and_wide_frames() -> None:
    rng = np.random.default_rng(2)
    frames = rng.random((70000, 2, 2), np.float32)
    (level,) = reference.build(frames, dtype=np.float32)
    assert np.array_equal(level[:, 0, 0], frames.min(axis=(1, 2)))
    for shape in ((3, 16384), (16385, 2)):
        wide = rng.random(shape, np.float32)
        assert last(wide, dtype=np.float32) == wide.min()
        assert last(wide, dtype=np.float32, reversed_z=False) == wide.max()


def test_empty_batch_gives_empty_levels() -> None:
    levels = reference.build(np.empty((3, 0, 5, 7)), dtype=np.float16)
    assert [level.shape for level in levels] == reference.level_shapes((3, 0, 5, 7))
    assert levels[0].shape == (3, 0, 4, 4)


@pytest.mark.parametrize("file", DEPTH_FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("sizing", SIZINGS)
def test_real_depth_is_bounded(file: Path, sizing: str) -> None:
    with np.load(file) as content:
        depth = content["depth"]
    exact = depth.astype(np.float32)
    furthest, closest = reference.build(depth, bounds="both", sizing=sizing, nan="ignore")
    rows, columns = (np.arange(side) for side in depth.shape)
    for level, (low, high) in enumerate(zip(furthest, closest, strict=True)):
        index = np.ix_(
            np.minimum(rows >> level + 1, low.shape[0] - 1),
            np.minimum(columns >> level + 1, low.shape[1] - 1),
        )
        assert not (exact < low[index]).any()
        assert not (exact > high[index]).any()
    lowest, highest = np.nanmin(exact), np.nanmax(exact)
    assert patterns(furthest[-1]).item() == oracle_round(lowest.item(), "conservative", True)
    assert patterns(closest[-1]).item() == oracle_round(highest.item(), "conservative", False)


def test_depth_files_are_all_there() -> None:
    assert len(DEPTH_FILES) == 6


# The oracle over shapes, types, layouts and options


SPECIAL_BITS = {
    "float16": [0x0000, 0x8000, 0x0001, 0x8001, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0xFE00, 0x3C00],
    "float32": [
        *(0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x33000000, 0x33000001, 0xB3000000),
        *(0x38D1B717, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x4788B800, 0xC77FF000, 0xC788B800),
        *(0x7F800000, 0xFF800000, 0x7F800001, 0xFFBFFFFF, 0x7FC00000, 0xFFFFFFFF, 0x3F800000),
    ],
    "float64": np.r_[SPECIAL_DOUBLES, 1.0, NAN, 65520.0].view(np.uint64).tolist(),
}


def elements(dtype: np.dtype[Any]) -> st.SearchStrategy[int]:
    """Bit patterns of a type, or integers: anything, what is special, and small numbers."""
    bits = 8 * dtype.itemsize
    if dtype.kind == "f":
        return st.sampled_from(SPECIAL_BITS[dtype.name]) | st.integers(0, 2**bits - 1)
    limits = np.iinfo(dtype)
    special = [x for x in SPECIAL_INTEGERS if limits.min <= x <= limits.max]
    return st.sampled_from(special) | st.integers(int(limits.min), int(limits.max))


LAYOUTS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "contiguous": lambda a: a,
    "fortran": np.asfortranarray,
    "flipped": lambda a: np.flip(a).copy()[..., ::-1, ::-1] if a.ndim == 2 else a[..., ::-1, :],
    "strided": lambda a: np.repeat(np.repeat(a, 2, axis=-1), 3, axis=-2)[..., ::3, ::2],
    "swapped": lambda a: a.astype(a.dtype.newbyteorder("S")),
    "unaligned": lambda a: unaligned(a),
    "broadcast": lambda a: np.broadcast_to(a[..., :1, :], a.shape),
}


def unaligned(a: NDArray[Any]) -> NDArray[Any]:
    buffer = np.empty(a.nbytes + 1, np.uint8)[1:]
    view = buffer.view(a.dtype).reshape(a.shape)
    # Bit by bit: a cast to the same type could quiet a NaN.
    buffer[:] = np.frombuffer(a.tobytes(), np.uint8)
    return view


@st.composite
def calls(draw: st.DrawFn) -> tuple[NDArray[Any], dict[str, Any]]:
    stored = draw(st.sampled_from(["float16", "float16", "float32"]))
    types = ["float32", "float32", "float16", "int8", "uint8", "int16", "uint16"]
    if stored == "float16":
        types += ["float64", "int32", "uint32", "int64", "uint64"]
    dtype = np.dtype(draw(st.sampled_from(types)))
    batch = draw(st.sampled_from([(), (), (2,), (1, 3)]))
    height, width = draw(st.tuples(*[st.integers(1, 9 if batch else 20)] * 2))
    pattern = np.dtype(f"u{dtype.itemsize}") if dtype.kind == "f" else dtype
    depth = draw(hnp.arrays(pattern, (*batch, height, width), elements=elements(dtype)))
    depth = draw(st.sampled_from(list(LAYOUTS.values())))(depth.view(dtype))
    depth.flags.writeable = False

    unreal = stored == "float16" and draw(st.integers(0, 2)) == 0
    rect = None
    if draw(st.booleans()):
        x0, y0 = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        rect = (x0, y0, draw(st.integers(x0 + 1, width)), draw(st.integers(y0 + 1, height)))
    options = {
        "bounds": draw(st.sampled_from(["furthest", "closest", "both"])),
        "reversed_z": unreal or draw(st.booleans()),
        "sizing": "pow2" if unreal else draw(st.sampled_from(SIZINGS)),
        "rounding": "unreal" if unreal else draw(st.sampled_from(ROUNDINGS[:2])),
        "nan": draw(st.sampled_from(["propagate", "ignore"])),
        "view_rect": rect,
        "dtype": stored,
    }
    count = len(reference.level_shapes(depth.shape, sizing=options["sizing"], view_rect=rect))
    options["levels"] = draw(st.none() | st.integers(1, count))
    return depth, options


@settings(derandomize=True, database=None, deadline=None, max_examples=600)
@given(call=calls())
def test_twin_agrees_with_the_oracle(call: tuple[NDArray[Any], dict[str, Any]]) -> None:
    depth, options = call
    before = depth.tobytes()
    got = reference.build(depth, **options)
    assert depth.tobytes() == before
    assert_same_bits(got, oracle_build(depth, **options))
    shapes = reference.level_shapes(
        depth.shape,
        sizing=options["sizing"],
        view_rect=options["view_rect"],
        levels=options["levels"],
    )
    for chain in got if options["bounds"] == "both" else [got]:
        assert [level.shape for level in chain] == shapes
        assert all(level.flags.c_contiguous and level.flags.writeable for level in chain)


# Array-likes


FRAME = np.array([[3, 1, 2], [5, 4, 6]], np.float32)


class Labelled(np.ndarray):
    """A subclass, whose results are to be plain arrays all the same."""


class Exporter:
    """An object that offers its array through DLPack alone, from a device that it is told."""

    def __init__(self, device: tuple[int, int], error: Exception | None = None) -> None:
        self._device = device
        self._error = error

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        if self._error:
            raise self._error
        return FRAME.__dlpack__(**options)


class ArrayMethod:
    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return 2 * FRAME


class BothMethods(Exporter, ArrayMethod):
    pass


class FarArray:
    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        raise TypeError("no implicit conversion from the device")


@pytest.mark.parametrize(
    "source",
    [
        FRAME.tolist(),
        tuple(map(tuple, FRAME.tolist())),
        list(FRAME),
        memoryview(FRAME),
        memoryview(array.array("f", FRAME.ravel())).cast("B").cast("f", FRAME.shape),
        (ctypes.c_float * 3 * 2)(*map(tuple, FRAME.tolist())),
        FRAME.view(Labelled),
        Exporter((1, 0)),
        Exporter((3, 0)),
    ],
    ids=lambda source: type(source).__name__,
)
def test_array_likes(source: Any) -> None:
    assert_same_bits(reference.build(source, bounds="both"), reference.build(FRAME, bounds="both"))


def test_array_likes_are_tried_in_order() -> None:
    (dlpack_level, *_) = reference.build(BothMethods((1, 0)))
    assert dlpack_level.tolist() == reference.build(FRAME)[0].tolist()
    for source in (ArrayMethod(), BothMethods((1, 0), BufferError("requires gradient"))):
        (level, *_) = reference.build(source)
        assert level.tolist() == reference.build(2 * FRAME)[0].tolist()


# Options


class Two:
    def __index__(self) -> int:
        return 2


@pytest.mark.parametrize("two", [2, np.int8(2), np.array(2), Two()])
def test_levels_take_anything_with_index(two: Any) -> None:
    depth = np.arange(40.0).reshape(5, 8)
    want = reference.build(depth[:2, :2])
    assert len(reference.build(depth, levels=two)) == 2
    assert_same_bits(reference.build(depth, view_rect=np.array([0, 0, 2, 2])), want)
    assert_same_bits(reference.build(depth, view_rect=(0, 0, two, two)), want)


@pytest.mark.parametrize("dtype", [np.float16, "float16", "e", np.dtype("=f2"), np.dtype("<f2")])
def test_names_of_float16(dtype: Any) -> None:
    assert reference.build(FRAME, dtype=dtype)[0].dtype == np.float16


def test_bounds_swap_with_the_direction_of_depth() -> None:
    both = reference.build(FRAME, bounds="both")
    assert isinstance(both, hzb.Bounds)
    swapped = reference.build(FRAME, bounds="both", reversed_z=np.bool_(False))
    assert_same_bits(both.furthest, reference.build(FRAME))
    assert_same_bits(both.closest, reference.build(FRAME, bounds="closest"))
    assert [level.tolist() for level in swapped.furthest] == [
        level.tolist() for level in both.closest
    ]


REFUSED_OPTIONS = [
    ({"bounds": "nearest"}, ValueError, ["bounds", "'nearest'", "'furthest'", "'both'"]),
    ({"bounds": 3}, ValueError, ["bounds", "3", "'closest'"]),
    ({"sizing": "Pow2"}, ValueError, ["sizing", "'Pow2'", "'pow2'", "'floor'", "'ceil'"]),
    ({"rounding": None}, ValueError, ["rounding", "None", "'conservative'", "'unreal'"]),
    ({"nan": True}, ValueError, ["nan", "True", "'propagate'", "'ignore'"]),
    ({"reversed_z": "no"}, ValueError, ["reversed_z", "'no'", "True", "False"]),
    ({"dtype": np.float64}, ValueError, ["dtype", "float64", "float16", "float32"]),
    ({"dtype": None}, ValueError, ["dtype", "None", "float16", "float32"]),
    ({"dtype": np.dtype(np.float16).newbyteorder("S")}, ValueError, ["dtype", "native"]),
    ({"dtype": "half-ish"}, TypeError, ["dtype", "'half-ish'", "float16", "float32"]),
    ({"levels": 0}, ValueError, ["levels", "0", "1 to 2"]),
    ({"levels": 3}, ValueError, ["levels", "3", "1 to 2"]),
    ({"levels": -1}, ValueError, ["levels", "-1", "1 to 2"]),
    ({"levels": True}, TypeError, ["levels", "True", "int"]),
    ({"levels": np.True_}, TypeError, ["levels", "bool", "int"]),
    ({"levels": 2.0}, TypeError, ["levels", "2.0", "__index__"]),
    ({"levels": "2"}, TypeError, ["levels", "'2'", "__index__"]),
    ({"view_rect": (0, 0, 4, 2)}, ValueError, ["view_rect", "(0, 0, 4, 2)", "x1 <= 3"]),
    ({"view_rect": (0, 0, 3, 3)}, ValueError, ["view_rect", "(0, 0, 3, 3)", "y1 <= 2"]),
    ({"view_rect": (-1, 0, 3, 2)}, ValueError, ["view_rect", "0 <= x0 < x1"]),
    ({"view_rect": (1, 0, 1, 2)}, ValueError, ["view_rect", "0 <= x0 < x1"]),
    ({"view_rect": (0, 2, 1, 1)}, ValueError, ["view_rect", "0 <= y0 < y1"]),
    ({"view_rect": (0, 0, 2**70, 1)}, ValueError, ["view_rect", "x1 <= 3"]),
    ({"view_rect": (0, 0, 3)}, ValueError, ["view_rect", "(0, 0, 3)", "four"]),
    ({"view_rect": ()}, ValueError, ["view_rect", "four"]),
    ({"view_rect": (0, 0, 3, 2.0)}, TypeError, ["view_rect[3]", "2.0"]),
    ({"view_rect": (0, False, 3, 2)}, TypeError, ["view_rect[1]", "False", "bool"]),
    ({"view_rect": "0032"}, TypeError, ["view_rect[0]", "'0'"]),
    ({"view_rect": 4}, TypeError, ["view_rect", "4", "sequence"]),
    ({"view_rect": {0, 1, 2, 3}}, TypeError, ["view_rect", "sequence"]),
    ({"view_rect": {0: 0, 1: 0, 2: 3, 3: 2}}, TypeError, ["view_rect", "sequence"]),
    pytest.param(
        {"view_rect": iter((0, 0, 3, 2))},
        TypeError,
        ["view_rect", "sequence"],
        id="view_rect-iterator",
    ),
    ({"view_rect": np.array(4)}, TypeError, ["view_rect", "sequence"]),
    (
        {"rounding": "unreal", "reversed_z": False},
        ValueError,
        ["'unreal'", "reversed_z=False", "reversed_z=True"],
    ),
    ({"rounding": "unreal", "sizing": "ceil"}, ValueError, ["'unreal'", "sizing='ceil'", "pow2"]),
    ({"rounding": "unreal", "dtype": "float32"}, ValueError, ["'unreal'", "float32", "float16"]),
]


@pytest.mark.parametrize(("options", "error", "words"), REFUSED_OPTIONS, ids=repr)
def test_refused_options(options: dict[str, Any], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        reference.build(FRAME, **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)


REFUSED_DEPTHS = [
    (FRAME[0], ValueError, ["depth", "(3,)", "two"]),
    (np.float32(1), ValueError, ["depth", "()", "two"]),
    (b"12345678", ValueError, ["depth", "(8,)", "two"]),
    ([], ValueError, ["depth", "(0,)", "two"]),
    (FRAME[:0], ValueError, ["depth", "(0, 3)", "at least 1"]),
    (FRAME[:, :0], ValueError, ["depth", "(2, 0)", "at least 1"]),
    ([[1.0, 2.0], [3.0]], ValueError, ["depth", "equal length"]),
    (np.broadcast_to(np.int8(0), (2**16, 2**15 + 1)), ValueError, ["depth", "2**31", "view_rect"]),
    (FRAME > 2, TypeError, ["depth", "bool", "astype"]),
    (FRAME.astype(complex), TypeError, ["depth", "complex128", "astype"]),
    (FRAME.astype(np.longdouble), TypeError, ["depth", str(np.dtype(np.longdouble)), "astype"]),
    (FRAME.astype(object), TypeError, ["depth", "object", "astype"]),
    (FRAME.astype(str), TypeError, ["depth", "<U", "astype"]),
    (FRAME.astype(bytes), TypeError, ["depth", "S", "astype"]),
    (FRAME.astype("M8[s]"), TypeError, ["depth", "datetime64", "astype"]),
    (FRAME.astype("m8[s]"), TypeError, ["depth", "timedelta64", "astype"]),
    (np.zeros((2, 3), "f4,f4"), TypeError, ["depth", "f0", "astype"]),
    (np.zeros((2, 3), "V2"), TypeError, ["depth", "V2", "astype"]),
    ("depth.npy", TypeError, ["depth", "<U9", "astype"]),
    (None, TypeError, ["depth", "object", "astype"]),
    ((ctypes.c_void_p * 3 * 2)(), TypeError, ["depth", "astype"]),
    (np.ma.masked_equal(FRAME, 1), TypeError, ["depth", "masked", "NaN", "filled"]),
    (Exporter((2, 1)), TypeError, ["depth", "(2, 1)", "copy it to the host"]),
    (BothMethods((10, 0)), TypeError, ["depth", "(10, 0)", "copy it to the host"]),
    (Exporter((1, 0), BufferError("bfloat16")), TypeError, ["bfloat16", "astype"]),
    (FarArray(), TypeError, ["depth", "no implicit conversion", "copy it to the host"]),
]


@pytest.mark.parametrize(
    ("depth", "error", "words"), REFUSED_DEPTHS, ids=lambda value: type(value).__name__
)
def test_refused_depths(depth: Any, error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        reference.build(depth)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("dtype", ["float64", ">f8", "int32", "uint32", "int64", "uint64"])
def test_inexact_types_are_refused_for_exact_levels(dtype: str) -> None:
    with pytest.raises(TypeError, match=r"depth: dtype .*\.astype\(numpy\.float32\)"):
        reference.build(FRAME.astype(dtype), dtype=np.float32)


def test_the_largest_frame_is_not_refused_for_its_size() -> None:
    depth = np.broadcast_to(np.int8(0), (2**16, 2**15 + 1))
    assert reference.build(depth, view_rect=(2, 3, 4, 5))[0].tolist() == [[0]]
    assert len(reference.level_shapes((2**16, 2**15))) == 16
    with pytest.raises(ValueError, match="too large"):
        reference.level_shapes(depth.shape)


@pytest.mark.parametrize(
    ("shape", "options", "error", "words"),
    [
        (5, {}, TypeError, ["shape", "5", "sequence"]),
        ((5,), {}, ValueError, ["shape", "(5,)", "two"]),
        ((5, 0), {}, ValueError, ["shape", "(5, 0)", "at least 1"]),
        ((-1, 5, 5), {}, ValueError, ["shape", "(-1, 5, 5)", "at least 0"]),
        ((5, 5.0), {}, TypeError, ["shape[1]", "5.0"]),
        ((5, True), {}, TypeError, ["shape[1]", "True"]),
        ((5, 5), {"sizing": "up"}, ValueError, ["sizing", "'up'", "'pow2'"]),
        ((5, 5), {"levels": 4}, ValueError, ["levels", "4", "1 to 3"]),
        ((5, 5), {"view_rect": (0, 0, 6, 5)}, ValueError, ["view_rect", "x1 <= 5"]),
        ((5, 5), {"covered": 1}, ValueError, ["covered", "1", "True"]),
    ],
)
def test_refused_shapes(
    shape: Any, options: dict[str, Any], error: type[Exception], words: list[str]
) -> None:
    with pytest.raises(error) as caught:
        reference.level_shapes(shape, **options)
    assert all(word in str(caught.value) for word in words), str(caught.value)


# out=


def room(dtype: Any = np.float16) -> list[NDArray[Any]]:
    return [np.full(shape, 7, dtype) for shape in reference.level_shapes(FRAME.shape)]


@pytest.mark.parametrize("container", [list, tuple])
def test_out_is_written_and_returned(container: type[Any]) -> None:
    for dtype, bounds in itertools.product((np.float16, np.float32), ("furthest", "closest")):
        out = container(room(dtype))
        assert reference.build(FRAME, out=out, dtype=dtype, bounds=bounds) is out
        assert_same_bits(out, reference.build(FRAME, dtype=dtype, bounds=bounds))


@pytest.mark.parametrize(
    "pair",
    [hzb.Bounds, lambda a, b: (a, b), lambda a, b: [tuple(a), b]],
    ids=["Bounds", "tuple", "list"],
)
def test_out_for_both_bounds(pair: Callable[..., Any]) -> None:
    out = pair(room(), room())
    assert reference.build(FRAME, out=out, bounds="both") is out
    assert_same_bits(out, reference.build(FRAME, bounds="both"))


def test_out_holds_the_levels_of_an_empty_batch() -> None:
    out = [np.empty((0, 1, 2), np.float16), np.empty((0, 1, 1), np.float16)]
    assert reference.build(np.empty((0, 2, 3)), out=out) is out


def read_only() -> NDArray[Any]:
    level = np.zeros((1, 2), np.float16)
    level.flags.writeable = False
    return level


LEVEL = np.zeros((1, 2), np.float16)
TAIL = np.zeros((1, 1), np.float16)
SWAPPED = LEVEL.astype(LEVEL.dtype.newbyteorder("S"))
REFUSED_OUT = [
    (np.zeros((2, 1, 1)), TypeError, ["out", "ndarray", "list or tuple"]),
    pytest.param(iter([LEVEL, TAIL]), TypeError, ["out", "list or tuple"], id="iterator"),
    ({0: LEVEL}, TypeError, ["out", "dict", "list or tuple"]),
    ([LEVEL, [[0]]], TypeError, ["out[1]", "list", "ndarray"]),
    ([LEVEL, None], TypeError, ["out[1]", "NoneType", "ndarray"]),
    (hzb.Bounds([LEVEL, TAIL], [LEVEL, TAIL]), TypeError, ["out[0]", "list", "ndarray"]),
    ([LEVEL], ValueError, ["out", "1 arrays", "2 levels", "level_shapes"]),
    ([LEVEL, TAIL, TAIL.copy()], ValueError, ["out", "3 arrays", "2 levels"]),
    ([LEVEL[0], TAIL], ValueError, ["out[0]", "(2,)", "(1, 2)"]),
    ([LEVEL, TAIL.repeat(2, 0)], ValueError, ["out[1]", "(2, 1)", "(1, 1)"]),
    ([LEVEL.astype(np.float32), TAIL], ValueError, ["out[0]", "float32", "float16"]),
    ([SWAPPED, TAIL], ValueError, ["out[0]", "dtype", "float16"]),
    ([np.zeros((1, 4), np.float16)[:, ::2], TAIL], ValueError, ["out[0]", "C-contiguous"]),
    ([unaligned(LEVEL), TAIL], ValueError, ["out[0]", "aligned"]),
    ([read_only(), TAIL], ValueError, ["out[0]", "writeable"]),
    ([LEVEL, LEVEL[:, 1:]], ValueError, ["out[0]", "overlaps out[1]"]),
]


@pytest.mark.parametrize(("out", "error", "words"), REFUSED_OUT, ids=lambda value: repr(value)[:40])
def test_refused_out(out: Any, error: type[Exception], words: list[str]) -> None:
    LEVEL[...] = TAIL[...] = 7
    with pytest.raises(error) as caught:
        reference.build(FRAME, out=out)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert set(LEVEL.flat) | set(TAIL.flat) == {7}
    assert_same_bits(reference.build(FRAME, out=room()), reference.build(FRAME))


@pytest.mark.parametrize(
    ("out", "error", "words"),
    [
        (room(), TypeError, ["out[0]", "ndarray", "list or tuple"]),
        ([room()], TypeError, ["out", "pair"]),
        ((room(), room(), room()), TypeError, ["out", "pair"]),
        ((room(), room()[:1]), ValueError, ["out[1]", "1 arrays", "2 levels"]),
        ((room(), [LEVEL, TAIL.astype(float)]), ValueError, ["out[1][1]", "float64"]),
        ([[LEVEL, TAIL]] * 2, ValueError, ["out[0][0]", "overlaps out[1][0]"]),
    ],
)
def test_refused_out_for_both_bounds(out: Any, error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        reference.build(FRAME, out=out, bounds="both")
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_out_must_not_overlap_the_input() -> None:
    depth = np.ones((4, 4), np.float16)
    first, second = np.zeros((2, 2), np.float16), np.zeros((1, 1), np.float16)
    with pytest.raises(ValueError, match=r"out\[0\]: overlaps depth"):
        reference.build(depth, out=[depth.reshape(-1)[12:].reshape(2, 2), second])
    # By extents: a column that a sliced input leaves out lies between those that it has.
    with pytest.raises(ValueError, match=r"out\[1\]: overlaps depth"):
        reference.build(depth[:, ::2], out=[first[:, :1].copy(), depth[:1, 1:2]])
    assert (depth == 1).all()
    assert (first == 0).all()
