"""The face: names, signatures, level shapes, device records, exceptions, contexts, processes."""

from __future__ import annotations

import gc
import glob
import inspect
import pickle
import re
import threading
from pathlib import Path

import child
import numpy as np
import pytest
from bits import assert_same_bits
from hypothesis import given
from hypothesis import strategies as st

import hzb
import hzb.reference
from hzb import _core

DEPTH = np.random.default_rng(3).random((2, 37, 53), np.float32)
LEVELS = hzb.reference.build(DEPTH)

OPTIONS = {
    "bounds": "furthest",
    "reversed_z": True,
    "sizing": "pow2",
    "rounding": "conservative",
    "nan": "propagate",
    "view_rect": None,
    "levels": None,
    "dtype": np.dtype(np.float16),
    "algorithm": "auto",
    "out": None,
}


# Names


def test_version_is_that_of_the_package():
    metadata = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
    assert hzb.__version__ == re.search(r'^version = "(.*)"$', metadata, re.MULTILINE)[1]


def test_public_names():
    assert sorted(hzb.__all__) == hzb.__all__
    assert {*hzb.__all__, "plot", "reference"} <= set(dir(hzb))
    for name in hzb.__all__:
        assert getattr(hzb, name) is getattr(_core, name)
    with pytest.raises(AttributeError, match=r"^module 'hzb' has no attribute 'mipmap'"):
        hzb.mipmap  # noqa: B018


@pytest.mark.parametrize("name", ["Bounds", "Context", "Device"])
def test_types_say_where_they_are_found(name):
    assert (getattr(hzb, name).__module__, getattr(hzb, name).__qualname__) == ("hzb", name)


def parameters(function):
    """Give the defaults of all parameters by keyword, after the positional one."""
    first, *others = inspect.signature(function).parameters.values()
    if first.name == "self":
        first, *others = others
    assert first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert all(other.kind is inspect.Parameter.KEYWORD_ONLY for other in others)
    found = {other.name: other.default for other in others}
    if "dtype" in found:
        found["dtype"] = np.dtype(found["dtype"])
    return first.name, found


def test_signatures():
    assert parameters(hzb.build) == ("depth", {**OPTIONS, "device": None, "context": None})
    assert parameters(hzb.Context.build) == ("depth", OPTIONS)
    shapes = {"sizing": "pow2", "view_rect": None, "levels": None, "covered": False}
    assert parameters(hzb.level_shapes) == ("shape", shapes)
    assert str(inspect.signature(hzb.devices)) == "()"
    assert str(inspect.signature(hzb.Context)) == "(device=None)"


@pytest.mark.parametrize("function", [hzb.build, hzb.Context, hzb.Context.build, hzb])
def test_first_lines_state_the_depth_convention(function):
    first_paragraphs = " ".join(inspect.getdoc(function).split("\n\n")[:2])
    assert re.search(r"reversed-Z.*near = 1.*far = 0", first_paragraphs, re.DOTALL)


def test_all_but_the_depth_is_documented():
    for function in (hzb.build, hzb.level_shapes):
        _, options = parameters(function)
        for name in options:
            assert re.search(rf"^([a-z_]+, )*{name}\b.*$", function.__doc__, re.MULTILINE), name


def test_names_of_a_dict_need_not_be_interned(device):
    key = "".join(["bou", "nds"])
    assert isinstance(hzb.build(DEPTH, device=device, **{key: "both"}), hzb.Bounds)
    assert_same_bits(hzb.build(depth=DEPTH, device=device), LEVELS)


# Level shapes

SIDES = {
    "pow2": [512, 256, 128, 64, 32, 16, 8, 4, 2, 1],
    "floor": [425, 212, 106, 53, 26, 13, 6, 3, 1],
    "ceil": [425, 213, 107, 54, 27, 14, 7, 4, 2, 1],
}


@pytest.mark.parametrize("sizing", SIDES)
def test_documented_sizes(sizing):
    want = [(side, side) for side in SIDES[sizing]]
    assert hzb.level_shapes((850, 850), sizing=sizing) == want


def test_sides_shrink_to_one_each():
    wide = [(512 >> k or 1, 1024 >> k) for k in range(11)]
    assert hzb.level_shapes((808, 1264)) == wide
    assert hzb.level_shapes((1, 64), sizing="floor") == [(1, 32 >> k) for k in range(6)]
    assert hzb.level_shapes((1, 1)) == [(1, 1)]
    assert hzb.level_shapes((2**31, 1))[0] == (2**30, 1)


def test_level_shapes_keep_leading_axes():
    assert hzb.level_shapes((0, 7, 4, 2)) == [(0, 7, 2, 1), (0, 7, 1, 1)]
    shape = np.array([3, 4, 4])
    assert hzb.level_shapes(shape) == hzb.level_shapes([3, 4, 4]) == [(3, 2, 2), (3, 1, 1)]
    assert all(type(side) is int for level in hzb.level_shapes(shape) for side in level)


def test_covered_part():
    assert hzb.level_shapes((20, 20), covered=True)[1] == (5, 5)
    assert hzb.level_shapes((850, 850), covered=True)[:3] == [(425, 425), (213, 213), (107, 107)]
    assert hzb.level_shapes((6, 850, 5), covered=np.True_, levels=1) == [(6, 425, 3)]
    for sizing in ("floor", "ceil"):
        whole = hzb.level_shapes((850, 1), sizing=sizing)
        assert hzb.level_shapes((850, 1), sizing=sizing, covered=True) == whole


@given(
    batch=st.lists(st.integers(0, 3), max_size=2),
    sides=st.tuples(st.integers(1, 3000), st.integers(1, 3000)),
    sizing=st.sampled_from(sorted(SIDES)),
    covered=st.booleans(),
    data=st.data(),
)
def test_level_shapes_are_those_of_the_reference(batch, sides, sizing, covered, data):
    height, width = sides
    x0, y0 = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    x1, y1 = data.draw(st.integers(x0 + 1, width)), data.draw(st.integers(y0 + 1, height))
    rect = data.draw(st.sampled_from([None, (x0, y0, x1, y1), [x0, y0, x1, y1]]))
    options = {"sizing": sizing, "view_rect": rect}
    count = len(hzb.reference.level_shapes((*batch, *sides), **options))
    options |= {"levels": data.draw(st.none() | st.integers(1, count)), "covered": covered}
    want = hzb.reference.level_shapes((*batch, *sides), **options)
    assert hzb.level_shapes((*batch, *sides), **options) == want


def test_level_shapes_need_no_device():
    code = "import hzb; print(hzb.level_shapes((4, 2)))"
    assert child.run(code, **NO_DRIVER) == "[(2, 1), (1, 1)]\n"


# Results


class Two:
    def __index__(self):
        return 2


@pytest.mark.parametrize("two", [2, np.int8(2), np.array(2), Two()])
def test_anything_with_index(device, two):
    assert_same_bits(hzb.build(DEPTH, levels=two, device=device), LEVELS[:2])
    want = hzb.reference.build(DEPTH[:, :2, :2])
    for rect in ((0, 0, two, two), [0, 0, two, two]):
        assert_same_bits(hzb.build(DEPTH, view_rect=rect, device=device), want)


@pytest.mark.parametrize("rect", [range(4), np.arange(4), bytes(range(4))], ids=type)
def test_any_sequence_of_four(device, rect):
    want = hzb.reference.build(DEPTH[:, 1:3, 0:2])
    assert_same_bits(hzb.build(DEPTH, view_rect=rect, device=device), want)


@pytest.mark.parametrize("dtype", [np.float16, "float16", "e", np.dtype("f2"), "<f2", "f4"])
def test_names_of_types(device, dtype):
    levels = hzb.build(DEPTH, dtype=dtype, reversed_z=np.True_, device=device)
    assert_same_bits(levels, hzb.reference.build(DEPTH, dtype=dtype))


def test_results_are_arrays_of_their_own(device):
    levels = hzb.build(DEPTH, device=device)
    assert type(levels) is list
    for level in levels:
        assert type(level) is np.ndarray
        assert level.flags.c_contiguous
        assert level.flags.writeable
        level[...] = 7
    assert_same_bits(hzb.build(DEPTH, device=device), LEVELS)
    assert all((level == 7).all() for level in levels)


def test_levels_outlive_their_context():
    context = hzb.Context()
    levels = context.build(DEPTH)
    context.close()
    del context
    gc.collect()
    assert_same_bits(levels, LEVELS)


def room(**options):
    dtype = options.pop("dtype", np.float16)
    return [np.full(shape, 7, dtype) for shape in hzb.level_shapes(DEPTH.shape, **options)]


@pytest.mark.parametrize("container", [list, tuple])
@pytest.mark.parametrize(
    "options", [{}, {"dtype": "f4"}, {"levels": 2}, {"sizing": "ceil"}], ids=str
)
def test_out_is_returned(device, container, options):
    out = container(room(**options))
    arrays = list(out)
    assert hzb.build(DEPTH, out=out, device=device, **options) is out
    assert all(a is b for a, b in zip(out, arrays, strict=True))
    assert_same_bits(out, hzb.reference.build(DEPTH, **options))


@pytest.mark.parametrize(
    "pair",
    [hzb.Bounds, lambda a, b: (a, b), lambda a, b: [tuple(a), b]],
    ids=["Bounds", "tuple", "list"],
)
def test_out_is_returned_for_both_bounds(device, pair):
    out = pair(room(), room())
    assert hzb.build(DEPTH, bounds="both", out=out, device=device) is out
    assert_same_bits(out, hzb.reference.build(DEPTH, bounds="both"))


def test_bounds(device):
    both = hzb.build(DEPTH, bounds="both", device=device)
    assert type(both) is hzb.Bounds
    assert both._fields == ("furthest", "closest")
    assert type(both.furthest) is type(both.closest) is list
    assert_same_bits(both.closest, hzb.reference.build(DEPTH, bounds="closest"))
    assert_same_bits(pickle.loads(pickle.dumps(both)), both)
    assert "furthest" in hzb.Bounds.__doc__
    assert "reversed-Z" in hzb.Bounds.furthest.__doc__


# Devices


def test_device_records(device):
    records = hzb.devices()
    assert device in records
    for index, record in enumerate(records):
        assert type(record) is hzb.Device
        assert record.index == index
        assert record.kind in {"discrete", "integrated", "virtual", "native", "software", "other"}
        assert record.name
        assert record.driver_name
        assert isinstance(record.vendor_id, int)
        assert isinstance(record.device_id, int)
        if record.kind == "native":
            assert record.uuid is record.api_version is None
        else:
            assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", record.uuid)
            assert re.fullmatch(r"1\.\d+\.\d+", record.api_version)
        assert record.memory > 0
        assert re.fullmatch(r"hzb\.Device\(index=.*\)", repr(record))
        assert pickle.loads(pickle.dumps(record)) == record
        assert {record: index}[record] == index
        with pytest.raises((AttributeError, TypeError)):
            record.index = 3


def test_device_specs(device, spec):
    parts = [device, device.index, np.int64(device.index), str(device.index), spec]
    named = next(record for record in hzb.devices() if device.name in record.name)
    specs = {device: parts, named: [device.name, device.name.upper()]}
    for record, equivalents in specs.items():
        for equivalent in equivalents:
            assert_same_bits(hzb.build(DEPTH, device=equivalent), LEVELS)
            with hzb.Context(equivalent) as context:
                assert context.device == record
    with hzb.Context(pickle.loads(pickle.dumps(device))) as context:
        assert context.device == device


# Contexts


def test_context(device):
    with hzb.Context(device=device) as context:
        assert not context.closed
        assert context.device == device
        assert repr(context) == f"<hzb.Context on {device.name}>"
        assert_same_bits(context.build(DEPTH), LEVELS)
        assert_same_bits(hzb.build(DEPTH, context=context, device=None), LEVELS)
    assert context.closed
    assert context.device == device
    assert repr(context) == f"<hzb.Context on {device.name}, closed>"
    context.close()
    context.close()


def test_exception_passes_a_context(device):
    with pytest.raises(ZeroDivisionError), hzb.Context(device) as context:
        _ = 1 / 0
    assert context.closed


def test_context_is_pickled_as_its_device(device, spec):
    with hzb.Context(device) as context:
        copy, other = (pickle.loads(pickle.dumps(context)) for _ in range(2))
    waiting = f"<hzb.Context of device {spec}, not opened yet>"
    assert repr(copy) == waiting
    assert not copy.closed
    assert_same_bits(copy.build(DEPTH), LEVELS)
    assert repr(copy) == f"<hzb.Context on {device.name}>"
    copy.close()
    other.close()
    assert other.closed
    assert repr(other) == f"<hzb.Context of device {spec}, closed>"
    with pytest.raises(hzb.Error, match="is closed"):
        other.build(DEPTH)
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(copy))))
    assert again.device == device


def test_context_of_a_device_that_is_gone():
    context = _core._restore_context("00000000-0000-0000-0000-000000000000")
    for use in (lambda: context.build(DEPTH), lambda: context.device):
        with pytest.raises(ValueError, match=r"no device matches '00000000-"):
            use()
    context.close()


def test_threads_share_a_context(device):
    with hzb.Context(device) as context:
        opened_by_two = pickle.loads(pickle.dumps(context))
        results = [None] * 8

        def work(index):
            one = context if index % 2 else opened_by_two
            results[index] = [one.build(DEPTH[..., index:]) for _ in range(5)]

        threads = [threading.Thread(target=work, args=(index,)) for index in range(len(results))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for index, built in enumerate(results):
        for levels in built:
            assert_same_bits(levels, hzb.reference.build(DEPTH[..., index:]))
    opened_by_two.close()


def test_contexts_cannot_be_subclassed_or_changed():
    with pytest.raises(TypeError):
        type("Mine", (hzb.Context,), {})
    with pytest.raises(TypeError):
        hzb.Context.build = None


# Exceptions


def test_exception_hierarchy():
    assert hzb.Error.__bases__ == (Exception,)
    assert hzb.VulkanError.__bases__ == (hzb.Error,)
    for kind in (hzb.LoaderNotFoundError, hzb.NoDeviceError, hzb.DeviceLostError):
        assert kind.__bases__ == (hzb.VulkanError,)
    assert hzb.OutOfMemoryError.__bases__ == (hzb.VulkanError, MemoryError)


@pytest.mark.parametrize(
    "name",
    [
        "Error",
        "VulkanError",
        "LoaderNotFoundError",
        "NoDeviceError",
        "DeviceLostError",
        "OutOfMemoryError",
    ],
)
def test_exceptions_have_their_attributes(name):
    kind = getattr(hzb, name)
    assert (kind.__module__, kind.__qualname__) == ("hzb", name)
    assert kind.__doc__
    error = kind("what happened")
    assert (error.result, error.code, error.function) == (None, None, None)
    error.result = "VK_ERROR_UNKNOWN"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.args, copy.result) == (kind, error.args, error.result)


# What is missing

NOWHERE = "/nowhere/icd.json"
NO_DRIVER = {"VK_DRIVER_FILES": NOWHERE, "VK_ICD_FILENAMES": NOWHERE, "HZB_DEVICE": None}

# What Vulkan is missing is said when one of its devices is named; otherwise the processor builds,
# and one line for the log says why.
MISSING = """
import logging
import sys
import numpy as np
import hzb

logging.basicConfig(
    format="%(name)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stdout
)
depth = np.ones((4, 4))
for attempt in range(2):
    try:
        hzb.build(depth, device="llvmpipe")
    except hzb.Error as error:
        found = type(error).__name__, error.result, error.code, error.function
        message = str(error)
print(*found)
print(message)
(cpu,) = hzb.devices()
assert (cpu.index, cpu.kind) == (0, "native")
for spec in (None, "cpu", 0, cpu, cpu.name):
    assert hzb.build(depth, device=spec)[-1] == 1
    with hzb.Context(spec) as context:
        assert context.device == cpu
"""


def has_nodes():
    """Whether the machine looks like one with a GPU."""
    return bool(glob.glob("/dev/nvidia*") or glob.glob("/dev/dri"))


def assert_logged(line, missing):
    level = "WARNING" if has_nodes() else "INFO"
    words = f'hzb {level} building on the processor (device "cpu"): {missing}'
    assert line == words or (has_nodes() and line.startswith(f"{words}; yet /dev/"))


def test_no_driver():
    cause, message, line = child.run(MISSING, **NO_DRIVER).splitlines()
    assert cause == "NoDeviceError VK_ERROR_INCOMPATIBLE_DRIVER -9 vkCreateInstance"
    assert "apt-get install mesa-vulkan-drivers" in message
    assert f'VK_DRIVER_FILES is set to "{NOWHERE}"' in message
    assert 'the "graphics" capability' in message
    assert_logged(line, "no Vulkan driver")


def test_no_device():
    # Mesa's driver for AMD's cards, on a machine that has none.
    (driver,) = glob.glob("/usr/share/vulkan/icd.d/radeon_icd.*.json")
    cause, message, line = child.run(
        MISSING, VK_DRIVER_FILES=driver, VK_ICD_FILENAMES=driver, HZB_DEVICE=None
    ).splitlines()
    assert cause == "NoDeviceError None None None"
    assert "none of them has a device" in message
    assert_logged(line, "no Vulkan device")


def test_no_loader(tmp_path):
    for name in ("libvulkan.so.1", "libvulkan.so"):
        (tmp_path / name).touch()
    cause, message, line = child.run(
        MISSING, LD_LIBRARY_PATH=str(tmp_path), HZB_DEVICE=None
    ).splitlines()
    assert cause == "LoaderNotFoundError None None None"
    assert "libvulkan.so.1" in message
    assert "apt-get install libvulkan1" in message
    assert_logged(line, "no Vulkan loader (libvulkan.so.1)")


def test_variable_names_a_device_that_is_missing():
    code = """
import numpy as np
import hzb
try:
    hzb.build(np.zeros((4, 4)))
except hzb.NoDeviceError as error:
    print(error.result)
"""
    assert child.run(code, **{**NO_DRIVER, "HZB_DEVICE": "llvmpipe"}) == (
        "VK_ERROR_INCOMPATIBLE_DRIVER\n"
    )


def test_import_is_silent_and_needs_no_loader():
    code = """
import sys
import hzb
with open("/proc/self/maps") as maps:
    assert "vulkan" not in maps.read()
assert not {"hzb.reference", "hzb.plot", "matplotlib", "logging"} & set(sys.modules)
hzb.reference.build, hzb.plot.mips
assert "matplotlib" not in sys.modules
"""
    assert child.run(code, HZB_DEVICE="no such device") == ""


def test_import_without_numpy():
    code = """
import sys
sys.modules["numpy"] = None
try:
    import hzb
except ImportError as error:
    print(error)
    assert isinstance(error.__cause__, ImportError)
"""
    assert "pip install numpy" in child.run(code)


def test_import_in_a_sub_interpreter():
    code = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
one = interpreters.create()
attempt = '''
import sys
try:
    import hzb
except ImportError as error:
    print(error)
    assert "numpy" not in sys.modules
else:
    raise SystemExit("it was imported")
sys.stdout.flush()
'''
failure = interpreters.run_string(one, attempt)
assert failure is None, failure
interpreters.destroy(one)
"""
    assert re.search("sub-?interpreter", child.run(code))


def test_module_can_be_loaded_twice(spec):
    code = """
import sys
import numpy as np
import hzb
first, context = hzb, hzb.Context(sys.argv[1])
for name in [name for name in sys.modules if name.split(".")[0] == "hzb"]:
    del sys.modules[name]
import hzb
assert hzb.Error is not first.Error
other = hzb.Context(sys.argv[1])
for one in (context, other):
    assert one.build(np.ones((4, 4)))[-1] == 1
"""
    assert child.run(code, spec) == ""


def test_contexts_may_be_left_to_the_end(spec):
    code = """
import sys
import numpy as np
import hzb
from hzb import _core
kept = hzb.Context(sys.argv[1])
kept.build(np.ones((4, 4)))
copy = hzb.Context(sys.argv[1])
cycle = [hzb.Context(sys.argv[1])]
cycle.append(cycle)
hzb.build(np.ones((4, 4)), device=sys.argv[1])
assert _core._take_validation_messages() == []
"""
    assert child.run(code, spec) == ""


CHOICE = """
import logging
import sys
import numpy as np
import hzb
from hzb import _core

logging.basicConfig(format="%(name)s %(levelname)s %(message)s", stream=sys.stdout)
for attempt in range(2):
    if len(sys.argv) > 1:
        _core._arm_fault("vulkan", int(sys.argv[1]))
    hzb.build(np.zeros((4, 4)))
    with hzb.Context() as context:
        print(context.device.kind)
"""


def lavapipe():
    """Give the variables that leave Mesa's software driver alone to choose from."""
    (driver,) = glob.glob("/usr/share/vulkan/icd.d/lvp_icd.*.json")
    return {"VK_DRIVER_FILES": driver, "VK_ICD_FILENAMES": driver}


def test_processor_is_taken_rather_than_a_software_driver():
    *warning, first, second = child.run(CHOICE, HZB_DEVICE=None, **lavapipe()).splitlines()
    assert (first, second) == ("native", "native")
    assert len(warning) == has_nodes()
    for line in warning:
        assert re.match(r"hzb WARNING .*no hardware Vulkan device; yet /dev/.* exists", line)


@pytest.mark.parametrize("name", ["llvmpipe", "lavapipe", "LLVM", "0"])
def test_software_driver_is_taken_where_it_is_named(name):
    assert child.run(CHOICE, HZB_DEVICE=name, **lavapipe()) == "software\nsoftware\n"


@pytest.mark.parametrize(
    "environment",
    [{"HZB_DEVICE": "cpu"}, {**NO_DRIVER, "HZB_DEVICE": "cpu"}, {**NO_DRIVER, "HZB_DEVICE": "0"}],
    ids=str,
)
def test_processor_is_taken_where_it_is_named(environment):
    assert child.run(CHOICE, **environment) == "native\nnative\n"


def test_driver_that_fails_is_noted():
    # The second call is the one that makes the instance.
    warning, *kinds = child.run(CHOICE, 2, HZB_DEVICE=None, **lavapipe()).splitlines()
    assert kinds == ["native", "native"]
    assert re.match(r"hzb WARNING building on the processor .*: vkCreateInstance failed: ", warning)


def test_variable_is_read_at_first_use():
    code = """
import os
import numpy as np
import hzb
try:
    hzb.build(np.zeros((4, 4)))
except ValueError as error:
    print(error)
os.environ["HZB_DEVICE"] = ""
os.environ["HZB_DEVICE"] = "llvmpipe"
hzb.build(np.zeros((4, 4)))
"""
    message = child.run(code, HZB_DEVICE="no such device", **lavapipe())
    assert re.match(
        r"HZB_DEVICE: no device matches 'no such device'.*llvmpipe.*; 1: .* \(native, \"cpu\"\)$",
        message,
    )
