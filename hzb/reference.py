"""The bit-exact NumPy twin of :func:`hzb.build`, and of :func:`hzb.level_shapes`.

Written from the rules alone, for checking the kernels and for reading. It shares no code with the C
part and knows no device, context or algorithm.

Depth travels as *keys*: the bit pattern of a float32, sign and magnitude, read as a signed 32-bit
integer. Keys order as the numbers do, both zeros are key 0, and neither comparison nor rounding can
meet a floating-point unit that flushes subnormals or treats NaN in its own way.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    from hzb import Bounds

__all__ = ["build", "level_shapes"]

_BOUNDS = ("furthest", "closest", "both")
_SIZINGS = ("pow2", "floor", "ceil")
_ROUNDINGS = ("conservative", "nearest", "unreal")
_NAN_RULES = ("propagate", "ignore")
_STORED = (np.dtype(np.float16), np.dtype(np.float32))

_EXACT = frozenset(map(np.dtype, "efbBhH"))
_ROUNDED_TO_ODD = frozenset(map(np.dtype, "dilqILQ"))
_ACCEPTED = "float16, float32, float64 and integers of 8 to 64 bits"

# DLPack device types whose memory the host reads: the CPU, and CUDA's and ROCm's pinned memory.
_HOST_DEVICES = (1, 3, 11)

_MAX_TEXELS = 2**31
_LEVELS_PER_DISPATCH = 4

_SIGN = np.int32(-(2**31))
_MAGNITUDE = np.int32(2**31 - 1)
_INFINITY = np.int32(0x7F800000)
_NAN16 = np.uint16(0x7E00)
_NAN32 = np.int32(0x7FC00000)
# float32 has 13 bits of significand more than float16.
_EXTRA_BITS = 13


@overload
def build(
    depth: Any,
    *,
    bounds: Literal["furthest", "closest"] = ...,
    reversed_z: bool = ...,
    sizing: str = ...,
    rounding: str = ...,
    nan: str = ...,
    view_rect: Sequence[int] | None = ...,
    levels: int | None = ...,
    dtype: DTypeLike = ...,
    out: Sequence[NDArray[Any]] | None = ...,
) -> list[NDArray[Any]]: ...


@overload
def build(
    depth: Any,
    *,
    bounds: Literal["both"],
    reversed_z: bool = ...,
    sizing: str = ...,
    rounding: str = ...,
    nan: str = ...,
    view_rect: Sequence[int] | None = ...,
    levels: int | None = ...,
    dtype: DTypeLike = ...,
    out: Sequence[Sequence[NDArray[Any]]] | None = ...,
) -> Bounds: ...


def build(
    depth: Any,
    *,
    bounds: str = "furthest",
    reversed_z: bool = True,
    sizing: str = "pow2",
    rounding: str = "conservative",
    nan: str = "propagate",
    view_rect: Sequence[int] | None = None,
    levels: int | None = None,
    dtype: DTypeLike = np.float16,
    out: Any = None,
) -> Any:
    """Build the hierarchical Z buffer of depth frames with NumPy alone.

    Takes the arguments of :func:`hzb.build` less ``algorithm``, ``device`` and ``context``, and
    gives the same bits.

    Parameters
    ----------
    depth : array_like, shape (..., height, width)
        Depth in any unit; leading axes are independent frames. float16, float32 and integers of
        8 and 16 bits are taken exactly; float64 and integers of 32 and 64 bits through float32
        rounded to odd, which keeps their order and the later rounding to float16. Integers are not
        normalised. Never written.
    bounds : {"furthest", "closest", "both"}
        Which depth a texel holds: the one furthest from the viewer, the nearest one, or
        both in two chains.
    reversed_z : bool
        True where larger depth is nearer (near = 1, far = 0), False where it is further.
    sizing : {"pow2", "floor", "ceil"}
        How the sides of the levels follow from those of the frame.
    rounding : {"conservative", "nearest", "unreal"}
        How a level is stored: never nearer (furthest) or further (closest) than the true bound;
        to nearest even; or as Unreal Engine does, which needs `reversed_z`, ``sizing="pow2"`` and
        float16.
    nan : {"propagate", "ignore"}
        Whether one NaN makes its texel NaN, or only a footprint of nothing but NaN does.
    view_rect : sequence of four ints, optional
        ``(x0, y0, x1, y1)`` in pixels, the last two exclusive: the part of each frame to reduce.
    levels : int, optional
        How many levels to make, from level 0 on; all by default.
    dtype : {numpy.float16, numpy.float32}
        The type of the levels. float32 levels are exact.
    out : list or tuple of ndarray, optional
        Arrays to write the levels to; for ``bounds="both"`` a `Bounds` or a pair of such lists.
        C-contiguous, writeable, aligned, of the exact shape and type, overlapping neither `depth`
        nor each other.

    Returns
    -------
    list of ndarray, shape (..., h_k, w_k), or Bounds
        The levels, level 0 first; for ``bounds="both"`` a `Bounds` of two such lists; `out` itself
        where it was given.

    Raises
    ------
    TypeError
        If an argument is of a kind or type that is not accepted.
    ValueError
        If an argument has a value that is not accepted, or two of them clash. Nothing has been
        written to `out` in either case.
    """
    _check_choice("bounds", bounds, _BOUNDS)
    _check_choice("sizing", sizing, _SIZINGS)
    _check_choice("rounding", rounding, _ROUNDINGS)
    _check_choice("nan", nan, _NAN_RULES)
    if not isinstance(reversed_z, (bool, np.bool_)):
        raise ValueError(f"reversed_z: {reversed_z!r} is not accepted; pass True or False")
    reversed_z = bool(reversed_z)
    stored = _stored_type(dtype)
    if rounding == "unreal":
        _check_unreal(reversed_z, sizing, stored)

    source = _as_array(depth)
    _check_type(source.dtype, stored)
    x0, y0, x1, y1 = _rectangle("depth", source.shape, view_rect)
    shapes = _shapes(source.shape[:-2], y1 - y0, x1 - x0, sizing, levels)
    chains = ("furthest", "closest") if bounds == "both" else (bounds,)
    targets = None if out is None else _targets(out, len(chains), shapes, stored, source)

    frames = _float32_bits(source[..., y0:y1, x0:x1])
    results = [
        _chain(frames, shapes, sizing, rounding, nan, stored, (chain == "furthest") == reversed_z)
        for chain in chains
    ]
    if targets is not None:
        for target, level in zip(targets, itertools.chain(*results), strict=True):
            target.view(np.ndarray)[...] = level
        return out
    if bounds == "both":
        from hzb import Bounds

        return Bounds(*results)
    return results[0]


def level_shapes(
    shape: Sequence[int],
    *,
    sizing: str = "pow2",
    view_rect: Sequence[int] | None = None,
    levels: int | None = None,
    covered: bool = False,
) -> list[tuple[int, ...]]:
    """Give the shapes of the levels that :func:`build` makes of an array.

    Parameters
    ----------
    shape : sequence of ints, (..., height, width)
        The shape of the depth array, in pixels; leading axes may be 0.
    sizing, view_rect, levels
        As in :func:`build`.
    covered : bool
        Give instead the part of each level that stands for real pixels.

    Returns
    -------
    list of tuple of int
        One shape ``(..., h_k, w_k)`` a level, level 0 first.

    Raises
    ------
    TypeError
        If an argument is of a kind that is not accepted.
    ValueError
        If an argument has a value that is not accepted.
    """
    _check_choice("sizing", sizing, _SIZINGS)
    if not isinstance(covered, (bool, np.bool_)):
        raise ValueError(f"covered: {covered!r} is not accepted; pass True or False")
    sides = _integers("shape", shape)
    x0, y0, x1, y1 = _rectangle("shape", sides, view_rect)
    height, width = y1 - y0, x1 - x0
    shapes = _shapes(sides[:-2], height, width, sizing, levels)
    if not covered:
        return shapes
    return [
        (*batch, min(h, -(-height >> level + 1)), min(w, -(-width >> level + 1)))
        for level, (*batch, h, w) in enumerate(shapes)
    ]


# Arguments


def _check_choice(name: str, value: object, accepted: tuple[str, ...]) -> None:
    if not (isinstance(value, str) and value in accepted):
        listed = ", ".join(map(repr, accepted))
        raise ValueError(f"{name}: {value!r} is not accepted; choose one of {listed}")


def _stored_type(dtype: DTypeLike) -> np.dtype[Any]:
    remedy = "pass numpy.float16 or numpy.float32, in native byte order"
    try:
        stored = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise TypeError(f"dtype: {dtype!r} is not a data type; {remedy}") from error
    if stored not in _STORED:
        raise ValueError(f"dtype: {dtype!r} is not accepted; {remedy}")
    return stored


def _check_unreal(reversed_z: bool, sizing: str, stored: np.dtype[Any]) -> None:
    for clash, needed in (
        (None if reversed_z else "reversed_z=False", "reversed_z=True"),
        (None if sizing == "pow2" else f"sizing={sizing!r}", 'sizing="pow2"'),
        (None if stored == np.float16 else f"dtype={stored}", "dtype=numpy.float16"),
    ):
        if clash:
            raise ValueError(
                f"rounding: 'unreal' clashes with {clash}: it imitates Unreal Engine and needs "
                f"{needed}; change that or take rounding='conservative'"
            )


def _integer(name: str, value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}: {value!r} is a bool; pass an int")
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(
            f"{name}: {value!r} is not an integer; pass an int or an object with __index__"
        ) from error


def _integers(name: str, values: Any) -> tuple[int, ...]:
    try:
        # Sets, mappings and iterators have entries too, but none that can be asked for by place.
        if isinstance(values, Mapping) or not hasattr(type(values), "__getitem__"):
            raise TypeError
        entries = tuple(values)
    except TypeError as error:
        raise TypeError(f"{name}: {values!r} is not a sequence; pass a tuple of ints") from error
    return tuple(_integer(f"{name}[{i}]", entry) for i, entry in enumerate(entries))


def _rectangle(name: str, shape: tuple[int, ...], view_rect: Any) -> tuple[int, int, int, int]:
    """Check a shape called `name` and the rectangle in it; give the rectangle to reduce."""
    if len(shape) < 2:
        raise ValueError(
            f"{name}: shape {shape} has too few axes; at least two are needed, "
            "(..., height, width): reshape it"
        )
    height, width = shape[-2:]
    if min(height, width) < 1 or min(shape) < 0:
        raise ValueError(
            f"{name}: shape {shape} has a side that is not accepted; height and width must be at "
            "least 1 and leading axes at least 0: leave empty frames out"
        )
    x0, y0, x1, y1 = 0, 0, width, height
    if view_rect is not None:
        rectangle = _integers("view_rect", view_rect)
        if len(rectangle) != 4:
            raise ValueError(
                f"view_rect: {rectangle} has {len(rectangle)} entries; four are needed, "
                "(x0, y0, x1, y1)"
            )
        x0, y0, x1, y1 = rectangle
        if not (0 <= x0 < x1 <= width and 0 <= y0 < y1 <= height):
            raise ValueError(
                f"view_rect: {rectangle} does not lie in the frame; needed are "
                f"0 <= x0 < x1 <= {width} and 0 <= y0 < y1 <= {height} (x1 and y1 exclusive)"
            )
    if (x1 - x0) * (y1 - y0) > _MAX_TEXELS:
        raise ValueError(
            f"{name}: a frame of {x1 - x0} x {y1 - y0} texels is too large; at most 2**31 texels a "
            "frame are accepted: split it, or pass a smaller view_rect"
        )
    return x0, y0, x1, y1


def _targets(
    out: Any,
    chains: int,
    shapes: list[tuple[int, ...]],
    stored: np.dtype[Any],
    source: NDArray[Any],
) -> list[NDArray[Any]]:
    """Check `out` and give its arrays, all levels of the first chain before those of the second."""
    if chains == 1:
        lists = {"out": out}
    elif isinstance(out, (list, tuple)) and len(out) == 2:
        lists = {"out[0]": out[0], "out[1]": out[1]}
    else:
        raise TypeError(
            f"out: {type(out).__name__} is not accepted for bounds='both'; pass a Bounds or a pair "
            "of lists of ndarrays"
        )
    targets: dict[str, NDArray[Any]] = {}
    for name, arrays in lists.items():
        if not isinstance(arrays, (list, tuple)):
            raise TypeError(
                f"{name}: {type(arrays).__name__} is not accepted; pass a list or tuple of ndarrays"
            )
        for level, array in enumerate(arrays):
            if not isinstance(array, np.ndarray):
                raise TypeError(
                    f"{name}[{level}]: {type(array).__name__} is not accepted; pass an ndarray"
                )
        if len(arrays) != len(shapes):
            raise ValueError(
                f"{name}: {len(arrays)} arrays for {len(shapes)} levels; pass one for each shape "
                "of hzb.level_shapes"
            )
        for level, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
            label = f"{name}[{level}]"
            _check_target(label, array, shape, stored)
            targets[label] = array
    # May share memory: by extents, so that the answer is quick and does not depend on strides.
    for (label, array), (other, second) in itertools.combinations(
        [*targets.items(), ("depth", source)], 2
    ):
        if np.may_share_memory(array, second):
            raise ValueError(f"{label}: overlaps {other} in memory; pass an array of its own")
    return list(targets.values())


def _check_target(
    label: str, array: NDArray[Any], shape: tuple[int, ...], stored: np.dtype[Any]
) -> None:
    needed = f"pass numpy.empty({shape}, numpy.{stored})"
    if array.shape != shape:
        raise ValueError(f"{label}: shape {array.shape} is not the level's {shape}; {needed}")
    if array.dtype != stored:
        raise ValueError(f"{label}: dtype {array.dtype!r} is not the level's {stored!r}; {needed}")
    for flag, words in (
        (array.flags.c_contiguous, "C-contiguous"),
        (array.flags.aligned, "aligned"),
        (array.flags.writeable, "writeable"),
    ):
        if not flag:
            raise ValueError(f"{label}: the array is not {words}; {needed}")


# Input


def _as_array(depth: Any) -> NDArray[Any]:
    """Give an array-like as an ndarray; by a view of its memory where it offers that."""
    kind = type(depth).__name__
    if isinstance(depth, np.ma.MaskedArray):
        raise TypeError(
            "depth: masked arrays are not accepted; fill it with NaN first: "
            "depth.astype(numpy.float32).filled(numpy.nan)"
        )
    if isinstance(depth, np.ndarray):
        return np.asarray(depth)
    try:
        buffer = memoryview(depth)
    except (TypeError, BufferError):
        pass
    else:
        try:
            return np.asarray(buffer)
        except ValueError as error:
            raise TypeError(
                f"depth: items of a buffer of format {buffer.format!r} are not accepted; accepted "
                f"are {_ACCEPTED}: convert it, with astype(numpy.float32)"
            ) from error
    if hasattr(depth, "__dlpack__") and hasattr(depth, "__dlpack_device__"):
        device = depth.__dlpack_device__()
        if device[0] not in _HOST_DEVICES:
            raise TypeError(
                f"depth: {kind} is on DLPack device {tuple(map(int, device))}, not in host memory; "
                "copy it to the host first"
            )
        try:
            return np.from_dlpack(depth)
        except (BufferError, RuntimeError, TypeError) as error:
            if not hasattr(depth, "__array__"):
                raise TypeError(
                    f"depth: {kind} cannot be read through DLPack ({error}); accepted are "
                    f"{_ACCEPTED}: convert it, with astype(numpy.float32)"
                ) from error
    if hasattr(depth, "__array__"):
        try:
            return np.asarray(depth)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise TypeError(
                f"depth: {kind} does not convert to an ndarray ({error}); copy it to the host, or "
                "convert it, with astype(numpy.float32)"
            ) from error
    try:
        return np.asarray(depth)
    except ValueError as error:
        raise ValueError(
            f"depth: {kind} is no regular array ({error}); nested sequences must have rows of "
            "equal length"
        ) from error


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    # Not every other type of NumPy's has a byte order to change.
    return dtype.newbyteorder("=") if dtype.kind in "fiu" else dtype


def _check_type(dtype: np.dtype[Any], stored: np.dtype[Any]) -> None:
    native = _native(dtype)
    if native in _EXACT:
        return
    if native not in _ROUNDED_TO_ODD:
        raise TypeError(
            f"depth: dtype {dtype} is not accepted; accepted are {_ACCEPTED}: convert it, with "
            "depth.astype(numpy.float32)"
        )
    if stored == np.float32:
        raise TypeError(
            f"depth: dtype {dtype} does not fit float32 levels, which are exact; choose the "
            "rounding yourself, with depth.astype(numpy.float32), or take dtype=numpy.float16"
        )


def _float32_bits(frames: NDArray[Any]) -> NDArray[np.int32]:
    """Give the float32 patterns of an accepted array, exact or rounded to odd, in any layout."""
    native = frames.astype(_native(frames.dtype), copy=False)
    if native.dtype in _ROUNDED_TO_ODD:
        return _round_to_odd(_as_double(native))
    # A signalling float16 NaN may be reported here; it stays a NaN, which is all that counts.
    with np.errstate(invalid="ignore"):
        return native.astype(np.float32, copy=False).view(np.int32)


def _as_double(frames: NDArray[Any]) -> NDArray[np.float64]:
    """Give float64, of 64-bit integers rounded to odd where they are beyond 2**53."""
    if frames.dtype.kind == "f" or frames.dtype.itemsize < 8:
        return frames.astype(np.float64, copy=False)
    # The absolute value of -2**63 wraps to itself, which is 2**63 read without sign.
    magnitude = np.abs(frames).view(np.uint64)
    low = magnitude & np.uint64(0x7FF)
    odd = (magnitude - low) | (low != 0) * np.uint64(0x800)
    unsigned = np.where(magnitude < np.uint64(2**53), magnitude, odd).astype(np.float64)
    double: NDArray[np.float64] = np.where(frames < 0, -unsigned, unsigned)
    return double


def _round_to_odd(double: NDArray[np.float64]) -> NDArray[np.int32]:
    """Truncate float64 to float32 patterns and set the last bit where anything was lost."""
    bits = double.view(np.int64)
    magnitude = bits & (2**63 - 1)
    exponent = magnitude >> 52
    # Rebias normal results; below them keep the significand with its leading one and shift it on.
    scaled = magnitude - (np.clip(exponent - 1, 0, 896) << 52)
    shift = np.clip(926 - exponent, 29, 63)
    kept = scaled >> shift
    rounded = np.minimum(kept | ((kept << shift) != scaled), _INFINITY - 1)
    rounded[magnitude == 0x7FF << 52] = _INFINITY
    rounded[magnitude > 0x7FF << 52] = _NAN32
    pattern: NDArray[np.int32] = rounded.astype(np.int32)
    pattern[bits < 0] |= _SIGN
    return pattern


# Levels


def _shapes(
    batch: tuple[int, ...], height: int, width: int, sizing: str, levels: Any
) -> list[tuple[int, ...]]:
    sides = [(_first_side(height, sizing), _first_side(width, sizing))]
    while sides[-1] != (1, 1):
        h, w = sides[-1]
        sides.append((_next_side(h, sizing), _next_side(w, sizing)))
    if levels is not None:
        count = _integer("levels", levels)
        if not 1 <= count <= len(sides):
            raise ValueError(
                f"levels: {count} is not accepted; a frame of {width} x {height} has 1 to "
                f"{len(sides)} with sizing={sizing!r}"
            )
        del sides[count:]
    return [(*batch, h, w) for h, w in sides]


def _first_side(side: int, sizing: str) -> int:
    if sizing == "pow2":
        return max(1, (1 << (side - 1).bit_length()) // 2)
    return _next_side(side, sizing)


def _next_side(side: int, sizing: str) -> int:
    return (side + 1) // 2 if sizing == "ceil" else max(1, side // 2)


def _chain(
    frames: NDArray[np.int32],
    shapes: list[tuple[int, ...]],
    sizing: str,
    rounding: str,
    nan: str,
    stored: np.dtype[Any],
    lowest: bool,
) -> list[NDArray[Any]]:
    """Reduce float32 patterns to the stored levels of the min (`lowest`) or the max chain."""
    keys = _keys(frames, nan, lowest)
    chain = []
    for level, shape in enumerate(shapes):
        # Rows first: whole rows are quick to gather, and that halves what is left to do.
        keys = _reduce(keys, -2, shape[-2], sizing)
        keys = _reduce(keys, -1, shape[-1], sizing)
        chain.append(_store(keys, rounding, stored, lowest))
        if rounding == "unreal" and (level + 1) % _LEVELS_PER_DISPATCH == 0:
            keys = _keys(_float32_bits(chain[-1]), nan, lowest)
    return chain


def _keys(bits: NDArray[np.int32], nan: str, lowest: bool) -> NDArray[np.int32]:
    """Turn float32 patterns into keys of which the smallest one is wanted: negated for a max."""
    magnitude = bits & _MAGNITUDE
    keys = np.where((bits < 0) == lowest, -magnitude, magnitude)
    keys[magnitude > _INFINITY] = -_MAGNITUDE if nan == "propagate" else _MAGNITUDE
    return keys


def _reduce(keys: NDArray[np.int32], axis: int, side: int, sizing: str) -> NDArray[np.int32]:
    """Take the minimum over the footprints along one axis, which gets `side` texels."""
    source = keys.shape[axis]
    first = 2 * np.arange(side)
    if sizing == "pow2":
        first = np.minimum(first, max(source - 2, 0))
    taps = 3 if sizing == "floor" and source % 2 and source > 1 else 2
    return functools.reduce(
        np.minimum, (keys.take(first + tap, axis=axis, mode="clip") for tap in range(taps))
    )


def _store(
    keys: NDArray[np.int32], rounding: str, stored: np.dtype[Any], lowest: bool
) -> NDArray[Any]:
    """Round the keys of a level to its stored type."""
    is_nan = np.abs(keys) > _INFINITY
    if not lowest:
        keys = -keys
    if stored == np.float32:
        bits = np.where(keys < 0, _SIGN - keys, keys)
        bits[is_nan] = _NAN32
        return bits.view(np.float32)
    halves, below_of, exact, ties = _half_tables()
    below = below_of.take((keys >> _EXTRA_BITS) + len(below_of) // 2, mode="clip")
    upward = keys > exact[below]
    if rounding == "nearest":
        step = keys > ties[below]
    elif rounding == "conservative":
        step = np.zeros_like(upward) if lowest else upward
    elif lowest:
        step = upward & (keys < 0)
    else:
        step = upward | (keys >= 0)
    patterns = halves.take(below + step, mode="clip")
    patterns[is_nan] = _NAN16
    return patterns.view(np.float16)


@functools.cache
def _half_tables() -> tuple[
    NDArray[np.uint16], NDArray[np.uint16], NDArray[np.int32], NDArray[np.int32]
]:
    """Give all float16 numbers in order, and how keys find their place among them.

    Returns
    -------
    halves : ndarray of uint16
        The patterns from -inf to +inf; one zero.
    below_of : ndarray of uint16
        Indexed by a key less its `_EXTRA_BITS` low bits, counted from -inf: where in `halves` the
        greatest number not above it is. The low bits never matter to that.
    exact : ndarray of int32
        The keys of `halves`.
    ties : ndarray of int32
        For each of `halves` the last key above it that rounds to it and not to the next one.
    """
    halves = np.r_[0xFC00:0x8000:-1, 0x0000:0x7C01].astype(np.uint16)
    values = halves.view(np.float16).astype(np.float32)
    exact = _keys(values.view(np.int32), "propagate", True)
    buckets = np.arange(exact[0] >> _EXTRA_BITS, (exact[-1] >> _EXTRA_BITS) + 1, dtype=np.int32)
    below_of = (np.searchsorted(exact, buckets << _EXTRA_BITS, "right") - 1).astype(np.uint16)
    # Nearest takes infinity for the number that would follow 65504.
    finite = np.clip(values, np.float32(-65536), np.float32(65536))
    middles = _keys(((finite[:-1] + finite[1:]) / 2).view(np.int32), "propagate", True)
    ties = np.r_[middles - (halves[:-1] & 1).astype(np.int32), _MAGNITUDE].astype(np.int32)
    return halves, below_of, exact, ties
