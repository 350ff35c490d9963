"""Processes: their end, forks, pools of workers; each with the validation layer and the guard.

The guard (guard_layer.c) ends a process that calls Vulkan after the end or on what its parent made,
so a test here passes only if nobody does.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import child
import guard
import pytest

import hzb

# How every process begins. `finish` runs after hzb's own exit hook, which is registered later.
START = """
import atexit
import ctypes
import json
import os
import pickle
import signal
import sys
import threading
import time
import warnings

# What hangs ends, long after it should have.
signal.alarm(300)

def before_finish():
    pass

def finish():
    before_finish()
    if "HZB_GUARD_LIBRARY" in os.environ:
        ctypes.CDLL(os.environ["HZB_GUARD_LIBRARY"]).hzb_guard_end()
    assert _core._take_validation_messages() == []

atexit.register(finish)
# That a process with threads forks, which is what is tried here.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

import numpy as np
import hzb
import hzb.reference
from hzb import _core
from workers import ONE

depth = np.random.default_rng(7).random((5, 21, 34), np.float32)

def is_right(levels, of=depth):
    (want,) = hzb.reference.build(of, levels=1)
    return [level.tobytes() for level in levels] == [want.tobytes()]

def refusal(action, *args, Error=hzb.Error, **options):
    try:
        action(*args, **options)
    except Error as error:
        return str(error)

def fork(work):
    '''Run a function in a forked child, which must end well; give the text that it returned.'''
    sys.stdout.flush()
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        signal.alarm(100)
        try:
            os.write(writer, work().encode())
            os._exit(0 if _core._take_validation_messages() == [] else 9)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(8)
    os.close(writer)
    with open(reader) as file:
        told = file.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    return told
"""

# `work` builds for ever, each build for a second or so.
WORK = """
context = hzb.Context()
context.build(depth, **ONE)
frame = np.broadcast_to(depth[0, 0, 0], (25 if "Swift" in repr(context) else 800, 512, 512))

def work():
    while not refusal(context.build, frame, **ONE):
        pass
"""
WORK_IN_A_THREAD = (
    WORK
    + """
before = _core._fault_calls("vulkan")
thread = threading.Thread(target=work, daemon=True)
thread.start()
time.sleep(0.2)
while _core._fault_calls("vulkan") < before + 6 and context.device.kind != "native":
    time.sleep(0.001)
"""
)

HARDWARE_REFUSED = (
    "this process was forked after its parent used the GPU driver, which cannot be initialised "
    "again here: use the spawn or forkserver start method, or make the first hzb call after the "
    "fork"
)
OPEN_REFUSED = (
    "this process was forked while its parent had {name} open, whose driver cannot be used in such "
    "a child: use the spawn or forkserver start method, or make the first hzb call after the fork"
)


def is_hardware(record):
    return record.kind not in {"software", "native"}


@pytest.fixture(scope="session")
def guarded(tmp_path_factory):
    """Give the variables that put the guard under a process."""
    return guard.install(tmp_path_factory.mktemp("guard"))


@pytest.fixture
def process(spec, guarded):
    """Give a function that runs code in a process with the guard, whose default is the device."""

    def run(code, *arguments, **variables):
        variables = {**guarded, "HZB_DEVICE": spec, **variables}
        return child.run(START + code, *arguments, **variables)

    return run


@pytest.fixture
def refused(device):
    """Tell how builds are refused in a child that was forked when its parent had built; or None."""
    if device.kind == "native":
        return None
    if any(map(is_hardware, hzb.devices())):
        return HARDWARE_REFUSED
    return None if device.driver_name == "llvmpipe" else OPEN_REFUSED.format(name=device.name)


@pytest.mark.vulkan
def test_the_guard_is_there(process):
    with pytest.raises(AssertionError, match=r"status -6\n\s*vk[A-Z].*: called after the end"):
        process("hzb.devices(); finish(); hzb.build(depth)")


# A driver that fails

FAILING_DRIVER = """
import logging

lines = []
logging.getLogger("hzb").addFilter(lambda record: lines.append(record.getMessage()))
index = next(record.index for record in hzb.devices() if record.kind != "native")

_core._arm_fault("vulkan", 0)
hzb.Context(index).close()
calls = _core._fault_calls("vulkan")
live = _core._live()
for nth in range(1, calls + 1):
    _core._arm_fault("vulkan", nth)
    told = refusal(hzb.Context, index, Error=hzb.OutOfMemoryError)
    _core._arm_fault("vulkan", nth)
    with hzb.Context() as context:
        assert (context.device.kind == "native") == bool(told), (nth, told)
    del context
    assert _core._live() == live
    os.environ["HZB_DEVICE"] = str(index)
    _core._arm_fault("vulkan", nth)
    assert refusal(hzb.Context, Error=hzb.OutOfMemoryError) == told
    del os.environ["HZB_DEVICE"]

# What is shared stays what it is.
_core._arm_fault("vulkan", 1)
assert is_right(hzb.build(depth, **ONE))
assert is_right(hzb.build(depth, **ONE))
assert _core._fault_calls("vulkan") == 1
assert is_right(hzb.build(depth, device="cpu", **ONE))
assert is_right(hzb.build(depth, device=index, **ONE))
assert _core._fault_calls("vulkan") > 1
print(json.dumps(lines))
"""


@pytest.mark.vulkan
def test_hardware_that_cannot_be_opened(device, guarded):
    """The default is then the processor; a device that is named is not replaced."""
    pretended = {} if is_hardware(device) else {**guarded, "HZB_GUARD_HARDWARE": "1"}
    (line,) = json.loads(child.run(START + FAILING_DRIVER, HZB_DEVICE=None, **pretended))
    assert line.startswith('building on the processor (device "cpu"): ')
    assert " cannot be opened: vk" in line
    assert "VK_ERROR_OUT_OF_DEVICE_MEMORY" in line


# The end


def test_exit_hooks_and_destructors(process):
    """Exit functions registered after hzb was imported still build; what comes later is refused."""
    code = """
import weakref

kept = hzb.Context()

class Late:
    def __init__(self, name):
        self.name = name

    def __del__(self, build=hzb.build, refusal=refusal, depth=depth, write=os.write):
        write(1, f"{self.name} {refusal(build, depth)}\\n".encode())

def late_hook():
    Late("hook")
    watched.clear()
    print("kept", kept.closed, kept.device in hzb.devices(), refusal(kept.build, depth))
    print("another", refusal(hzb.Context), flush=True)

def early_hook():
    assert is_right(hzb.build(depth, **ONE))
    assert is_right(kept.build(depth, **ONE))

before_finish = late_hook
atexit.register(early_hook)
one = Late("global")
cycle = [Late("cycle")]
cycle.append(cycle)
_core.kept = Late("module")
watched = [type("Watched", (), {})()]
watcher = weakref.ref(watched[0], lambda _: Late("callback"))
"""
    told = dict(line.split(" ", 1) for line in process(code).splitlines())
    assert told.pop("kept").startswith("True True the context on ")
    assert told.keys() == {"hook", "another", "global", "cycle", "module", "callback"}
    for words in told.values():
        assert words.startswith("this process is ending, and hzb has given its devices back")


@pytest.mark.parametrize("mode", ["", "1"], ids=["plain", "dev"])
def test_exit_while_a_thread_builds(process, mode):
    code = "assert sys.flags.dev_mode == bool(sys.argv[1:])"
    process(WORK_IN_A_THREAD + code, *mode, PYTHONDEVMODE=mode)


def test_exit_after_an_interrupted_build(process):
    code = """
def interrupt(*_):
    raise TimeoutError

signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    work()
except TimeoutError:
    print("interrupted")
"""
    assert process(WORK + code) == "interrupted\n"


def test_interrupt_from_the_keyboard(spec, guarded):
    code = START + WORK + "print('ready', flush=True)\nwork()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env=child.environment(**guarded, HZB_DEVICE=spec),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert errors.endswith("\nKeyboardInterrupt\n")
    assert process.returncode == -signal.SIGINT


# Forks


def test_fork_before_the_first_call(process, device):
    code = """
def work():
    assert is_right(hzb.build(depth, **ONE))
    return hzb.Context().device.name

assert fork(work) == sys.argv[1]
assert is_right(hzb.build(depth, **ONE))
"""
    process(code, device.name)


FORK = """
import logging

lines = []
logging.getLogger("hzb").addFilter(lambda record: lines.append(record.getMessage()))
context = hzb.Context()
unopened = pickle.loads(pickle.dumps(context))
records = hzb.devices()
kept = [context.build(depth, **ONE), hzb.build(depth, **ONE)]

def goes_on():
    return is_right(context.build(depth, **ONE)) and is_right(hzb.build(depth, **ONE))

def work():
    global context
    assert hzb.devices() == records
    assert all(map(is_right, kept))
    held = [refusal(context.build, depth), refusal(hzb.build, depth, context=context)]
    new = [
        refusal(hzb.build, depth, **ONE),
        refusal(hzb.build, depth, device=os.environ["HZB_DEVICE"], **ONE),
        refusal(hzb.Context),
        refusal(unopened.build, depth, **ONE),
    ]
    if not any(new):
        assert is_right(hzb.build(depth, **ONE))
        assert fork(lambda: str(refusal(hzb.build, depth, **ONE))) == "None"
    assert hzb.devices() == records
    assert context.device == records[context.device.index]
    context.close()
    assert context.closed
    del context
    # What nobody names may be another device.
    del os.environ["HZB_DEVICE"]
    assert is_right(hzb.build(depth, **ONE))
    return json.dumps([held, new, lines])

print(fork(work))
assert goes_on()
# The child of a program that runs to its end, exit functions included.
if os.fork() == 0:
    sys.exit()
assert os.wait()[1] == 0
assert goes_on()
"""


def test_fork_after_a_build(process, device, refused):
    held, new, lines = json.loads(process(FORK))
    assert new == [refused] * 4
    assert len(lines) == (refused == HARDWARE_REFUSED)
    of_the_parent = (
        f"the context on {device.name} belongs to the process this one was forked from: make "
        "another with hzb.Context(device=…), or use the spawn or forkserver start method"
    )
    assert held == [refused or of_the_parent] * 2


@pytest.mark.vulkan
def test_hardware_parent_survives_its_child(device, guarded):
    """Where the device is none the guard has it pass for one, and sees the child call nothing."""
    pretended = {} if is_hardware(device) else {**guarded, "HZB_GUARD_HARDWARE": "1"}
    told = child.run(START + FORK, HZB_DEVICE=device.uuid, **pretended)
    held, new, lines = json.loads(told)
    assert held + new == [HARDWARE_REFUSED] * 6
    assert lines == [f'building on the processor (device "cpu"): {HARDWARE_REFUSED}']


@pytest.mark.vulkan
def test_child_of_a_parent_that_listed_hardware(process):
    code = """
records = hzb.devices()

def work():
    assert hzb.devices() == records
    return str(refusal(hzb.build, depth))

print(fork(work))
assert is_right(hzb.build(depth, **ONE))
"""
    assert process(code, HZB_GUARD_HARDWARE="1") == HARDWARE_REFUSED + "\n"


def test_fork_after_a_context_was_closed(process, refused):
    """What counts for a software driver is what is open."""
    code = """
with hzb.Context() as context:
    context.build(depth, **ONE)
print(fork(lambda: str(refusal(hzb.build, depth, **ONE))))
assert is_right(hzb.build(depth, **ONE))
"""
    told = process(code).strip()
    assert told == (HARDWARE_REFUSED if refused == HARDWARE_REFUSED else "None")


def test_fork_while_another_thread_builds(process, refused):
    """The child has locks of its own, whoever held the parent's, and the parent builds on."""
    code = """
for turn in range(4):
    time.sleep(0.017 * turn)
    assert fork(lambda: str(refusal(hzb.build, depth, **ONE))) == sys.argv[1]
assert thread.is_alive()
"""
    process(WORK_IN_A_THREAD + code, refused)


def test_fork_while_another_thread_opens_contexts(process, refused):
    """The fork waits for the loader, whose locks are nobody's to make anew."""
    code = """
def work():
    while not done:
        with hzb.Context():
            pass

kept = hzb.Context()
done = False
thread = threading.Thread(target=work, daemon=True)
thread.start()
for turn in range(8):
    time.sleep(0.003 * turn)
    assert fork(lambda: str(refusal(hzb.build, depth, **ONE))) == sys.argv[1]
done = True
thread.join()
"""
    process(code, refused)


# Workers

POOL = """
import functools
import multiprocessing
import workers

method = sys.argv[1]
frames = list(depth)
"""


def methods(*names):
    return pytest.mark.parametrize("method", names)


@methods("fork", "spawn", "forkserver")
def test_pool(process, method):
    """The parent makes its first call when the workers are there."""
    code = """
with multiprocessing.get_context(method).Pool(2) as pool:
    for levels, frame in zip(pool.map(workers.build, frames), frames):
        assert is_right(levels, frame)
    (levels,) = pool.map(functools.partial(hzb.build, **ONE), frames[:1])
    assert is_right(levels, frames[0])
    assert is_right(hzb.build(depth, **ONE))
    assert all(messages == [] for _, messages in pool.map(workers.messages, range(8)))
"""
    process(POOL + code, method)


@methods("fork", "spawn", "forkserver")
def test_pool_of_a_parent_that_has_built(process, method, refused):
    code = """
assert is_right(hzb.build(depth, **ONE))
with multiprocessing.get_context(method).Pool(2) as pool:
    try:
        for levels, frame in zip(pool.map(workers.build, frames), frames):
            assert is_right(levels, frame)
    except hzb.Error as error:
        print(error)
assert is_right(hzb.build(depth, **ONE))
"""
    told = process(POOL + code, method).strip()
    assert told == (refused or "" if method == "fork" else "")


def test_data_loader(process, refused):
    """Workers with a queue of indices each and one of results, forked after the parent built."""
    code = """
assert is_right(hzb.build(depth, **ONE))
context = multiprocessing.get_context(method)
results = context.Queue()
queues = [context.Queue() for _ in range(2)]
loaders = [
    context.Process(target=workers.serve, args=(queue, results, depth), daemon=True)
    for queue in queues
]
for loader in loaders:
    loader.start()
for epoch in range(2):
    for index in range(len(depth)):
        queues[index % 2].put(index)
    found = dict(results.get() for _ in depth)
    for index in range(len(depth)):
        assert is_right(found[index], depth[index])
    assert is_right(hzb.build(depth, **ONE))
for queue in queues:
    queue.put(None)
told = dict(results.get() for _ in loaders)
assert told == {loader.pid: [] for loader in loaders}
for loader in loaders:
    loader.join()
    assert loader.exitcode == 0
"""
    process(POOL + code, "spawn" if refused else "fork")


@methods("spawn", "forkserver")
def test_executor_with_a_pickled_context(process, spec, method):
    code = """
from concurrent.futures import ProcessPoolExecutor

with hzb.Context() as context, ProcessPoolExecutor(
    2, mp_context=multiprocessing.get_context(method)
) as pool:
    for frame in frames[:2]:
        came_as, record, levels = pool.submit(workers.build_here, context, frame).result()
        print(came_as)
        assert record == context.device
        assert is_right(levels, frame)
        assert is_right(context.build(frame, **ONE), frame)
"""
    line = f"<hzb.Context of device {spec}, not opened yet>\n"
    assert process(POOL + code, method) == 2 * line
