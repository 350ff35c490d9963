"""The memory of results: shared, used again, kept as long as an array needs it, and bounded."""

from __future__ import annotations

import gc
import signal
import threading

import child
import numpy as np
import pytest
from bits import assert_same_bits

import hzb
import hzb.reference
from hzb import _core

# Levels of 131072, 32768 and 8192 bytes, …: the first two share a block of 163840.
DEPTH = np.random.default_rng(31).random((512, 512), np.float32)
BLOCK = 131072 + 32768
SMALL = 16384


# What is hidden: nothing, and memory that host and device have in common.
HIDDEN = ("", pytest.param("unified", marks=pytest.mark.whole_if_slow))


@pytest.fixture(params=HIDDEN, ids=["whole", "not-unified"])
def context(request, device, monkeypatch):
    """Give a context of its own, as the device is and as one with memory apart from the host's."""
    gc.collect()
    hzb.Context(device).close()
    monkeypatch.setenv("HZB_HIDE_FEATURES", request.param)
    with hzb.Context(device) as context:
        yield context


def address(array):
    return array.__array_interface__["data"][0]


def on_block(levels):
    return [level for level in levels if level.base is not None]


def is_on_device(context):
    """Tell whether its blocks are the device's: each has a buffer and its memory."""
    kept = context.build(DEPTH)
    gc.collect()
    live = _core._live()["vulkan"]
    other = context.build(DEPTH)
    objects = _core._live()["vulkan"] - live
    del kept, other
    return objects == 2


def test_where_blocks_lie(context, request):
    if context.device.kind == "native":
        assert not is_on_device(context)
        return
    apart = "not-unified" in request.node.name or context.device.kind != "software"
    storage16 = _core._describe_plan(DEPTH.shape, context=context)["storage16"]
    assert is_on_device(context) == (apart and storage16)
    # Halves that the device keeps in words cannot be filled in by it.
    if storage16:
        return
    kept = context.build(DEPTH, dtype=np.float32)
    live = _core._live()["vulkan"]
    other = context.build(DEPTH, dtype=np.float32)
    assert _core._live()["vulkan"] - live == 2 * apart
    del kept, other


def test_large_levels_share_a_block(context):
    furthest, closest = context.build(np.stack([DEPTH] * 2), bounds="both", sizing="ceil")
    large = on_block([*furthest, *closest])
    assert [a.nbytes for a in furthest + closest if a.base is not None] == [262144, 65536] * 2
    assert all(level.nbytes <= SMALL for level in furthest[2:] + closest[2:])
    assert len({id(level.base) for level in large}) == 1
    place = address(large[0])
    for level in large:
        assert address(level) == place
        assert place % 64 == 0
        assert not level.flags.owndata
        place += level.nbytes
    for level in [*furthest, *closest]:
        assert type(level) is np.ndarray
        assert level.dtype == np.float16
        assert level.flags.c_contiguous
        assert level.flags.writeable
        assert level.flags.aligned
        assert (level.base is None) == level.flags.owndata == (level.nbytes <= SMALL)


def test_levels_start_at_multiples_of_64_bytes(context):
    levels = context.build(np.zeros((3, 301, 299), np.float32), sizing="ceil")
    large = on_block(levels)
    assert [level.shape for level in large] == [(3, 151, 150), (3, 76, 75)]
    assert [address(level) % 64 for level in large] == [0, 0]
    assert address(large[1]) - address(large[0]) == (3 * 151 * 150 * 2 + 63) // 64 * 64


def test_results_are_the_callers_to_write(context):
    first = context.build(DEPTH)
    for level in first:
        level[...] = 7
    second = context.build(DEPTH)
    assert all((level == 7).all() for level in first)
    assert_same_bits(second, hzb.reference.build(DEPTH))


def test_a_block_is_used_again(context):
    levels = context.build(DEPTH)
    place = address(levels[0])
    assert _core._blocks() == {"all": BLOCK, "idle": 0}
    del levels
    assert _core._blocks() == {"all": BLOCK, "idle": BLOCK}
    levels = context.build(DEPTH)
    assert address(levels[0]) == place
    assert_same_bits(levels, hzb.reference.build(DEPTH))


@pytest.mark.parametrize("keep", [lambda a: a[0], lambda a: a[1][5:7], lambda a: memoryview(a[1])])
def test_not_while_anything_keeps_it(context, keep):
    levels = context.build(DEPTH)
    place = address(levels[0])
    kept = keep(levels)
    bits = bytes(kept)
    del levels
    other = context.build(1 - DEPTH)
    assert address(other[0]) != place
    assert bytes(kept) == bits
    del kept
    assert address(context.build(DEPTH)[0]) == place


def test_a_kept_small_level_keeps_no_block(context):
    smallest = context.build(DEPTH)[2:]
    assert _core._blocks() == {"all": BLOCK, "idle": BLOCK}
    assert smallest[0].nbytes == 8192


def test_a_block_does_for_results_of_half_its_size(context):
    frames = np.stack([DEPTH] * 4)
    place = address(context.build(frames, levels=2)[0])
    assert address(context.build(frames[:3], levels=2)[0]) == place
    assert address(context.build(frames[:2], levels=2)[0]) == place
    levels = context.build(DEPTH, levels=2)
    assert address(levels[0]) != place
    assert _core._blocks() == {"all": 5 * BLOCK, "idle": 4 * BLOCK}


def test_of_two_blocks_the_smaller_is_taken(context):
    larger, smaller = (context.build(np.stack([DEPTH] * n), levels=2) for n in (3, 2))
    place = address(smaller[0])
    del larger, smaller
    for _ in range(2):
        assert address(context.build(DEPTH, levels=2)[0]) == place
        context.build(np.stack([DEPTH] * 3), levels=2)


def test_out_takes_no_block(context):
    out = [np.empty(shape, np.float16) for shape in hzb.level_shapes(DEPTH.shape)]
    assert context.build(DEPTH, out=out) is out
    assert _core._blocks() == {"all": 0, "idle": 0}
    # Results can be targets and input again.
    levels = context.build(DEPTH)
    assert context.build(DEPTH, out=levels) is levels
    assert_same_bits(levels, hzb.reference.build(DEPTH))
    assert_same_bits(context.build(levels[0]), hzb.reference.build(levels[0]))


def test_arrays_outlive_their_context(context):
    levels = context.build(DEPTH)
    context.close()
    del context
    gc.collect()
    assert_same_bits(levels, hzb.reference.build(DEPTH))
    levels[0][...] = 3
    assert (levels[0] == 3).all()


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_close_gives_up(device, monkeypatch, hidden):
    monkeypatch.setenv("HZB_HIDE_FEATURES", hidden)
    hzb.Context(device).close()
    live = _core._live()
    context = hzb.Context(device)
    on_device = is_on_device(context)
    kept = context.build(DEPTH)
    context.build(DEPTH)
    assert _core._blocks() == {"all": 2 * BLOCK, "idle": BLOCK}
    context.close()
    del context
    assert _core._blocks() == {"all": BLOCK, "idle": 0}
    # The device, a buffer and its memory.
    assert _core._live()["vulkan"] - live["vulkan"] == (3 if on_device else 0)
    del kept
    if not on_device:
        assert _core._blocks() == {"all": BLOCK, "idle": BLOCK}
        hzb.Context(device).close()
    assert _core._blocks() == {"all": 0, "idle": 0}
    assert _core._live() == live


@pytest.mark.parametrize("hidden", HIDDEN)
def test_contexts_close_while_arrays_die(device, monkeypatch, hidden):
    monkeypatch.setenv("HZB_HIDE_FEATURES", hidden)
    hzb.Context(device).close()
    live = _core._live()
    handed = []
    done = threading.Event()

    def drop():
        while not done.is_set() or handed:
            if handed:
                handed.pop()

    thread = threading.Thread(target=drop)
    thread.start()
    try:
        for _ in range(8):
            with hzb.Context(device) as context:
                handed.extend(context.build(DEPTH, algorithm="per_level") for _ in range(5))
    finally:
        done.set()
        thread.join()
    del context
    hzb.Context(device).close()
    assert _core._blocks() == {"all": 0, "idle": 0}
    assert _core._live() == live


def test_many_submissions_fill_one_block(context, rng):
    frames = rng.random((70000, 4, 4), np.float32)
    # Large tiles are slow to reduce small frames on a processor.
    levels = context.build(frames, bounds="both", algorithm="batched")
    assert len({id(level.base) for level in levels.furthest + levels.closest}) == 1
    want = hzb.reference.build(frames, bounds="both")
    assert_same_bits(levels.furthest, want.furthest)
    assert_same_bits(levels.closest, want.closest)


def test_an_interrupted_build_keeps_its_block(context):
    """It is written to until the next call has seen its end."""

    class Interrupted(Exception):
        pass

    def interrupt(*_):
        raise Interrupted

    frames = np.broadcast_to(DEPTH, (120, 512, 512))
    old = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            with pytest.raises(Interrupted):
                context.build(frames, levels=2)
            assert _core._blocks()["all"] >= 120 * BLOCK
            assert _core._blocks()["idle"] <= 120 * BLOCK
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert_same_bits(context.build(DEPTH), hzb.reference.build(DEPTH))
    sizes = _core._blocks()
    assert sizes["all"] == sizes["idle"]


def test_arrays_die_in_other_threads(context):
    want = [hzb.reference.build(depth) for depth in (DEPTH, 1 - DEPTH)]
    handed = [[] for _ in range(3)]
    done = threading.Event()

    def drop(levels):
        while not done.is_set():
            while levels:
                levels.pop()

    def build_and_drop():
        while not done.is_set():
            context.build(DEPTH[:, :200])

    threads = [threading.Thread(target=drop, args=(levels,)) for levels in handed]
    threads.append(threading.Thread(target=build_and_drop))
    for thread in threads:
        thread.start()
    try:
        for turn in range(60):
            levels = context.build(DEPTH if turn % 2 == 0 else 1 - DEPTH)
            assert_same_bits(levels, want[turn % 2])
            for i, level in enumerate(levels):
                handed[i % 3].append(level)
    finally:
        done.set()
        for thread in threads:
            thread.join()
    del levels, handed
    gc.collect()
    sizes = _core._blocks()
    assert sizes["all"] == sizes["idle"]


def test_nothing_is_lost(context):
    def work():
        for rows in (300, 400, 512):
            for bounds in ("both", "furthest"):
                kept = context.build(DEPTH[:rows], bounds=bounds)[-1]
                context.build(DEPTH[:rows], bounds=bounds)
                del kept
        hzb.Context(context.device).close()
        return _core._live(), _core._blocks()

    first = work()
    assert first[1] == {"all": 0, "idle": 0}
    for _ in range(5):
        assert work() == first


# ---- the bound ----


@pytest.mark.parametrize("limit", ["0", "1", "163839", "159K"])
def test_beyond_the_limit_arrays_are_ordinary(context, monkeypatch, limit):
    monkeypatch.setenv("HZB_PINNED_LIMIT", limit)
    levels = context.build(DEPTH)
    assert [level.base for level in levels] == [None] * len(levels)
    assert all(level.flags.owndata and level.flags.writeable for level in levels)
    assert_same_bits(levels, hzb.reference.build(DEPTH))
    assert _core._blocks() == {"all": 0, "idle": 0}


@pytest.mark.parametrize("limit", ["", "163840", "160K", "1M", "16G"])
def test_within_the_limit_they_share(context, monkeypatch, limit):
    monkeypatch.setenv("HZB_PINNED_LIMIT", limit)
    assert len(on_block(context.build(DEPTH))) == 2


@pytest.mark.parametrize(
    "limit", ["none", "-1", "+1", " 1", "1 ", "1.5", "1k", "1KB", "K", "0x10", "99999999999G"]
)
def test_a_limit_that_is_no_number(context, monkeypatch, limit):
    monkeypatch.setenv("HZB_PINNED_LIMIT", limit)
    with pytest.raises(ValueError, match="HZB_PINNED_LIMIT") as caught:
        context.build(DEPTH)
    assert repr(limit) in str(caught.value)
    assert "256M" in str(caught.value)


def test_blocks_in_use_count(context, monkeypatch):
    monkeypatch.setenv("HZB_PINNED_LIMIT", str(2 * BLOCK))
    results = [context.build(DEPTH) for _ in range(3)]
    assert [len(on_block(levels)) for levels in results] == [2, 2, 0]
    results = results[1:]
    results.append(context.build(DEPTH))
    assert len(on_block(results[-1])) == 2
    for levels in results:
        assert_same_bits(levels, hzb.reference.build(DEPTH))


def test_idle_blocks_make_room(context, monkeypatch):
    monkeypatch.setenv("HZB_PINNED_LIMIT", str(8 * BLOCK))
    results = [context.build(DEPTH) for _ in range(4)]
    del results
    # A quarter of the limit is kept.
    assert _core._blocks() == {"all": 2 * BLOCK, "idle": 2 * BLOCK}
    frames = np.stack([DEPTH] * 7)
    levels = context.build(frames, levels=2)
    assert len(on_block(levels)) == 2
    assert _core._blocks() == {"all": 8 * BLOCK, "idle": BLOCK}
    assert_same_bits(levels, hzb.reference.build(frames, levels=2))


def test_a_large_block_is_kept_alone(context, monkeypatch):
    monkeypatch.setenv("HZB_PINNED_LIMIT", str(2 * BLOCK))
    place = address(context.build(DEPTH)[0])
    assert _core._blocks() == {"all": BLOCK, "idle": BLOCK}
    results = [context.build(DEPTH), context.build(DEPTH)]
    assert address(results[0][0]) == place
    results.clear()
    assert _core._blocks() == {"all": BLOCK, "idle": BLOCK}


def test_the_oldest_is_given_up_first(context):
    results = [context.build(DEPTH) for _ in range(40)]
    places = [address(levels[0]) for levels in results]
    while results:
        del results[0]
    assert _core._blocks() == {"all": 32 * BLOCK, "idle": 32 * BLOCK}
    again = [context.build(DEPTH) for _ in range(32)]
    assert sorted(address(levels[0]) for levels in again) == sorted(places[8:])


@pytest.mark.parametrize("kind", ["alloc", "vulkan"])
def test_faults(context, kind):
    want = hzb.reference.build(DEPTH)

    def settled():
        context.build(DEPTH)
        gc.collect()
        hzb.Context(context.device).close()
        return _core._live(), _core._blocks()

    before = settled()
    ordinary, failed = 0, False
    for nth in range(1, 100):
        _core._arm_fault(kind, nth)
        try:
            levels = context.build(DEPTH)
            ordinary += not on_block(levels)
            assert_same_bits(levels, want)
            del levels
        except hzb.OutOfMemoryError:
            failed = True
        due = _core._fault_calls(kind) >= nth
        _core._arm_fault(kind, 0)
        assert settled() == before
        if not due:
            break
    assert not due
    # A block that cannot be had is done without.
    assert ordinary > 0 or not is_on_device(context)
    assert failed == (kind == "vulkan" and context.device.kind != "native")


# ---- the end of a process, and forks ----

AT_EXIT = """
import atexit, sys

def look():
    if sys.argv[2] == "kept":
        assert float(sys.kept[0].max()) == float(module_level[0].max()) == top
        sys.kept[0][...] = 2
        assert (sys.kept[0] == 2).all()
        del sys.kept[0]
    else:
        assert _core._live()["vulkan"] == 0
    print(*_core._take_validation_messages(), sep="\\n")

# Registered before the hook of hzb, and so called after it.
atexit.register(look)

import numpy as np
import hzb
from hzb import _core

depth = np.random.default_rng(31).random((512, 512), np.float32)
context = hzb.Context(sys.argv[1])
sys.kept = context.build(depth)
top = float(sys.kept[0].max())
module_level = context.build(depth)
hzb.kept = hzb.build(depth, device=sys.argv[1])
cycle = [context.build(depth)]
cycle.append(cycle)
del cycle
if sys.argv[2] == "dropped":
    import gc
    gc.collect()
    del sys.kept, module_level, hzb.kept
"""


@pytest.mark.parametrize("arrays", ["kept", "dropped"])
@pytest.mark.parametrize("hidden", HIDDEN)
def test_the_end_of_a_process(spec, hidden, arrays):
    assert child.run(AT_EXIT, spec, arrays, HZB_HIDE_FEATURES=hidden) == "\n"


FORK = """
import gc, os, sys, warnings
import numpy as np
import hzb
import hzb.reference
from hzb import _core

warnings.simplefilter("ignore", DeprecationWarning)
depth = np.random.default_rng(31).random((512, 512), np.float32)
want = [level.tobytes() for level in hzb.reference.build(depth)]

def check(build):
    assert [level.tobytes() for level in build(depth)] == want

def in_child(action):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0

def build_in_child(depth):
    return hzb.build(depth, device=sys.argv[2])

def work():
    levels[0][...] = 2
    assert (levels[0] == 2).all()
    check(build_in_child)
    check(build_in_child)
    assert (levels[0] == 2).all()
    while levels:
        del levels[0]
    gc.collect()
    check(build_in_child)

context = hzb.Context(sys.argv[1])
check(context.build)
levels = context.build(depth)
assert _core._blocks() == {"all": 163840, "idle": 0}
in_child(work)
levels[0][...] = 1
check(context.build)
assert _core._blocks() == {"all": 2 * 163840, "idle": 163840}
assert (levels[0] == 1).all()
del levels
# The one that both had is freed, not kept.
assert _core._blocks() == {"all": 163840, "idle": 163840}
check(context.build)
levels = context.build(depth)
in_child(lambda: (levels.clear(), context.close()))
in_child(context.close)
context.close()
print(*_core._take_validation_messages(), sep="\\n")
"""


@pytest.mark.parametrize("hidden", HIDDEN)
def test_forks(device, spec, hidden):
    # Hardware, and SwiftShader, cannot be opened again in a child whose parent has it open.
    again = device.kind == "native" or device.driver_name == "llvmpipe"
    child_spec = spec if again else "cpu"
    assert child.run(FORK, spec, child_spec, HZB_HIDE_FEATURES=hidden) == "\n"
