"""The known-answer check: a driver that gets a kernel wrong is taken off that kernel, and says so.

A wrong answer is planted, but for the last test: it builds a form of the kernel that a driver does
get wrong.
"""

from __future__ import annotations

import _thread
import gc
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
from functools import partial
from operator import methodcaller
from pathlib import Path

import child
import numpy as np
import pytest
from bits import assert_same_bits

import hzb
import hzb.reference
from hzb import _core

pytestmark = pytest.mark.vulkan

ROOT = Path(__file__).parent.parent
# Three tiles by four, so that something is handed on from workgroup to workgroup.
DEPTH = np.random.default_rng(71).random((130, 200), np.float32)
LEVELS = hzb.reference.build(DEPTH)
FOR_EVER = 120


@pytest.fixture
def context(device):
    with hzb.Context(device) as context:
        yield context


@pytest.fixture(autouse=True)
def _nothing_planted():
    yield
    for kind in ("alloc", "vulkan", "device_lost", "known_answer"):
        _core._arm_fault(kind, 0)


def kernels(context, algorithm, shape=DEPTH.shape, **options):
    plan = _core._describe_plan(shape, context=context, algorithm=algorithm, **options)
    return {step["kernel"] for step in plan["dispatches"]}


def trials():
    """Count known cases that were compared since a fault of theirs was armed or disarmed."""
    return _core._fault_calls("known_answer")


def complaints(caplog):
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "hzb" and "known case" in record.getMessage()
    ]


def assert_complaint(message, device, algorithm):
    assert message.startswith(
        f"{device.name}, driver {device.driver_name} {device.driver_version}, gets the kernel of "
        f'algorithm="{algorithm}" wrong'
    )


# A wrong answer


@pytest.mark.parametrize(
    ("algorithm", "instead"), [("single_pass", "two_pass"), ("two_pass", "batched")]
)
def test_a_wrong_answer(device, context, caplog, algorithm, instead):
    assert _core._distrusted(context) == []
    assert kernels(context, algorithm) == {algorithm}
    _core._arm_fault("known_answer", 1)
    assert_same_bits(context.build(DEPTH, algorithm=algorithm), LEVELS)
    # The simplest kernel has no known case.
    made = 2 if instead == "two_pass" else 1
    assert trials() == made
    (message,) = complaints(caplog)
    assert_complaint(message, device, algorithm)
    assert caplog.records[-1].levelname == "WARNING"
    assert _core._distrusted(context) == [algorithm]
    assert kernels(context, algorithm) == {instead}
    # Whatever the size and the options, and without another word.
    assert kernels(context, algorithm, (4, 700, 900), bounds="both", dtype=np.float32) == {instead}
    for depth in (DEPTH, DEPTH[:70, 3:]):
        got = context.build(depth, algorithm=algorithm)
        assert_same_bits(got, hzb.reference.build(depth))
    assert trials() == made
    assert len(complaints(caplog)) == 1
    # What is distrusted is one kernel.
    assert kernels(context, "per_level") == {"per_level"}
    assert kernels(context, "batched") == {"batched"}
    if algorithm == "two_pass":
        assert kernels(context, "single_pass") == {"single_pass"}


@pytest.mark.whole_if_slow
def test_two_wrong_answers(device, context, caplog):
    for options in ({}, {"bounds": "both"}):
        _core._arm_fault("known_answer", 1)
        got = context.build(DEPTH, algorithm="single_pass", **options)
        assert_same_bits(got, hzb.reference.build(DEPTH, **options))
    messages = complaints(caplog)
    assert len(messages) == 2
    for message, algorithm in zip(messages, ("single_pass", "two_pass"), strict=True):
        assert_complaint(message, device, algorithm)
    assert sorted(_core._distrusted(context)) == ["single_pass", "two_pass"]
    assert kernels(context, "single_pass") == kernels(context, "two_pass") == {"batched"}
    _core._arm_fault("known_answer", 1)
    assert_same_bits(context.build(DEPTH, algorithm="single_pass"), LEVELS)
    assert trials() == 0


@pytest.mark.whole_if_slow
def test_another_context_of_the_device_is_trusted(device, context, caplog):
    with hzb.Context(device) as other:
        _core._arm_fault("known_answer", 1)
        context.build(DEPTH, algorithm="single_pass")
        _core._arm_fault("known_answer", 0)
        assert _core._distrusted(context) == ["single_pass"]
        assert _core._distrusted(other) == []
        assert_same_bits(other.build(DEPTH, algorithm="single_pass"), LEVELS)
        assert trials() == 1
        assert kernels(other, "single_pass") == {"single_pass"}
    assert len(complaints(caplog)) == 1


def test_the_shared_context(spec):
    """In a process of its own: the shared context of this one is for other tests."""
    code = """
import logging
import sys

import numpy as np

import hzb
from hzb import _core

logging.basicConfig(format="%(levelname)s %(name)s", stream=sys.stdout)
depth = np.ones((130, 200), np.float32)
_core._arm_fault("known_answer", 1)
for _ in range(2):
    assert hzb.build(depth, device=sys.argv[1], algorithm="single_pass")[-1] == 1
    print(*_core._distrusted(sys.argv[1]))
"""
    assert child.run(code, spec) == "WARNING hzb\nsingle_pass\nsingle_pass\n"


# Which cases, and how often


@pytest.mark.whole_if_slow
def test_a_case_runs_once_for_a_pipeline(context):
    def made(shape, algorithm, **options):
        depth = DEPTH if shape == DEPTH.shape else np.ones(shape, np.float32)
        before = trials()
        context.build(depth, algorithm=algorithm, **options)
        return trials() - before

    variants = [{}, {"bounds": "both"}, {"sizing": "ceil"}]
    assert [made(DEPTH.shape, "single_pass", **options) for options in variants] == [1, 1, 1]
    assert [made(DEPTH.shape, "single_pass", **options) for options in variants] == [0, 0, 0]
    # Neither the number of frames, nor their size, nor that of the chain makes another pipeline,
    # nor a kind of numbers that are float32 once they are there.
    assert made((3, 90, 100), "single_pass") == 0
    assert made(DEPTH.shape, "single_pass", levels=2) == 0
    assert made(DEPTH.shape, "single_pass", view_rect=(1, 2, 150, 110)) == 0
    # Padding that is filled apart does.
    padded = (600, 1100)
    plan = _core._describe_plan(padded, context=context, algorithm="single_pass")
    apart = plan["dispatches"][0]["run"] > 0
    assert apart == plan["storage16"]
    assert made(padded, "single_pass") == apart
    assert made(padded, "single_pass") == 0
    # Each kernel has cases of its own; the simple ones have none.
    assert [made(DEPTH.shape, "two_pass") for _ in range(2)] == [1, 0]
    assert made(DEPTH.shape, "batched") == made(DEPTH.shape, "per_level") == 0


class Thread(threading.Thread):
    """A thread that keeps what its function raises."""

    def __init__(self, function):
        super().__init__(daemon=True)
        self.function, self.error = function, None
        self.start()

    def run(self):
        try:
            self.function()
        except BaseException as error:  # whatever it is, it is for the test to judge
            self.error = error

    def result(self):
        self.join(FOR_EVER)
        assert not self.is_alive()
        if self.error:
            raise self.error


def build_in_threads(context, count=6):
    start = threading.Barrier(count)

    def work():
        start.wait(FOR_EVER)
        for _ in range(3):
            assert_same_bits(context.build(DEPTH, algorithm="single_pass"), LEVELS)

    for thread in [Thread(work) for _ in range(count)]:
        thread.result()


def test_threads_try_a_case_once(context, caplog):
    build_in_threads(context)
    assert trials() == 1
    assert _core._distrusted(context) == []
    assert complaints(caplog) == []


def test_threads_keep_to_a_verdict(context, caplog):
    """Of the threads that planned their builds before one of them found the kernel wrong, too."""
    _core._arm_fault("known_answer", 1)
    build_in_threads(context)
    assert len(complaints(caplog)) == 1
    assert _core._distrusted(context) == ["single_pass"]
    assert trials() == 2


# Cases that come to no end


@pytest.fixture(params=["", pytest.param("unified", marks=pytest.mark.whole_if_slow)])
def memory_like(request, monkeypatch):
    """Have the memory of a processor, then also that of a GPU."""
    monkeypatch.setenv("HZB_HIDE_FEATURES", request.param)


def with_own_context(device, function, *args):
    """Call a function with a context of its own, of which nothing may be left afterwards."""
    gc.collect()
    hzb.Context(device).close()  # which gives up what earlier builds left idle
    live = _core._live()
    with hzb.Context(device) as context:
        result = function(context, *args)
    del context
    gc.collect()
    assert _core._live() == live
    return result


def build_with_fault(context, kind, nth):
    """Give the error or None, whether the fault was met, and whether answers were compared."""
    error = None
    _core._arm_fault("known_answer", 0)
    _core._arm_fault(kind, nth)
    try:
        assert_same_bits(context.build(DEPTH, algorithm="single_pass"), LEVELS)
    except hzb.Error as caught:
        # Its traceback would hold the context.
        error = caught.with_traceback(None)
    met = 0 < nth <= _core._fault_calls(kind)
    _core._arm_fault(kind, 0)
    assert _core._distrusted(context) == []
    return error, met, trials() == 1


def fail_each_call(context, nth, failed):
    """Gather the functions that fail in trials, from the nth call on, until one comes to its end.

    Give the call after, or None where it was one of the build itself that failed.
    """
    while True:
        error, met, compared = build_with_fault(context, "vulkan", nth)
        nth += 1
        if compared:
            assert met, "no call of the build itself was left to fail"
            assert kernels(context, "single_pass") == {"single_pass"}
            assert build_with_fault(context, "vulkan", 0) == (None, False, False)
            # Without an error: memory that a GPU fills has a substitute.
            return None if error else nth
        assert isinstance(error, hzb.OutOfMemoryError)
        failed.add(error.function)


@pytest.mark.usefixtures("memory_like")
def test_calls_that_fail_in_a_trial_leave_no_verdict(device):
    """Whatever fails in one is tried again by the next build, up to the one that succeeds."""
    nth, failed = 1, set()
    while nth:
        nth = with_own_context(device, fail_each_call, nth, failed)
    assert {"vkCreateBuffer", "vkCreateComputePipelines"} <= failed
    assert failed & {"vkWaitForFences", "vkGetFenceStatus"}  # the latter where a GPU is quick


def fail_one_call(context, kind, nth):
    """Give whether a build failed, and whether that was after its trial or not at all."""
    error, met, compared = build_with_fault(context, kind, nth)
    assert error or compared
    if not compared:
        again, _, compared_again = build_with_fault(context, kind, 0)
        if kind == "alloc":
            assert isinstance(error, hzb.OutOfMemoryError)
            # That a trial is made now is because there was no verdict.
            assert compared_again
            assert again is None
            assert kernels(context, "single_pass") == {"single_pass"}
        else:
            assert isinstance(error, hzb.DeviceLostError)
            assert isinstance(again, hzb.DeviceLostError)
            assert not compared_again
    return error is not None, compared and (error is not None or not met)


@pytest.mark.whole_if_slow
@pytest.mark.parametrize("kind", ["alloc", "device_lost"])
def test_trials_without_memory_or_device_leave_no_verdict(device, kind):
    failed, nth, is_last = 0, 0, False
    while not is_last:
        nth += 1
        has_failed, is_last = with_own_context(device, fail_one_call, kind, nth)
        failed += has_failed
    assert failed > 8


def interrupt_a_trial(context):
    def interrupt(*_):
        raise KeyboardInterrupt

    # No bytecode comes between the two calls, so that the handler runs where the build looks.
    calls = [
        partial(_thread.interrupt_main, signal.SIGUSR1),
        partial(context.build, DEPTH, algorithm="single_pass"),
    ]
    old = signal.signal(signal.SIGUSR1, interrupt)
    _core._arm_fault("vulkan", 0)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(map(methodcaller("__call__"), calls))
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert _core._fault_calls("vulkan") > 3  # a trial was begun
    assert trials() == 0
    assert _core._distrusted(context) == []
    assert kernels(context, "single_pass") == {"single_pass"}
    for _ in range(2):
        assert_same_bits(context.build(DEPTH, algorithm="single_pass"), LEVELS)
        assert trials() == 1


def test_an_interrupted_trial_leaves_no_verdict(device):
    with_own_context(device, interrupt_a_trial)


@pytest.mark.usefixtures("memory_like")
def test_a_verdict_outlives_the_build_that_failed(device, caplog):
    """One whose next trial failed: the verdict holds, and the next build tells of it."""
    context = hzb.Context(device)
    for nth in itertools.count(1):
        _core._arm_fault("known_answer", 1)
        _core._arm_fault("vulkan", nth)
        try:
            context.build(DEPTH, algorithm="single_pass")
        except hzb.OutOfMemoryError:
            if trials():
                break
        else:  # memory that a GPU fills has a substitute
            context.close()
            context = hzb.Context(device)
            caplog.clear()
    with context:
        assert _core._distrusted(context) == ["single_pass"]
        assert complaints(caplog) == []
        assert_same_bits(context.build(DEPTH, algorithm="single_pass"), LEVELS)
    (message,) = complaints(caplog)
    assert_complaint(message, device, "single_pass")


# A kernel that a driver does get wrong

# "single_pass" by the letter of the Vulkan memory model: the last workgroup makes level after level
# from the one before, all of which go through the buffers of levels. One count a frame finds it.
FORMAL_MODEL = """#extension GL_KHR_memory_scope_semantics : require
#pragma use_vulkan_memory_model
"""
FORMAL_BARRIER = """    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup,
                   gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
                   gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable |
                       gl_SemanticsMakeVisible);
"""
FORMAL_ADD = """atomicAdd(slots.words[counter], 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer,
                gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible)"""
FORMAL_TAIL = """
uint level_word(uint chain, uint index)
{
#if HZB_STORAGE16
    if (!STORE_FLOAT32)
        return widen(chain == 0u ? uint(level_halves_0.halves[index])
                                 : uint(level_halves_1.halves[index]));
#endif
    uint word = chain == 0u ? level_words_0.words[index] : level_words_1.words[index];
    return STORE_FLOAT32 ? word : widen(word);
}

void finish_levels(uint frame)
{
    for (uint level = FRAME_LEVELS; level < push.levels; level++) {
        uvec2 from = level_size(level - 1u), to = level_size(level);
        uint source = frame_start(level - 1u, from, frame), target = frame_start(level, to, frame);
        // Beyond the tiles are workgroups that fill padding, which are not counted.
        uvec2 last = (level == FRAME_LEVELS ? min(from, push.tiles) : from) - 1u;
        for (uint i = lane_index(); i < to.x * to.y; i += LANES) {
            uvec2 first = min(uvec2(i % to.x, i / to.x) * 2u, last), next = min(first + 1u, last);
            for (uint chain = 0u; chain < CHAINS; chain++) {
                uvec4 words = uvec4(level_word(chain, source + first.y * from.x + first.x),
                                    level_word(chain, source + first.y * from.x + next.x),
                                    level_word(chain, source + next.y * from.x + first.x),
                                    level_word(chain, source + next.y * from.x + next.x));
                ivec4 numbers = order_of(words, chain_is_max(chain));
                int number = min(min(numbers.x, numbers.y), min(numbers.z, numbers.w));
                store_number(chain, target + i, hold(number, chain_is_max(chain)));
            }
        }
BARRIER    }
}

void main()"""

FINISHED = "        finish_levels(frame);\n        return;\n"
AFTER_FRAME = "            return;\n    }\n    for (uint level = FRAME_LEVELS;"
FORMAL_KERNEL = [
    ("#extension GL_GOOGLE", FORMAL_MODEL + "#extension GL_GOOGLE"),
    ("    if (lane_index() == 0u) {\n        uvec2 parts",
     FORMAL_BARRIER + "    if (lane_index() == 0u) {\n        uvec2 parts"),
    ("uvec2 parts = min(of.workgroups - next * 64u, uvec2(64u));",
     "uvec2 parts = of.workgroups;"),
    (" + next.y * next_workgroups(of).x + next.x;", ";"),
    ("atomicAdd(slots.words[counter], 1u)", FORMAL_ADD),
    ("    barrier();\n    return is_last;", FORMAL_BARRIER + "    return is_last;"),
    ("\nvoid main()", FORMAL_TAIL.replace("BARRIER", FORMAL_BARRIER)),
    (AFTER_FRAME, AFTER_FRAME.replace("    }", FINISHED + "    }")),
]  # fmt: skip
FORMAL_DEVICE = [
    (
        "    const VkDeviceCreateInfo info = {\n",
        """    const VkPhysicalDeviceVulkanMemoryModelFeatures model = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES,
        .pNext = (void *)&storage,
        .vulkanMemoryModel = VK_TRUE,
        .vulkanMemoryModelDeviceScope = VK_TRUE,
    };
    const VkDeviceCreateInfo info = {
""",
    ),
    (
        " : &storage,\n        .queueCreateInfoCount",
        " : &model,\n        .queueCreateInfoCount",
    ),
]


def formal_tiles(levels):
    return [
        ("#define LEVEL_ACCESS restrict writeonly", f"#define LEVEL_ACCESS {levels}"),
        ("coherent volatile buffer Slots", "nonprivate buffer Slots"),
        ("coherent volatile buffer SlotQuads", "nonprivate buffer SlotQuads"),
    ]


def rewrite(file, changes, source):
    """Write a file of the copy as the source with some text replaced, each exactly once."""
    text = source.read_text("utf-8")
    for old, new in changes:
        assert text.count(old) == 1, f"{source} has {text.count(old)} times: {old}"
        text = text.replace(old, new)
    file.write_text(text, "utf-8")


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Give a copy of what the extension is built from, with the objects that will stay the same."""
    copy = tmp_path_factory.mktemp("formal")
    for folder in ("csrc", "shaders", "hzb", "licenses", "build/objects", "build/shaders"):
        if (ROOT / folder).is_dir():
            ignored = None if folder.startswith("build") else shutil.ignore_patterns("*.so")
            shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    return copy


FORMAL_CHILD = """
import logging
import sys

sys.path.insert(0, sys.argv[1])

import numpy as np

import hzb
import hzb.reference
from hzb import _core

assert _core.__file__.startswith(sys.argv[1]), _core.__file__
logging.basicConfig(format="%(message)s", stream=sys.stdout)
context = hzb.Context("llvmpipe")
for shape in ((1030, 1100), (333, 700)):
    depth = np.random.default_rng(1).random(shape, np.float32)
    got = context.build(depth, algorithm="single_pass")
    want = hzb.reference.build(depth)
    assert [level.tobytes() for level in got] == [level.tobytes() for level in want]
print("distrusted", *_core._distrusted(context))
print("messages", *_core._take_validation_messages())
"""


@pytest.mark.parametrize("levels", ["devicecoherent", "nonprivate"])
def test_the_formal_memory_model_on_lavapipe(copy, levels):
    """On 22.3 a memory barrier is an execution barrier of the workgroup, too.

    So accesses that are coherent, each with a memory barrier of its own, put the lanes of a
    workgroup out of step in a loop that some of them run more often: the last levels are wrong.
    Plain accesses, made available and visible by the barriers around the loop, are right.
    """
    device = next((d for d in hzb.devices() if d.driver_name == "llvmpipe"), None)
    if device is None or not device.driver_version.startswith("Mesa 22.3."):
        pytest.skip("needs llvmpipe of Mesa 22.3")
    rewrite(copy / "shaders/hzb/tiles.comp", FORMAL_KERNEL, ROOT / "shaders/hzb/tiles.comp")
    rewrite(copy / "shaders/lib/tiles.glsl", formal_tiles(levels), ROOT / "shaders/lib/tiles.glsl")
    rewrite(copy / "csrc/vulkan/device.c", FORMAL_DEVICE, ROOT / "csrc/vulkan/device.c")
    environment = {name: value for name, value in os.environ.items() if name != "HZB_SANITIZE"}
    built = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=copy, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout
    *warnings, distrusted, messages = child.run(FORMAL_CHILD, copy).splitlines()
    assert messages == "messages"
    if levels == "nonprivate":
        assert (warnings, distrusted) == ([], "distrusted")
    else:
        assert distrusted == "distrusted single_pass"
        (warning,) = warnings
        assert_complaint(warning, device, "single_pass")
