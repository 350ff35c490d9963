"""The native path: instruction sets, threads, and what it takes that Vulkan devices do not."""

from __future__ import annotations

import signal
import threading

import algorithms
import child
import numpy as np
import pytest
from bits import assert_same_bits
from golden import CASES

import hzb
import hzb.reference
from hzb import _core

ROUNDINGS = ("conservative", "nearest", "unreal")
# What an error of HZB_CPU lists, and info shows, is what this processor has.
(NATIVE,) = (row for row in _core._device_details() if "instruction_sets" in row)


# Numbers next to where the fast loop ends, by their bit patterns: 0, the smallest that is normal in
# float16, the largest of float16, the least that rounds to infinity, 65536 and infinity.
EDGES = [0, 0x38800000, 0x477FE000, 0x477FF000, 0x47800000, 0x7F800000]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("edge", EDGES, ids=hex)
def test_numbers_around_the_easy_ones(rng, edge, rounding):
    for pattern in (edge - 1) % 2**32, edge, edge + 1:
        number = np.array(pattern, np.uint32).view(np.float32)
        alike = np.full((6, 1400), number)
        for depth in (alike, np.where(rng.random(alike.shape) < 0.3, np.float32(0.25), alike)):
            built = hzb.build(depth, rounding=rounding, bounds="both", device="cpu")
            assert_same_bits(built, hzb.reference.build(depth, rounding=rounding, bounds="both"))


# NaN of either sign and kind, both infinities, -0, -1, and the smallest number there is.
HARD = [
    0x7FC00000,
    0xFFC00000,
    0x7F800001,
    0xFF800001,
    0x7F800000,
    0xFF800000,
    1 << 31,
    0xBF800000,
    1,
]


@pytest.mark.parametrize("bounds", ["furthest", "closest", "both"])
@pytest.mark.parametrize("nan", ["propagate", "ignore"])
@pytest.mark.parametrize("sizing", ["pow2", "floor"])
def test_one_hard_number_among_easy_ones(bounds, nan, sizing):
    """In each place of a footprint, of two columns or three."""
    for pattern in HARD:
        depth = np.full((3, 3, 3, 7), 0.25, np.float32)
        for y in range(3):
            for x in range(3):
                depth.view(np.uint32)[y, x, y, 2 + x] = pattern
        options = {"bounds": bounds, "nan": nan, "sizing": sizing}
        built = hzb.build(depth, device="cpu", **options)
        assert_same_bits(built, hzb.reference.build(depth, **options))


@pytest.mark.parametrize("algorithm", algorithms.WITH_AUTO)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_every_algorithm_is_one_and_the_same(rng, algorithm, rounding):
    depth = rng.standard_normal((2, 131, 70), np.float32)
    built = hzb.build(depth, rounding=rounding, algorithm=algorithm, bounds="both", device="cpu")
    assert_same_bits(built, hzb.reference.build(depth, rounding=rounding, bounds="both"))


def test_plan_is_for_no_device():
    assert _core._describe_plan((3, 850, 850), device="cpu") == {"levels": 10, "dispatches": []}
    with pytest.raises(ValueError, match='"cpu" builds without Vulkan'):
        _core._measure(np.ones((2, 2)), device="cpu")


def test_record():
    *_, record = hzb.devices()
    assert record.kind == "native"
    assert (record.vendor_id, record.device_id, record.driver_name) == (0, 0, "hzb")
    assert record.driver_version == f"{hzb.__version__} {NATIVE['instruction_set']}"
    with open("/proc/meminfo", encoding="ascii") as file:
        assert record.memory <= int(file.readline().split()[1]) * 1024


# Instruction sets

SAMPLE = """
import itertools
import sys

sys.path += sys.argv[2:]
import numpy as np
from bits import assert_same_bits
from golden import CASES

import hzb
import hzb.reference

*_, record = hzb.devices()
assert record.driver_version.endswith(" " + sys.argv[1]), record
for case in CASES:
    assert_same_bits(hzb.build(case.depth, device="cpu", **case.options), case.levels)

def check(depth, **options):
    want = hzb.reference.build(depth, **options)
    assert_same_bits(hzb.build(depth, device="cpu", **options), want)

# Bit patterns of all kinds: numbers of either sign, subnormals, infinities, NaN; and sides that
# leave a rest of every vector, or are longer than a piece of a row.
rng = np.random.default_rng(4)
for shape in ((67, 4203), (129, 65), (3, 31, 17)):
    patterns = rng.integers(0, 2**32, shape, np.uint32)
    ordinary = rng.random(shape, np.float32)
    # Stretches of a row of easy numbers, and of others that a loop for any numbers has to make.
    stretches = np.where(np.arange(shape[-1]) // 700 % 2, ordinary, patterns.view(np.float32))
    negative = np.where(ordinary > 0.99, -ordinary, 0)
    for depth in (patterns.view(np.float32), ordinary, stretches, negative):
        for nan, sizing in itertools.product(("propagate", "ignore"), ("pow2", "floor", "ceil")):
            check(depth, bounds="both", nan=nan, sizing=sizing)
            check(depth, bounds="both", nan=nan, sizing=sizing, dtype="f4")
        for rounding in ("nearest", "unreal"):
            check(depth, bounds="both", rounding=rounding)
for dtype in ("f2", ">f4", "f8", ">f8", "i1", "u1", "i2", ">u2", "i4", "u4", "i8", ">u8"):
    raw = rng.integers(0, 256, (41, 33 * np.dtype(dtype).itemsize), np.uint8)
    check(raw.view(dtype), bounds="both")
print(len(CASES), "golden cases")
"""


@pytest.mark.parametrize("instruction_set", NATIVE["instruction_sets"])
def test_instruction_sets(instruction_set, request):
    tests = request.config.rootpath / "tests"
    said = child.run(SAMPLE, instruction_set, tests, HZB_CPU=instruction_set)
    assert said == f"{len(CASES)} golden cases\n"


@pytest.mark.parametrize("unset", [None, ""])
def test_best_instruction_set_is_used(unset):
    code = "import hzb; print(hzb.devices()[-1].driver_version.split()[-1])"
    assert child.run(code, HZB_CPU=unset) == f"{NATIVE['instruction_sets'][-1]}\n"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("HZB_CPU", "mmx", r"^HZB_CPU: 'mmx' is not an instruction set .*baseline.* or unset it"),
        ("HZB_CPU", "AVX2", "^HZB_CPU: 'AVX2' is not an instruction set"),
        ("HZB_NUM_THREADS", "0", "^HZB_NUM_THREADS: '0' is not a number of threads; set it to 1"),
        ("HZB_NUM_THREADS", "two", "^HZB_NUM_THREADS: 'two' is not"),
    ],
)
def test_wrong_variables(monkeypatch, variable, value, words):
    depth = np.ones((4, 4))
    monkeypatch.setenv(variable, value)
    assert hzb.devices()[-1].kind == "native"
    with pytest.raises(ValueError, match=words):
        hzb.build(depth, device="cpu")
    monkeypatch.setenv(variable, "")
    assert hzb.build(depth, device="cpu")[-1] == 1


# Threads


@pytest.mark.parametrize("threads", ["1", "2", "3", "7"])
@pytest.mark.parametrize("sizing", ["pow2", "floor", "ceil"])
def test_number_of_threads(monkeypatch, rng, threads, sizing):
    monkeypatch.setenv("HZB_NUM_THREADS", threads)
    for shape in ((1031, 1027), (40, 100, 130), (3, 700, 501)):
        depth = rng.standard_normal(shape, np.float32)
        built = hzb.build(depth, sizing=sizing, bounds="both", device="cpu")
        assert_same_bits(built, hzb.reference.build(depth, sizing=sizing, bounds="both"))


def test_contexts_build_side_by_side(monkeypatch, rng):
    monkeypatch.setenv("HZB_NUM_THREADS", "3")
    depth = rng.random((900, 901), np.float32)
    want = hzb.reference.build(depth)
    results = [None] * 6

    def work(index):
        with hzb.Context("cpu") as context:
            results[index] = [context.build(depth) for _ in range(4)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for built in results:
        for levels in built:
            assert_same_bits(levels, want)


def test_threads_that_cannot_be_had():
    code = """
import sys
import numpy as np
import hzb
import hzb.reference
from hzb import _core

depth = np.random.default_rng(8).random((900, 901), np.float32)
want = [level.tobytes() for level in hzb.reference.build(depth)]
for nth in map(int, sys.argv[1:]):
    _core._arm_fault("thread", nth)
    assert [level.tobytes() for level in hzb.build(depth, device="cpu")] == want
    print(_core._fault_calls("thread"), end=" ")
"""
    # The first call makes the lock of the context, the next ones three threads. After one that
    # fails no other is tried until the next build.
    assert child.run(code, 0, 0, HZB_NUM_THREADS="4") == "4 0 "
    assert child.run(code, 2, 2, 0, HZB_NUM_THREADS="4") == "2 2 2 "


def test_fork_right_after_a_build():
    code = """
import os
import numpy as np
import hzb
import hzb.reference

depth = np.random.default_rng(8).random((900, 901), np.float32)
want = [level.tobytes() for level in hzb.reference.build(depth)]
context = hzb.Context("cpu")

def check(**where):
    assert [level.tobytes() for level in hzb.build(depth, **where)] == want

check(device="cpu"), check(context=context)
for turn in range(20):
    check(device="cpu")
    child = os.fork()
    if child == 0:
        check(device="cpu")
        grandchild = os.fork()
        if grandchild == 0:
            check(device="cpu")
            os._exit(0)
        try:
            check(context=context)
        except hzb.Error as error:
            assert "forked" in str(error)
        else:
            os._exit(1)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
check(device="cpu"), check(context=context)
"""
    assert child.run(code, HZB_NUM_THREADS="3") == ""


def test_signal_ends_a_build():
    depth = np.broadcast_to(np.ones((1, 1), np.float32), (3000, 1024, 1024))

    class Stop(Exception):
        pass

    def stop(*_):
        raise Stop

    # The memory of the last frame is written only if the build goes on to the end.
    out = [np.zeros(shape, np.float16) for shape in hzb.level_shapes(depth.shape, levels=1)]
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(Stop):
            hzb.build(depth, levels=1, out=out, device="cpu")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert out[0][-1, -1, -1] == 0
    assert hzb.build(depth[0], device="cpu")[-1] == 1


def test_signal_handler_cannot_use_the_context_it_interrupts():
    depth = np.broadcast_to(np.ones((1, 1), np.float32), (200, 1024, 1024))
    refused = []
    with hzb.Context("cpu") as context, hzb.Context("cpu") as other:

        def handler(*_):
            assert other.build(depth[:2])[-1][0] == 1
            try:
                context.build(depth[0])
            except hzb.Error as error:
                refused.append(str(error))
            signal.setitimer(signal.ITIMER_REAL, 0)

        before = signal.signal(signal.SIGALRM, handler)
        try:
            for _ in range(100):
                signal.setitimer(signal.ITIMER_REAL, 0.001)
                assert (context.build(depth)[-1] == 1).all()
                if refused:
                    break
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert refused[0].startswith("the context is busy in this thread")


def test_threads_end_with_the_process():
    code = """
import atexit

def show_threads():
    with open("/proc/self/status") as status:
        print([line.split()[1] for line in status if line.startswith("Threads:")])

# Called after the hook of hzb, because it is registered before.
atexit.register(show_threads)

import numpy as np
import hzb

hzb.build(np.zeros((900, 901), np.float32), device="cpu")
show_threads()
"""
    said = child.run(code, HZB_NUM_THREADS="4", OPENBLAS_NUM_THREADS="1")
    assert said == "['4']\n['1']\n"
