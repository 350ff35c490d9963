"""On which devices the suite runs, how much of it, and what the validation layer says of each test.

``HZB_TEST_DEVICES``, a comma-separated list such as ``llvmpipe,cpu``, names parts of device or
driver names, and the native path; one that is absent ends the run. Without it the suite takes
whatever is present.
``HZB_TEST_VALIDATION=required`` ends the run where the Khronos validation layer is absent.
``--whole`` adds the sweeps marked ``whole`` and draws more examples.
"""

from __future__ import annotations

import ctypes
import glob
import logging
import os
from collections import defaultdict

import hypothesis
import numpy as np
import pytest
from algorithms import ALGORITHMS

import hzb
from hzb import _core

SWIFTSHADER = "/usr/lib/chromium/vk_swiftshader_icd.json"
SYSTEM_DRIVERS = ("/etc/vulkan/icd.d/*.json", "/usr/share/vulkan/icd.d/*.json")
# The first is what loaders from 1.3.207 on read, the second what all of them did before.
DRIVER_VARIABLES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")

VALIDATION_LAYER = b"VK_LAYER_KHRONOS_validation"

DEVICES = pytest.StashKey[dict]()


def pytest_addoption(parser):
    parser.addoption("--whole", action="store_true", help="run the whole sweeps too (much longer)")


def pytest_configure(config):
    whole = config.getoption("--whole")
    # The same examples in every run: what fails here fails everywhere.
    hypothesis.settings.register_profile(
        "hzb", derandomize=True, deadline=None, max_examples=400 if whole else 25
    )
    hypothesis.settings.load_profile("hzb")

    # Before the first Vulkan call, which reads all of this.
    names = [name.strip() for name in os.environ.get("HZB_TEST_DEVICES", "").split(",")]
    names = [name for name in names if name]
    _show_swiftshader(names)
    _turn_validation_on()
    config.stash[DEVICES] = _devices(names)


def _show_swiftshader(names):
    """Let the loader find SwiftShader too, which Debian's chromium keeps out of its sight.

    Only when it is asked for, and not against the user's own choice of drivers.
    """
    wanted = any("swiftshader" in name.lower() for name in names)
    if wanted and not any(os.environ.get(variable) for variable in DRIVER_VARIABLES):
        files = [file for pattern in SYSTEM_DRIVERS for file in sorted(glob.glob(pattern))]
        for variable in DRIVER_VARIABLES:
            os.environ[variable] = ":".join([*files, SWIFTSHADER])


def _turn_validation_on():
    if _has_validation_layer():
        os.environ.setdefault("HZB_VALIDATION", "1")
    on = os.environ.get("HZB_VALIDATION") == "1"
    if os.environ.get("HZB_TEST_VALIDATION") == "required" and not on:
        pytest.exit(
            "HZB_TEST_VALIDATION=required, but HZB_VALIDATION is "
            f"{os.environ.get('HZB_VALIDATION')!r}: unset it and install the Khronos validation "
            "layer: apt-get install vulkan-validationlayers",
            returncode=1,
        )


def _has_validation_layer():
    """Ask the loader, which alone knows where layers lie; without a loader there are none."""

    class LayerProperties(ctypes.Structure):
        _fields_ = (
            ("name", ctypes.c_char * 256),
            ("versions", ctypes.c_uint32 * 2),
            ("description", ctypes.c_char * 256),
        )

    try:
        enumerate_layers = ctypes.CDLL("libvulkan.so.1").vkEnumerateInstanceLayerProperties
    except OSError:
        return False
    count = ctypes.c_uint32()
    enumerate_layers(ctypes.byref(count), None)
    layers = (LayerProperties * count.value)()
    enumerate_layers(ctypes.byref(count), layers)
    return any(layer.name == VALIDATION_LAYER for layer in layers)


def _devices(names):
    """Give the devices to run on by the names they have in test ids."""
    present = hzb.devices()
    if not names:
        return {_name(record): record for record in present}
    found = {}
    for name in names:
        record = next((record for record in present if _is_named(record, name)), None)
        if record is None:
            listed = "; ".join(map(repr, present)) or "none"
            pytest.exit(
                f"HZB_TEST_DEVICES names {name!r}, which is not among the devices: {listed}",
                returncode=1,
            )
        found[name] = record
    return found


def _name(record):
    return "cpu" if record.kind == "native" else record.driver_name


def _is_named(record, name):
    if "cpu" in (name, _name(record)):
        return name == _name(record)
    return name.lower() in f"{record.name}\n{record.driver_name}".lower()


def _is_slow(record):
    """SwiftShader takes half a second for each pipeline that it makes."""
    return _is_named(record, "swiftshader")


def _is_for_whole_sweeps(item, parameters):
    """Tell what a slow device leaves to them: what is marked, and second names of a kernel."""
    same_kernel = parameters.get("algorithm") in ("two_pass", "auto")
    return same_kernel or item.get_closest_marker("whole_if_slow") is not None


def pytest_report_header(config):
    devices = config.stash[DEVICES]
    named = bool(os.environ.get("HZB_TEST_DEVICES"))
    lines = [
        "hzb: running on "
        + ("the devices of HZB_TEST_DEVICES" if named else "ALL DEVICES PRESENT, none was named")
        + ("" if devices else ": NONE, so every test that needs one is skipped")
    ]
    lines += [f"  {name}: {record!r}" for name, record in devices.items()]
    on = os.environ.get("HZB_VALIDATION") == "1"
    lines.append(f"hzb: Khronos validation layer {'on' if on else 'OFF'}")
    return lines


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        devices = metafunc.config.stash[DEVICES]
        metafunc.parametrize(
            "device", devices.values(), ids=devices, indirect=True, scope="session"
        )


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(config, items):
    names = {id(record): name for name, record in config.stash[DEVICES].items()}
    wanted, unwanted = [], []
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        device = parameters.get("device")
        if device is not None:
            item.user_properties.append(("device", names[id(device)]))
        if device is not None and _is_slow(device) and _is_for_whole_sweeps(item, parameters):
            item.add_marker("whole")
        # By whatever name, the native path is one and the same.
        native = device is not None and device.kind == "native"
        if (
            (native and parameters.get("algorithm", "batched") != "batched")
            or (native and item.get_closest_marker("vulkan"))
            or (item.get_closest_marker("whole") and not config.getoption("--whole"))
        ):
            unwanted.append(item)
        else:
            wanted.append(item)
    config.hook.pytest_deselected(items=unwanted)
    items[:] = wanted


class _Distrust(logging.Handler):
    """What the library says of kernels that it takes drivers off: their bits then are another's."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        message = record.getMessage()
        if "gets the kernel of" in message:
            self.messages.append(message)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail the test during which the validation layer had something to say, or a kernel was wrong.

    The tests of wrong answers plant them.
    """
    distrust = _Distrust()
    logger = logging.getLogger("hzb")
    logger.addHandler(distrust)
    try:
        result = yield
    finally:
        logger.removeHandler(distrust)
        messages = "\n".join(_core._take_validation_messages())
        if messages:
            item.add_report_section("call", "validation layer", messages)
    if messages:
        pytest.fail("the validation layer complained, see below", pytrace=False)
    if distrust.messages and item.path.stem not in ("test_trust", "test_cli"):
        pytest.fail("\n".join(distrust.messages), pytrace=False)
    return result


def pytest_terminal_summary(terminalreporter, config):
    outcomes = defaultdict(lambda: {"passed": 0, "failed": 0, "seconds": 0.0})
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            device = dict(report.user_properties).get("device", "no device needed")
            outcomes[device][outcome] += 1
            outcomes[device]["seconds"] += report.duration
    terminalreporter.section("devices")
    for device in [*config.stash[DEVICES], "no device needed"]:
        terminalreporter.line(
            "{}: {passed} passed, {failed} failed in {seconds:.1f} s".format(
                device, **outcomes[device]
            )
        )


@pytest.fixture(scope="session")
def device(request):
    """Give the record of one of the devices that the suite runs on."""
    return request.param


@pytest.fixture(scope="session")
def spec(device):
    """Give what names the device in other processes."""
    return device.uuid or "cpu"


@pytest.fixture(scope="session", params=ALGORITHMS)
def algorithm(request):
    return request.param


@pytest.fixture(scope="session")
def build(device, algorithm):
    """Give ``hzb.build`` on one of the devices by one of the algorithms."""

    def build(depth, **options):
        return hzb.build(depth, algorithm=algorithm, device=device, **options)

    return build


@pytest.fixture
def rng():
    """Give random numbers that are the same in every run."""
    return np.random.default_rng(20)


@pytest.fixture(scope="session")
def share_of_sweep(device):
    """Give the step through a long list: SwiftShader, the slowest by far, takes a third of it."""
    return 3 if _is_slow(device) else 1
