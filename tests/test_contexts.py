"""Contexts in use: shared ones, threads, signals, destructors, close under use, lost devices.

What a Context looks like is in test_api.py, what processes do to one another in test_processes.py.
"""

from __future__ import annotations

import gc
import itertools
import re
import signal
import threading
import time
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from bits import assert_same_bits

import hzb
import hzb.reference
from hzb import _core

RNG = np.random.default_rng(6)
DEPTH = RNG.random((2, 21, 34), np.float32)
LEVELS = hzb.reference.build(DEPTH)
# One small pipeline, so that contexts of their own are not dear.
ONE = {"levels": 1, "algorithm": "per_level"}
LEVEL = hzb.reference.build(DEPTH, levels=1)

# Long after anything here is done; only a deadlock takes longer.
FOR_EVER = 120


class Long:
    """Depth whose build takes about a second, most of it in waits; it is one frame repeated."""

    def __init__(self, context):
        frame = RNG.random((512, 512), np.float32)
        (self.level,) = hzb.reference.build(frame, levels=1)
        frames, seconds = 1, 0
        while seconds < 1:
            frames *= 2
            self.depth = np.broadcast_to(frame, (frames, *frame.shape))
            start = time.perf_counter()
            context.build(self.depth, **ONE)
            seconds = time.perf_counter() - start

    def check(self, levels):
        (level,) = levels
        assert_same_bits([level], [np.broadcast_to(self.level, level.shape)])


@pytest.fixture
def context(device):
    with hzb.Context(device) as context:
        yield context


@pytest.fixture(scope="module")
def long(device):
    with hzb.Context(device) as context:
        return Long(context)


def calls():
    """Count Vulkan calls; each look at a submission is one, every twentieth of a second."""
    return _core._fault_calls("vulkan")


def wait_until(condition):
    end = time.monotonic() + FOR_EVER
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Thread(threading.Thread):
    """A thread that keeps what its function returns or raises."""

    def __init__(self, function, *args, **keywords):
        super().__init__(daemon=True)
        self.call = lambda: function(*args, **keywords)
        self.start()

    def run(self):
        self.value = self.error = None
        try:
            self.value = self.call()
        except BaseException as error:  # whatever it is, it is for the test to judge
            self.error = error

    def result(self):
        self.join(FOR_EVER)
        assert not self.is_alive()
        if self.error:
            raise self.error
        return self.value


@contextmanager
def building(context, long):
    """Run a long build in another thread; what is inside begins while that waits for the driver."""
    before = calls()
    thread = Thread(context.build, long.depth, **ONE)
    wait_until(lambda: calls() >= before + 8 or not thread.is_alive())
    assert thread.is_alive(), "the build was too short for this test"
    yield thread
    long.check(thread.result())


@contextmanager
def interrupting(handler, after=3):
    """Have a signal handler run in this thread's build, once that has made some Vulkan calls."""
    before = calls()

    def send():
        wait_until(lambda: calls() >= before + after)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    old = signal.signal(signal.SIGUSR1, lambda *_: handler())
    sender = Thread(send)
    try:
        yield
    finally:
        sender.result()
        signal.signal(signal.SIGUSR1, old)


def time_out():
    raise TimeoutError


# Life


def test_closed_context(device):
    context = hzb.Context(device)
    context.build(DEPTH, **ONE)
    for _ in range(2):
        assert context.close() is None
    words = rf"^the context on {re.escape(device.name)} is closed: make another with hzb\.Context"
    with pytest.raises(hzb.Error, match=words):
        context.build(DEPTH)
    with pytest.raises(hzb.Error, match=words):
        hzb.build(DEPTH, context=context)
    with pytest.raises(hzb.Error, match="is closed"), context:
        pass
    assert context.device == device


def test_calls_that_name_a_device_share_its_context(device, spec):
    specs = [device, device.index, str(device.index), spec, spec.upper() if device.uuid else spec]
    hzb.build(DEPTH, device=device, **ONE)
    live = _core._live()
    for same in specs:
        hzb.build(DEPTH, device=same, **ONE)
        assert _core._live() == live


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


CYCLES = [200, pytest.param(2000, marks=pytest.mark.whole)]


@pytest.mark.parametrize("count", CYCLES)
def test_many_contexts_in_turn(device, count):
    """Every fiftieth builds: making a pipeline is what takes time."""

    def cycle(turn):
        with hzb.Context(device) as context:
            if turn % 50 == 0:
                assert_same_bits(context.build(DEPTH, **ONE), LEVEL)

    for turn in range(10):
        cycle(turn)
    gc.collect()
    live, resident = _core._live(), resident_bytes()
    for turn in range(count):
        cycle(turn)
    gc.collect()
    assert _core._live() == live
    assert resident_bytes() - resident < 16 << 20


# Threads


def test_threads_and_shapes(context):
    """More shapes than a context keeps, in another order in each thread."""
    shapes = [(7 + 9 * i, 60 - 4 * i) for i in range(12)]
    depths = [RNG.random(shape, np.float32) for shape in shapes]
    want = [hzb.reference.build(depth, levels=1) for depth in depths]

    def work(seed):
        for index in np.random.default_rng(seed).permutation(3 * len(shapes)) % len(shapes):
            assert_same_bits(context.build(depths[index], **ONE), want[index])

    for thread in [Thread(work, seed) for seed in range(6)]:
        thread.result()


def test_contexts_in_threads(device):
    live = _core._live()

    def work():
        with hzb.Context(device) as context:
            for _ in range(3):
                assert_same_bits(context.build(DEPTH, **ONE), LEVEL)

    for thread in [Thread(work) for _ in range(5)]:
        thread.result()
    assert _core._live() == live


@pytest.mark.vulkan
def test_nobody_waits_with_the_interpreter_lock(context, long):
    with building(context, long) as first:
        second = Thread(context.build, DEPTH, **ONE)
        seen = {calls() for _ in iter(first.is_alive, False)}
        # This thread saw the first one look at its submission many times, so it ran all the while.
        assert len(seen) > 3
    assert_same_bits(second.result(), LEVEL)


@pytest.mark.vulkan
def test_close_waits_for_the_build_in_flight(context, long):
    with building(context, long) as first:
        closing = Thread(context.close)
        seen = {calls() for _ in iter(first.is_alive, False)}
        assert len(seen) > 3
    closing.result()
    assert context.closed
    with pytest.raises(hzb.Error, match="is closed"):
        context.build(DEPTH)


def test_close_under_use(device):
    """Builds end right or with the words for a closed context, and nothing stays behind."""
    live = _core._live()
    context = hzb.Context(device)
    done = itertools.count()

    def work(context):
        with suppress(hzb.Error):
            while True:
                assert_same_bits(context.build(DEPTH, **ONE), LEVEL)
                next(done)
        with pytest.raises(hzb.Error, match="is closed"):
            context.build(DEPTH)

    threads = [Thread(work, context) for _ in range(4)]
    wait_until(lambda: next(done) > 20)
    context.close()
    for thread in threads:
        thread.result()
    del context, threads, thread
    gc.collect()
    assert _core._live() == live


@pytest.mark.vulkan
def test_destructors_do_not_wait_for_a_build(device, long):
    live = _core._live()
    held = [hzb.Context(device)]
    others = [hzb.Context(device) for _ in range(4)]
    others[0].build(DEPTH, **ONE)
    with building(held[0], long) as thread:
        others.clear()
        # The last reference of this thread, but not the last: the build has one.
        held.clear()
        gc.collect()
        assert thread.is_alive(), "the build was too short for this test"
    del thread
    gc.collect()
    assert _core._live()["vulkan"] == live["vulkan"]


# Signals


@pytest.mark.vulkan
@pytest.mark.parametrize("shared", [False, True], ids=["context", "device"])
def test_signal_handler_that_builds_where_its_thread_builds(device, context, long, shared):
    where = {"device": device} if shared else {"context": context}
    raised = []

    def handler():
        for use in (lambda: hzb.build(DEPTH, **ONE, **where), context.close):
            try:
                use()
            except hzb.Error as error:
                raised.append(str(error))

    with interrupting(handler):
        long.check(hzb.build(long.depth, **ONE, **where))
    # While the shared context is busy, the other one may be closed.
    assert len(raised) == (1 if shared else 2)
    for message in raised:
        assert message.startswith("the context is busy in this thread: a signal handler or final")
    assert context.closed == shared
    assert_same_bits(hzb.build(DEPTH, device=device, **ONE), LEVEL)


@pytest.mark.vulkan
def test_signal_handler_that_builds_elsewhere(device, context, long):
    built = []
    with interrupting(lambda: built.append(hzb.build(DEPTH, device=device, **ONE))):
        long.check(context.build(long.depth, **ONE))
    assert_same_bits(built[0], LEVEL)


@pytest.mark.vulkan
def test_signal_handler_that_raises(context, long):
    """At any time in a build; the next one, of the same memory, is right all the same."""

    def interrupt():
        raise KeyboardInterrupt

    for after in (1, 3, 6):
        with pytest.raises(TimeoutError), interrupting(time_out, after):
            context.build(long.depth, **ONE)
        with pytest.raises(KeyboardInterrupt), interrupting(interrupt, after):
            context.build(long.depth, **ONE)
        assert_same_bits(context.build(DEPTH, **ONE), LEVEL)
    long.check(context.build(long.depth, **ONE))


@pytest.mark.vulkan
def test_close_after_an_interrupted_build(device, long):
    live = _core._live()
    context = hzb.Context(device)
    with pytest.raises(TimeoutError), interrupting(time_out):
        context.build(long.depth, **ONE)
    context.close()
    assert _core._live()["vulkan"] == live["vulkan"]


@pytest.mark.vulkan
def test_signal_handler_that_raises_during_a_wait_for_the_lock(context, long):
    with building(context, long) as thread:
        with pytest.raises(TimeoutError), interrupting(time_out, 1):
            context.build(DEPTH, **ONE)
        with pytest.raises(TimeoutError), interrupting(time_out, 1):
            context.close()
        assert thread.is_alive(), "the build was too short for this test"
        assert not context.closed
    assert_same_bits(context.build(DEPTH, **ONE), LEVEL)


@pytest.mark.vulkan
def test_finaliser_that_builds_in_a_signal_handler(context, long):
    raised = []

    class Last:
        def __del__(self):
            try:
                context.build(DEPTH, **ONE)
            except hzb.Error as error:
                raised.append(str(error))

    held = [Last()]
    with interrupting(held.clear):
        long.check(context.build(long.depth, **ONE))
    assert len(raised) == 1
    assert "busy in this thread" in raised[0]


# Lost devices


@contextmanager
def loss(nth):
    """Have the nth Vulkan call find its device lost."""
    _core._arm_fault("device_lost", nth)
    try:
        yield
    finally:
        _core._arm_fault("device_lost", 0)


@pytest.mark.vulkan
def test_lost_device(device):
    """The loss is found while waiting, with the work still in flight."""
    hzb.Context(device).close()  # lets go of memory that other tests left idle
    live = _core._live()
    # Hardware is asked for a while before it is awaited.
    waits = ("vkWaitForFences", "vkGetFenceStatus")
    for nth in itertools.count(1):
        context = hzb.Context(device)
        context.build(DEPTH, **ONE)
        with loss(nth), pytest.raises(hzb.DeviceLostError) as caught:
            context.build(DEPTH, **ONE)
        if caught.value.function in waits:
            break
        context.close()
    assert (caught.value.result, caught.value.code) == ("VK_ERROR_DEVICE_LOST", -4)
    assert "make a new context" in str(caught.value)
    for _ in range(2):
        with pytest.raises(hzb.DeviceLostError, match="has lost its device: make another with"):
            context.build(DEPTH, **ONE)
    assert not context.closed
    assert context.device == device
    context.close()
    with pytest.raises(hzb.Error, match="is closed"):
        context.build(DEPTH)
    del context, caught
    assert _core._live() == live
    with hzb.Context(device) as another:
        assert_same_bits(another.build(DEPTH, **ONE), LEVEL)


@pytest.mark.vulkan
def test_shared_context_is_made_anew_after_a_loss(device, share_of_sweep):
    """Wherever it is lost: when the device is opened, when the kernel is made, when it runs."""
    with loss(1), pytest.raises(hzb.DeviceLostError):
        hzb.build(DEPTH, device=device, **ONE)
    hzb.build(DEPTH, device=device, **ONE)
    live = _core._live()
    lost = 0
    for nth in itertools.count(1, share_of_sweep):
        with loss(nth):
            try:
                levels = hzb.build(DEPTH, device=device, **ONE)
            except hzb.DeviceLostError:
                lost += 1
                continue
        assert_same_bits(levels, LEVEL)
        break
    assert lost * share_of_sweep > 20
    assert _core._live() == live


@pytest.mark.vulkan
def test_threads_that_lose_their_device(device):
    """All that were at work or in the queue are told, and all go on with the next call."""
    with loss(40):

        def work():
            lost = 0
            for _ in range(20):
                try:
                    assert_same_bits(hzb.build(DEPTH, device=device, **ONE), LEVEL)
                except hzb.DeviceLostError:
                    lost += 1
            return lost

        lost = sum(thread.result() for thread in [Thread(work) for _ in range(4)])
    assert 1 <= lost <= 4
