"""Nothing is left behind: references, allocations and Vulkan objects, after failures too."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import child
import numpy as np
import pytest

import hzb
from hzb import _core

DEPTH = np.random.default_rng(4).random((3, 37, 53), np.float32)


class Index:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


def arguments(record, **changed):
    """Give depth and options, none of them shared with anything else."""
    bounds = changed.get("bounds", "furthest")
    shapes = hzb.level_shapes(DEPTH.shape, levels=3)
    chains = [[np.empty(shape, np.float16) for shape in shapes] for _ in range(2)]
    return {
        "depth": DEPTH.copy(),
        "sizing": "".join(["po", "w2"]),
        "rounding": "".join(["near", "est"]),
        "view_rect": [Index(0), Index(0), Index(53), Index(37)],
        "levels": Index(3),
        "dtype": np.dtype(np.float16, metadata={"of": "its own"}),
        "out": tuple(map(tuple, chains)) if bounds == "both" else chains[0],
        "device": hzb.Device(tuple(record)),
        **changed,
    }


def objects_in(values):
    """List the arguments and, of containers, what is in them."""
    found = []
    for value in values:
        found.append(value)
        if isinstance(value, (list, tuple)) and not isinstance(value, hzb.Device):
            found += objects_in(value)
    return found


def counts(values):
    return [sys.getrefcount(value) for value in objects_in(values)]


REFUSALS = [
    {"bounds": "".join(["no", "ne"])},
    {"reversed_z": np.float64(3.5)},
    {"sizing": b"a word in bytes"},
    {"view_rect": [0, 0, 1000, 1001]},
    {"view_rect": [0, 0, 1000]},
    {"view_rect": [0, 0, 1000, "a part"]},
    {"view_rect": {1000, 1001}},
    {"levels": Index(1000)},
    {"levels": Index("none")},
    {"dtype": "".join(["float", "15"])},
    {"dtype": np.dtype(np.float64)},
    {"out": [np.empty((3, 32, 32), np.float16)]},
    {"out": [np.empty((3, 32, 32), np.float16), np.empty((3, 16, 16), np.float32), 3]},
    {
        "out": [np.empty((3, 2 >> k, 2 >> k), np.float16) for k in range(2)],
        "view_rect": [0, 0, 3, 3],
    },
    {"device": "".join(["no ", "such device"])},
    {"device": 1000.5},
    {"context": "".join(["no ", "context"])},
    {"depth": DEPTH.astype(complex)},
    {"depth": np.ma.array(DEPTH)},
    {"depth": [[1000.5j, 1001.5], [1002.5, 1003.5]]},
    {"depth": DEPTH[0, 0]},
    {"no_such_option": 1000.5},
]


@pytest.mark.parametrize("changed", [{}, {"bounds": "both"}, {"out": None}], ids=str)
def test_references_of_a_build(device, changed):
    values = arguments(device, **changed)
    hzb.build(**values)
    before = counts(values.values())
    for _ in range(3):
        hzb.build(**values)
    assert counts(values.values()) == before


@pytest.mark.parametrize("changed", REFUSALS, ids=" ".join)
def test_references_of_a_refusal(device, changed):
    values = arguments(device, **changed)
    before = counts(values.values())
    for _ in range(3):
        with pytest.raises((TypeError, ValueError)):
            hzb.build(**values)
    gc.collect()
    assert counts(values.values()) == before


def test_results_belong_to_the_caller(device):
    levels = hzb.build(DEPTH, device=device)
    others = [level.copy() for level in levels]
    assert [sys.getrefcount(level) for level in levels] == [sys.getrefcount(o) for o in others]


def growth(action, repeats=200):
    """Give the bytes of Python memory that many calls of `action` leave behind."""
    for _ in range(repeats):
        action()
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(10):
            action()
        before = traced_memory()
        for _ in range(repeats):
            action()
        after = traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


def traced_memory():
    gc.collect()
    # It keeps names that attributes were looked up by, more or less of them from run to run.
    sys._clear_type_cache()
    return tracemalloc.get_traced_memory()[0]


# An object has 16 bytes at least, so one that is lost in each of 200 calls has more than this.
SMALL = 3000


def test_memory_of_builds(device):
    values = arguments(device)
    both = arguments(device, bounds="both", out=None)

    def build():
        hzb.build(**values)
        hzb.build(**both)
        hzb.level_shapes(DEPTH.shape, covered=True)
        hzb.devices()

    build()
    live = _core._live()
    assert growth(build) < SMALL
    assert _core._live() == live


def test_memory_of_refusals(device):
    calls = [arguments(device, **changed) for changed in REFUSALS]

    def refuse():
        for values in calls:
            try:
                hzb.build(**values)
            except (TypeError, ValueError):
                pass
            else:
                raise AssertionError

    hzb.build(DEPTH, device=device)
    live = _core._live()
    assert growth(refuse) < SMALL
    assert _core._live() == live


def test_contexts_come_and_go(device):
    hzb.devices()
    hzb.Context(device).close()  # lets go of memory that other tests left idle
    live = _core._live()
    for turn in range(9):
        context = hzb.Context(device)
        context.build(DEPTH[..., turn:], levels=1, algorithm="per_level")
        if turn % 3 == 0:
            context.close()
        if turn % 3 == 1:
            cycle = [context]
            cycle.append(cycle)
            del cycle
        del context
        gc.collect()
        assert _core._live() == live


def test_memory_of_contexts(device, spec):
    def open_and_close():
        with hzb.Context(device) as context:
            context.device, context.closed, repr(context), context.__reduce__()
        _core._restore_context(spec).close()

    assert growth(open_and_close, 20) < SMALL


# Planted faults: the nth call of a kind fails, for each n that there is. In a process of its own,
# because the instance and the shared context are made once.
FAULTS = """
import itertools
import sys

import numpy as np

import hzb
import hzb.reference
from hzb import _core

kind, device = sys.argv[1:]
depth = np.random.default_rng(5).random((2, 21, 34))
want = [level.tobytes() for level in hzb.reference.build(depth, levels=2)]
# One small pipeline, of which many are made here.
options = {"levels": 2, "algorithm": "per_level"}

class NoVulkanError(hzb.Error):
    pass

def is_right(levels):
    return [level.tobytes() for level in levels] == want

def check(error):
    assert str(error)
    if isinstance(error, NoVulkanError):
        return
    if kind == "vulkan" and not isinstance(error, hzb.LoaderNotFoundError):
        assert isinstance(error, hzb.OutOfMemoryError), repr(error)
        assert (error.result, error.code) == ("VK_ERROR_OUT_OF_DEVICE_MEMORY", -2)
        assert error.function.startswith("vk"), error.function
    if kind == "alloc":
        assert isinstance(error, hzb.OutOfMemoryError), repr(error)

def faults(action, afterwards):
    "Let each call fail in turn; count the faults that were raised and those that were not."
    raised = passed = 0
    for nth in itertools.count(1):
        failed = False
        _core._arm_fault(kind, nth)
        try:
            action()
        except hzb.Error as error:
            failed = True
            check(error)
        due = _core._fault_calls(kind) >= nth
        _core._arm_fault(kind, 0)
        raised += failed
        passed += due and not failed
        afterwards(failed)
        if not due:
            assert not failed
            return raised, passed

def list_devices():
    if [device.kind for device in hzb.devices()] == ["native"]:
        raise NoVulkanError("and so there is the processor alone")

def use_a_context():
    with hzb.Context(device) as context:
        assert is_right(context.build(depth, **options))

def use_the_kept_context():
    # Of another shape each time, so that nothing is kept for it.
    assert len(kept.build(depth[:, next(rows):], **options)) == 2

def use_the_shared_context():
    assert is_right(hzb.build(depth, device=device, **options))

def nothing_is_left(failed):
    assert _core._live() == live, (_core._live(), live)

def nothing_is_left_of_a_failure(failed):
    if failed:
        nothing_is_left(failed)

def kept_context_is_right(failed):
    assert is_right(kept.build(depth, **options))

def nothing_is_left_and_the_next_build_is_right(failed):
    nothing_is_left(failed)
    kept_context_is_right(failed)

live = _core._live()
print("instance", *faults(list_devices, nothing_is_left_of_a_failure))
kept = hzb.Context(device)
kept_context_is_right(False)
live = _core._live()
print("context", *faults(use_a_context, nothing_is_left_and_the_next_build_is_right))
rows = itertools.cycle(range(10))
print("build", *faults(use_the_kept_context, kept_context_is_right))
# What is shared stays, from the call on that could make it.
print("shared", *faults(use_the_shared_context, kept_context_is_right))
print("messages", *_core._take_validation_messages(), sep="\\n")
"""


@pytest.mark.parametrize("kind", ["alloc", "vulkan", "thread", "file"])
def test_planted_faults(spec, kind):
    *phases, messages = child.run(FAULTS, kind, spec).splitlines()
    assert messages == "messages"
    raised = {phase.split()[0]: int(phase.split()[1]) for phase in phases}
    assert list(raised) == ["instance", "context", "build", "shared"]
    # A file that cannot be read says nothing, and a thread's lock is made with each context.
    least = {"alloc": (1, 4, 0), "vulkan": (3, 20, 10), "thread": (0, 1, 0), "file": (0, 0, 0)}
    if spec == "cpu":
        least |= {"alloc": (1, 1, 0), "vulkan": (3, 0, 0)}
    for phase, count in zip(("instance", "context", "build"), least[kind], strict=True):
        assert raised[phase] >= count, phases
