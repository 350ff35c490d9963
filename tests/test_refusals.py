"""Every refusal: its exception, what its message names, and that nothing has changed by it."""

from __future__ import annotations

import array
import ctypes
import re

import numpy as np
import pytest
from bits import assert_same_bits

import hzb
import hzb.reference
from hzb import _core

FRAME = np.array([[3, 1, 2], [5, 4, 6]], np.float32)
LEVELS = hzb.reference.build(FRAME)


@pytest.fixture
def refuse(device):
    """Give a check that a build is refused with this message and that the next one is right."""

    def refuse(error, words, depth, **options):
        with pytest.raises(error) as caught:
            hzb.build(depth, **{"device": device, **options})
        assert type(caught.value) is error
        message = str(caught.value)
        assert re.search(words, message), message
        assert_same_bits(hzb.build(FRAME, device=device), LEVELS)

    return refuse


# Input types


class Exporter:
    """An object with DLPack that is on a device, or that does not export."""

    def __init__(self, place, capsule=None):
        self._place = place
        self._capsule = capsule

    def __dlpack_device__(self):
        return self._place

    def __dlpack__(self, **options):
        if self._capsule is None:
            raise BufferError("cannot export tensors that require gradient")
        return self._capsule


class ConvertingExporter(Exporter):
    def __array__(self, dtype=None, copy=None):
        return FRAME


class FarArray:
    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


class CudaArray:
    @property
    def __cuda_array_interface__(self):
        return {"shape": (2, 3), "typestr": "<f4", "data": (0, False), "version": 3}


class MaskedArray:
    def __array__(self, dtype=None, copy=None):
        return np.ma.masked_equal(FRAME, 1)


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


def bfloat16_exporter():
    """Give an object that exports bfloat16, which NumPy lacks, through DLPack."""
    data, shape = (ctypes.c_uint16 * 6)(), (ctypes.c_int64 * 2)(2, 3)
    tensor = DLTensor(
        data=ctypes.addressof(data),
        device=(1, 0),
        ndim=2,
        code=4,  # kDLBfloat
        bits=16,
        lanes=1,
        shape=ctypes.addressof(shape),
    )
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    exporter = Exporter((1, 0), new(ctypes.addressof(tensor), b"dltensor", None))
    exporter.memory = data, shape, tensor
    return exporter


def user_type():
    """Give an array of a type that is registered with NumPy from outside, as bfloat16 is."""
    try:
        from numpy._core._rational_tests import rational
    except ImportError:
        from numpy.core._rational_tests import rational
    return np.array([[rational(1, 2), rational(1, 3)]])


ASTYPE = r"accepted are float16, float32, float64 and integers.*astype\(numpy\.float32\)"
TO_HOST = "copy it to the host"

REFUSED_TYPES = {
    "bool": (FRAME > 2, f"^depth: dtype bool is not accepted; {ASTYPE}"),
    "complex64": (FRAME.astype("F"), f"^depth: dtype complex64 .*{ASTYPE}"),
    "complex128": (FRAME.astype("D"), f"^depth: dtype complex128 .*{ASTYPE}"),
    "clongdouble": (FRAME.astype("G"), f"^depth: dtype (complex256|clongdouble) .*{ASTYPE}"),
    "longdouble": (FRAME.astype("g"), f"^depth: dtype (float128|longdouble) .*{ASTYPE}"),
    "object": (FRAME.astype(object), f"^depth: dtype object .*{ASTYPE}"),
    "str": (FRAME.astype(str), f"^depth: dtype <U32 .*{ASTYPE}"),
    "bytes": (FRAME.astype(bytes), rf"^depth: dtype \|?S\d+ .*{ASTYPE}"),
    "datetime": (FRAME.astype("M8[s]"), rf"^depth: dtype datetime64\[s\] .*{ASTYPE}"),
    "timedelta": (FRAME.astype("m8[s]"), rf"^depth: dtype timedelta64\[s\] .*{ASTYPE}"),
    "structured": (np.zeros((2, 3), "f4,f4"), f"^depth: dtype .*'f0'.*{ASTYPE}"),
    "void": (np.zeros((2, 3), "V2"), rf"^depth: dtype \|?V2 .*{ASTYPE}"),
    "user type": (user_type(), f"^depth: dtype rational .*{ASTYPE}"),
    "bfloat16": (bfloat16_exporter(), f"^depth: Exporter cannot be read through DLPack.*{ASTYPE}"),
    "str object": ("depth.npy", f"^depth: dtype <U9 .*{ASTYPE}"),
    "None": (None, f"^depth: dtype object .*{ASTYPE}"),
    "set": ({1.0, 2.0}, f"^depth: dtype object .*{ASTYPE}"),
    "nested bool": ([[True, False]], f"^depth: dtype bool .*{ASTYPE}"),
    "nested complex": ([[1j, 2]], f"^depth: dtype complex128 .*{ASTYPE}"),
    "pointers": ((ctypes.c_void_p * 3 * 2)(), r"^depth: .*astype\(numpy\.float32\)"),
    "masked": (np.ma.masked_equal(FRAME, 1), r"^depth: masked .*fill it with NaN first.*\.filled"),
    "unmasked": (np.ma.array(FRAME), r"^depth: masked .*fill it with NaN first.*\.filled"),
    "masked array-like": (MaskedArray(), r"^depth: masked .*fill it with NaN first.*\.filled"),
    "CUDA DLPack": (Exporter((2, 1)), rf"^depth: Exporter is on .* \(2, 1\), .*{TO_HOST}"),
    "ROCm DLPack": (ConvertingExporter((10, 0)), rf"^depth: .* on .* \(10, 0\), .*{TO_HOST}"),
    "no DLPack device": (Exporter("?"), f"^depth: Exporter does not tell .*{TO_HOST}"),
    "unwilling DLPack": (Exporter((1, 0)), "^depth: .*require gradient.*astype"),
    "far __array__": (FarArray(), f"^depth: FarArray does not convert .*cuda:0.*{TO_HOST}"),
    "CUDA interface": (CudaArray(), f"^depth: CudaArray is in the memory of a CUDA .*{TO_HOST}"),
}
if hasattr(np, "dtypes") and hasattr(np.dtypes, "StringDType"):
    REFUSED_TYPES["StringDType"] = (
        np.array([["a", "b"]], np.dtypes.StringDType()),
        rf"^depth: dtype StringDType\(\) .*{ASTYPE}",
    )


@pytest.mark.parametrize("kind", REFUSED_TYPES)
def test_types(refuse, kind):
    depth, words = REFUSED_TYPES[kind]
    refuse(TypeError, words, depth)


@pytest.mark.parametrize(
    "dtype", ["float64", ">f8", "int32", "uint32", ">u4", "int64", "uint64", "long", "longlong"]
)
def test_inexact_types_for_exact_levels(refuse, dtype):
    words = (
        rf"^depth: dtype {np.dtype(dtype)} does not fit float32 .*depth\.astype\(numpy\.float32\)"
    )
    refuse(TypeError, words, FRAME.astype(dtype), dtype=np.float32)


def test_cause_is_kept(device):
    with pytest.raises(TypeError) as caught:
        hzb.build(FarArray(), device=device)
    assert str(caught.value.__cause__) == "can't convert cuda:0 device type tensor to numpy"


# Input shapes

REFUSED_SHAPES = {
    "row": (FRAME[0], r"^depth: shape \(3,\) has too few axes; at least two .*reshape"),
    "number": (np.float32(1), r"^depth: shape \(\) has too few axes"),
    "float": (1.5, r"^depth: shape \(\) has too few axes"),
    "empty list": ([], r"^depth: shape \(0,\) has too few axes"),
    "bytes": (b"12345678", r"^depth: shape \(8,\) has too few axes"),
    "array.array": (array.array("f", [1, 2]), r"^depth: shape \(2,\) has too few axes"),
    "no rows": (FRAME[:0], r"^depth: shape \(0, 3\) .*height and width must be at least 1"),
    "no columns": (FRAME[:, :0], r"^depth: shape \(2, 0\) .*must be at least 1.*leave"),
    "neither": (np.zeros((0, 0, 0)), r"^depth: shape \(0, 0, 0\) .*must be at least 1"),
    "too large": (
        np.broadcast_to(np.int8(0), (2**16, 2**15 + 1)),
        r"^depth .*65536 x 32769 .*2\^31.*view_rect",
    ),
}


# Before that NumPy made an array of lists of it.
if np.lib.NumpyVersion(np.__version__) >= "1.24.0":
    REFUSED_SHAPES["ragged"] = (
        [[1.0, 2.0], [3.0]],
        r"^depth: list is no regular array .*rows of equal length",
    )


@pytest.mark.parametrize("kind", REFUSED_SHAPES)
def test_shapes(refuse, kind):
    depth, words = REFUSED_SHAPES[kind]
    refuse(ValueError, words, depth)


def test_more_than_there_is_memory_for(refuse):
    # No memory behind it, and levels of 2**59 bytes.
    depth = np.broadcast_to(np.float32(0), (2**58, 2, 2))
    refuse(hzb.OutOfMemoryError, "^depth.* bytes", depth)
    with pytest.raises(MemoryError):
        hzb.build(depth)


# Options

WORDS = {
    "bounds": '"furthest", "closest", "both"',
    "sizing": '"pow2", "floor", "ceil"',
    "rounding": '"conservative", "nearest", "unreal"',
    "nan": '"propagate", "ignore"',
    "algorithm": '"auto", "per_level", "batched", "two_pass", "single_pass"',
}


@pytest.mark.parametrize("option", WORDS)
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("Both", "Both"),
        ("", '""'),
        (None, "None of type NoneType"),
        (3, "3 of type int"),
        (b"both", "b'both' of type bytes"),
        ("pow2\0", r"'pow2\\x00' of type str"),
        ("\ud800", r"'\\ud800' of type str"),
        ("é" * 3000, "é"),
    ],
    ids=["case", "empty", "None", "int", "bytes", "NUL", "surrogate", "long"],
)
def test_words(refuse, option, value, shown):
    refuse(
        ValueError, f"^{option} must be one of {WORDS[option]}.*{shown}", FRAME, **{option: value}
    )


REFUSED_OPTIONS = [
    ({"reversed_z": "no"}, ValueError, "^reversed_z: 'no' is not accepted; pass True or False"),
    ({"reversed_z": 1}, ValueError, "^reversed_z: 1 is not accepted; pass True or False"),
    ({"reversed_z": None}, ValueError, "^reversed_z: None is not accepted"),
    (
        {"dtype": np.float64},
        ValueError,
        r"^dtype: .*float64.* pass numpy\.float16 or numpy\.float32",
    ),
    ({"dtype": "int16"}, ValueError, "^dtype: 'int16' is not accepted"),
    ({"dtype": None}, ValueError, "^dtype: None is not accepted"),
    ({"dtype": ">f2"}, ValueError, "^dtype: '>f2' is not accepted; .*in native byte order"),
    ({"dtype": ">f4"}, ValueError, "^dtype: '>f4' is not accepted; .*in native byte order"),
    ({"dtype": "half-ish"}, TypeError, "^dtype: 'half-ish' is not a data type; pass numpy"),
    ({"dtype": 16}, TypeError, "^dtype: 16 is not a data type; pass numpy"),
    ({"levels": 0}, ValueError, "^levels must be from 1 to 2 .*not 0"),
    ({"levels": 3}, ValueError, "^levels must be from 1 to 2 .*not 3"),
    ({"levels": -1}, ValueError, "^levels must be from 1 to 2 .*not -1"),
    ({"levels": 2**70}, ValueError, f"^levels: {2**70} is not accepted"),
    ({"levels": True}, TypeError, "^levels: True is a bool; pass an int"),
    ({"levels": np.True_}, TypeError, "^levels: .*True.* is a bool; pass an int"),
    ({"levels": 2.0}, TypeError, "^levels: 2.0 is not an integer; .*__index__"),
    ({"levels": "2"}, TypeError, "^levels: '2' is not an integer"),
    ({"view_rect": (0, 0, 4, 2)}, ValueError, r"^view_rect .*x1 <= 3 .*\(0, 0, 4, 2\)"),
    ({"view_rect": (0, 0, 3, 3)}, ValueError, r"^view_rect .*y1 <= 2 .*\(0, 0, 3, 3\)"),
    ({"view_rect": (-1, 0, 3, 2)}, ValueError, r"^view_rect .*0 <= x0 .*\(-1, 0, 3, 2\)"),
    ({"view_rect": (0, -1, 3, 2)}, ValueError, r"^view_rect .*0 <= y0 .*\(0, -1, 3, 2\)"),
    ({"view_rect": (1, 0, 1, 2)}, ValueError, r"^view_rect .*x0 < x1 .*\(1, 0, 1, 2\)"),
    ({"view_rect": (0, 2, 1, 1)}, ValueError, r"^view_rect .*y0 < y1 .*\(0, 2, 1, 1\)"),
    ({"view_rect": (0, 0, 2**70, 1)}, ValueError, rf"^view_rect\[2\]: {2**70} is not accepted"),
    ({"view_rect": (0, 0, 3)}, ValueError, r"^view_rect: \(0, 0, 3\) has 3 entries; four"),
    ({"view_rect": (0, 0, 3, 2, 1)}, ValueError, "^view_rect: .* has 5 entries; four"),
    ({"view_rect": ()}, ValueError, r"^view_rect: \(\) has 0 entries; four .*\(x0, y0, x1, y1\)"),
    ({"view_rect": (0, 0, 3, 2.0)}, TypeError, r"^view_rect\[3\]: 2.0 is not an integer"),
    ({"view_rect": (0, False, 3, 2)}, TypeError, r"^view_rect\[1\]: False is a bool"),
    ({"view_rect": "0032"}, TypeError, r"^view_rect\[0\]: '0' is not an integer"),
    ({"view_rect": 4}, TypeError, "^view_rect: 4 is not a sequence; pass a tuple of ints"),
    ({"view_rect": {0, 1, 2, 3}}, TypeError, r"^view_rect: \{.*\} is not a sequence"),
    ({"view_rect": {0: 0}}, TypeError, r"^view_rect: \{0: 0\} is not a sequence"),
    ({"view_rect": np.array(4)}, TypeError, r"^view_rect: array\(4\) is not a sequence"),
    (
        {"rounding": "unreal", "reversed_z": False},
        ValueError,
        '^rounding="unreal" .*reversed_z=True, not reversed_z=False',
    ),
    (
        {"rounding": "unreal", "sizing": "floor"},
        ValueError,
        '^rounding="unreal" .*sizing="pow2", not',
    ),
    (
        {"rounding": "unreal", "sizing": "ceil"},
        ValueError,
        '^rounding="unreal" .*sizing="pow2", not',
    ),
    (
        {"rounding": "unreal", "dtype": "f4"},
        ValueError,
        '^rounding="unreal" .*float16, not .*float32',
    ),
]


@pytest.mark.parametrize(("options", "error", "words"), REFUSED_OPTIONS, ids=repr)
def test_options(refuse, options, error, words):
    refuse(error, words, FRAME, **options)


@pytest.mark.vulkan
def test_unreal_is_what_its_dispatches_are(refuse):
    words = '^rounding="unreal" .*algorithm="auto" or "batched", not "per_level"'
    refuse(ValueError, words, FRAME, rounding="unreal", algorithm="per_level")


def test_exceptions_of_arguments_pass(device):
    class Broken:
        def __index__(self):
            raise ZeroDivisionError("of the argument's own")

    for options in ({"levels": Broken()}, {"view_rect": [0, 0, 1, Broken()]}):
        with pytest.raises(ZeroDivisionError, match="of the argument's own"):
            hzb.build(FRAME, device=device, **options)
    assert_same_bits(hzb.build(FRAME, device=device), LEVELS)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hzb.build(), r"^build\(\) missing 1 required positional argument: 'depth'"),
        (lambda: hzb.build(FRAME, "both"), r"^build\(\) takes 1 positional argument but 2 were"),
        (lambda: hzb.build(FRAME, depth=FRAME), r"^build\(\) got multiple values .*'depth'"),
        (lambda: hzb.build(FRAME, bound="both"), r"^build\(\) got an unexpected .*'bound'"),
        (lambda: hzb.build(FRAME, shape=1), r"^build\(\) got an unexpected .*'shape'"),
        (lambda: hzb.level_shapes(), r"^level_shapes\(\) missing 1 .*'shape'"),
        (lambda: hzb.level_shapes((5, 5), nan="ignore"), r"^level_shapes\(\) got an unexpected"),
        (lambda: hzb.devices(1), r"devices\(\) takes no arguments"),
        (lambda: hzb.Context(1, 2), r"Context\(\) takes at most 1 argument"),
        (lambda: hzb.Context(driver=1), "driver"),
    ],
)
def test_calls(call, words):
    with pytest.raises(TypeError, match=words):
        call()


# out=


class Room:
    """Arrays for the levels of FRAME, filled so that a write shows."""

    def __init__(self):
        self.level = np.full((1, 2), 7, np.float16)
        self.tail = np.full((1, 1), 7, np.float16)
        self.other_level = self.level.copy()
        self.other_tail = self.tail.copy()

    def is_untouched(self):
        arrays = (self.level, self.tail, self.other_level, self.other_tail)
        return all((array == 7).all() for array in arrays)

    def read_only(self):
        view = self.level[:]
        view.flags.writeable = False
        return view

    def unaligned(self):
        return np.zeros(5, np.uint8)[1:].view(np.float16).reshape(1, 2)


EMPTY = r"pass numpy\.empty\(\(1, 2\), numpy\.float16\)"

REFUSED_OUT = {
    "array": (
        lambda room: np.zeros((2, 1, 1), np.float16),
        TypeError,
        r"^out: numpy\.ndarray is not accepted; pass a list or tuple of ndarrays",
    ),
    "iterator": (
        lambda room: iter([room.level, room.tail]),
        TypeError,
        "^out: list_iterator is not",
    ),
    "dict": (lambda room: {0: room.level}, TypeError, "^out: dict is not accepted; pass a list or"),
    "number": (lambda room: 3, TypeError, "^out: int is not accepted"),
    "list in it": (
        lambda room: [room.level, [[0]]],
        TypeError,
        r"^out\[1\]: list is not accepted; pass an ndarray",
    ),
    "None in it": (
        lambda room: [room.level, None],
        TypeError,
        r"^out\[1\]: NoneType is not accepted",
    ),
    "Bounds": (
        lambda room: hzb.Bounds([room.level, room.tail], [room.other_level, room.other_tail]),
        TypeError,
        r"^out\[0\]: list is not accepted",
    ),
    "too few": (
        lambda room: [room.level],
        ValueError,
        r"^out: 1 arrays for 2 levels; .*hzb\.level_shapes",
    ),
    "too many": (
        lambda room: (room.level, room.tail, room.other_tail),
        ValueError,
        "^out: 3 arrays for 2 levels",
    ),
    "axes": (
        lambda room: [room.level[0], room.tail],
        ValueError,
        rf"^out\[0\]: shape \(2,\) is not the level's; {EMPTY}",
    ),
    "shape": (
        lambda room: [room.level, room.level.T],
        ValueError,
        r"^out\[1\]: shape \(2, 1\) is not the level's; .*\(\(1, 1\), numpy\.float16\)",
    ),
    "dtype": (
        lambda room: [room.level.astype(np.float32), room.tail],
        ValueError,
        rf"^out\[0\]: dtype\('float32'\) is not the level's; {EMPTY}",
    ),
    "same size": (
        lambda room: [room.level.view(np.int16), room.tail],
        ValueError,
        rf"^out\[0\]: dtype\('int16'\) is not the level's; {EMPTY}",
    ),
    "byte order": (
        lambda room: [room.level.view(room.level.dtype.newbyteorder()), room.tail],
        ValueError,
        rf"^out\[0\]: dtype\('.f2'\) is not the level's; {EMPTY}",
    ),
    "strided": (
        lambda room: [np.zeros((1, 4), np.float16)[:, ::2], room.tail],
        ValueError,
        rf"^out\[0\]: the array is not C-contiguous; {EMPTY}",
    ),
    "unaligned": (
        lambda room: [room.unaligned(), room.tail],
        ValueError,
        rf"^out\[0\]: the array is not aligned; {EMPTY}",
    ),
    "read-only": (
        lambda room: [room.read_only(), room.tail],
        ValueError,
        rf"^out\[0\]: the array is not writeable; {EMPTY}",
    ),
    "read-only last": (
        lambda room: [room.level, np.broadcast_to(np.float16(7), (1, 1))],
        ValueError,
        r"^out\[1\]: the array is not writeable",
    ),
    "overlap": (
        lambda room: [room.level, room.level[:, 1:]],
        ValueError,
        r"^out\[0\]: overlaps out\[1\] in memory; pass an array of its own",
    ),
}


@pytest.mark.parametrize("kind", REFUSED_OUT)
def test_out(refuse, kind):
    out, error, words = REFUSED_OUT[kind]
    room = Room()
    refuse(error, words, FRAME, out=out(room))
    assert room.is_untouched()


REFUSED_PAIRS = {
    "one chain": (
        lambda room: [room.level, room.tail],
        TypeError,
        r"^out\[0\]: numpy\.ndarray is not accepted; pass a list or tuple of ndarrays",
    ),
    "array": (
        lambda room: np.zeros((2, 1, 1), np.float16),
        TypeError,
        r"^out: numpy\.ndarray is not accepted for bounds='both'; pass a Bounds or a pair",
    ),
    "single": (
        lambda room: [[room.level, room.tail]],
        TypeError,
        "^out: list .*a Bounds or a pair",
    ),
    "triple": (lambda room: ([], [], []), TypeError, "^out: tuple .*a Bounds or a pair"),
    "half": (
        lambda room: ([room.level, room.tail], None),
        TypeError,
        r"^out\[1\]: NoneType is not accepted; pass a list or tuple",
    ),
    "too few": (
        lambda room: ([room.level, room.tail], [room.other_level]),
        ValueError,
        r"^out\[1\]: 1 arrays for 2 levels",
    ),
    "dtype": (
        lambda room: ([room.level, room.tail], [room.other_level, room.other_tail.astype(float)]),
        ValueError,
        r"^out\[1\]\[1\]: dtype\('float64'\) is not the level's",
    ),
    "twice": (
        lambda room: [[room.level, room.tail]] * 2,
        ValueError,
        r"^out\[0\]\[0\]: overlaps out\[1\]\[0\] in memory",
    ),
}


@pytest.mark.parametrize("kind", REFUSED_PAIRS)
def test_out_for_both_bounds(refuse, kind):
    out, error, words = REFUSED_PAIRS[kind]
    room = Room()
    refuse(error, words, FRAME, bounds="both", out=out(room))
    assert room.is_untouched()


def test_out_that_overlaps_the_input(refuse):
    tail = np.zeros((1, 1), np.float16)
    depth = np.ones((4, 4), np.float16)
    words = r"^out\[0\]: overlaps depth in memory; pass an array of its own"
    refuse(ValueError, words, depth, out=[depth.reshape(-1)[12:].reshape(2, 2), tail])
    # By extents: what lies between the columns that are read counts, and so do strides below 0.
    parts = depth.reshape(-1)[1:2].reshape(1, 1)
    refuse(ValueError, words, depth[:1, ::3], out=[parts])
    refuse(ValueError, words, depth[:1, ::-3], out=[parts])
    # So does what a view rectangle leaves out.
    refuse(ValueError, words, depth, view_rect=(0, 0, 1, 1), out=[depth[3:, 3:]])
    assert (depth == 1).all()
    assert (tail == 0).all()


def test_out_beside_the_input(device):
    room = np.ones((3, 4), np.float16)
    depth, out = room[:2], [room[2, :2].reshape(1, 2), room[2, 2:3].reshape(1, 1)]
    assert hzb.build(depth, out=out, device=device) is out
    assert (room == 1).all()
    empty = np.ones((0, 2, 4), np.float16)
    out = [np.empty((0, 1, 2), np.float16), np.empty((0, 1, 1), np.float16)]
    assert hzb.build(empty, out=out, device=device) is out


# Devices and contexts

REFUSED_DEVICES = [
    ("no such device", ValueError, "^device: no device matches 'no such device'.*there is 0: "),
    ("", ValueError, "^device: no device matches ''"),
    ("999", ValueError, "^device: no device matches '999'"),
    (999, ValueError, "^device: no device matches '999'"),
    (2**70, ValueError, f"^device: no device matches '{2**70}'"),
    (-1, ValueError, r"^device: -1 cannot name a device; hzb\.devices\(\) lists them"),
    ("a\0b", ValueError, r"^device: 'a\\x00b' cannot name a device"),
    ("\ud800", ValueError, r"^device: '\\ud800' cannot name a device"),
    (True, TypeError, "^device: True is not accepted; pass a str, an int or a record"),
    (1.0, TypeError, "^device: 1.0 is not accepted; pass a str, an int or a record"),
    (b"llvmpipe", TypeError, "^device: b'llvmpipe' is not accepted"),
]


@pytest.mark.parametrize(("spec", "error", "words"), REFUSED_DEVICES, ids=repr)
def test_devices(refuse, spec, error, words):
    refuse(error, words, FRAME, device=spec)
    with pytest.raises(error, match=words):
        hzb.Context(spec)


def test_contexts(refuse, device):
    refuse(
        TypeError,
        "^context: str is not accepted; pass an hzb.Context",
        FRAME,
        device=None,
        context="llvmpipe",
    )
    with hzb.Context(device) as context:
        words = "^device: .* is given with a context, which has its own; pass one of the two"
        refuse(ValueError, words, FRAME, context=context)
        with pytest.raises(TypeError, match="unexpected keyword argument 'device'"):
            context.build(FRAME, device=device)
        with pytest.raises(TypeError, match="unexpected keyword argument 'context'"):
            context.build(FRAME, context=context)
        assert_same_bits(context.build(FRAME), LEVELS)
    for use in (
        lambda: context.build(FRAME),
        lambda: context.build(FRAME[:0].reshape(0, 2, 3)),
        lambda: hzb.build(FRAME, context=context),
        context.__enter__,
    ):
        with pytest.raises(hzb.Error, match=r"context .*is closed: make another") as caught:
            use()
        assert caught.value.result is caught.value.code is caught.value.function is None


# level_shapes


@pytest.mark.parametrize(
    ("shape", "options", "error", "words"),
    [
        (5, {}, TypeError, "^shape: 5 is not a sequence; pass a tuple of ints"),
        ({5, 6}, {}, TypeError, "^shape: .* is not a sequence"),
        ((), {}, ValueError, r"^shape: shape \(\) has too few axes"),
        ((5,), {}, ValueError, r"^shape: shape \(5,\) has too few axes; at least two"),
        ((5, 0), {}, ValueError, r"^shape: shape \(5, 0\) .*at least 1"),
        ((0, 5), {}, ValueError, r"^shape: shape \(0, 5\) .*at least 1"),
        ((5, -5), {}, ValueError, r"^shape: shape \(5, -5\) .*at least 1"),
        ((-1, 5, 5), {}, ValueError, r"^shape: shape \(-1, 5, 5\) .*leading axes at least 0"),
        ((5, 5.0), {}, TypeError, r"^shape\[1\]: 5.0 is not an integer"),
        ((5, True), {}, TypeError, r"^shape\[1\]: True is a bool"),
        ((5, 2**64), {}, ValueError, rf"^shape\[1\]: {2**64} is not accepted"),
        ((1,) * 65, {}, ValueError, "^shape: 65 axes are not accepted; .* at most 64"),
        ((2**16, 2**15 + 1), {}, ValueError, r"65536 x 32769 .*2\^31"),
        ((5, 5), {"sizing": "up"}, ValueError, '^sizing must be one of "pow2"'),
        ((5, 5), {"levels": 4}, ValueError, "^levels must be from 1 to 3 .*not 4"),
        ((5, 5), {"levels": True}, TypeError, "^levels: True is a bool"),
        ((5, 5), {"view_rect": (0, 0, 6, 5)}, ValueError, "^view_rect .*x1 <= 5"),
        ((5, 5), {"covered": 1}, ValueError, "^covered: 1 is not accepted; pass True or False"),
        ((5, 5), {"covered": None}, ValueError, "^covered: None is not accepted"),
    ],
)
def test_level_shapes(shape, options, error, words):
    with pytest.raises(error, match=words):
        hzb.level_shapes(shape, **options)


def test_private_hooks_check_their_arguments():
    with pytest.raises(ValueError, match=r"^kind: 'tea' is not accepted; pass 'alloc', "):
        _core._arm_fault("tea", 1)
    with pytest.raises(ValueError, match=r"^spec: "):
        _core._restore_context("x" * 37)
    with pytest.raises(TypeError):
        _core._restore_context(3)
    with pytest.raises(ValueError, match=r"^sets "):
        _core._measure(FRAME, sets=0)
