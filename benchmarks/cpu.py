"""Time from array to arrays on the native path, beside what one would write otherwise.

    python benchmarks/cpu.py [--threads 1 2] [--sizes 1920x1080 …] [--markdown FILE] [--json FILE]

Figures are medians over float32 frames that come in turn, twelve of a size, so that none is in a
cache; the rows take turns too, a series over all frames each, so that all of them see the same
machine. Beside `hzb` on the device "cpu": `d.min()` and a copy, which read a frame once on one
thread, and the chains of rivals.py, with as many threads as `hzb` has where they can have more than
one. Their levels are first compared with those of `hzb`, bit for bit. Both bounds are two chains to
all but `hzb`.

Further tables are `hzb` with lesser instruction sets, on frames of special numbers beside random
ones of [0, 1), and calls on a frame so small that the call is what counts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import sys
import time

import numpy as np
from rivals import RIVALS

import hzb
from hzb import _core

FRAMES = 12
SIZES = ["2048x1024", "1920x1080", "3840x2160"]
# A row that takes longer is left out of all rounds but the first: its median is firm enough.
SLOW_MS = 20
SPECIAL_SIZE = "1920x1080"
SMALL_CALLS = 5000
READ = "d.min(), one thread"
COPY = "copy, one thread"
BOUNDS = ("furthest", "both")

# What hzb is to reach. On one thread: its time to that of d.min(), and that of NumPy to its own.
ONE_THREAD = {"furthest": (2.5, 8), "both": (3.0, 12)}
# PyTorch's time to its own, with as many threads; and its own on one thread to that on two.
PYTORCH, TWO_THREADS = 1.5, 1.6
# In ms, on sixteen threads.
SIXTEEN_THREADS = {
    "1920x1080": {"furthest": 0.20, "both": 0.25},
    "3840x2160": {"furthest": 0.7, "both": 1.1},
}
# Special frames to random ones; a small call, in µs.
SPECIAL, SMALL_US = 1.5, 5


def series(run, frames):
    """Time a run over all frames in turn, in ms; one run before that is not counted."""
    run(frames[-1])
    times = []
    for frame in frames:
        start = time.perf_counter()
        run(frame)
        times.append((time.perf_counter() - start) * 1e3)
    return times


def medians(rows, rounds):
    """Time rows, which are a function and its frames by name, in turn."""
    times = {name: [] for name in rows}
    for turn in range(rounds):
        for name, (run, frames) in rows.items():
            if not turn or statistics.median(times[name]) < SLOW_MS:
                times[name] += series(run, frames)
    return {name: statistics.median(values) for name, values in times.items()}


def random_frames(size, count=FRAMES):
    width, height = map(int, size.split("x"))
    generator = np.random.default_rng(0)
    return [generator.random((height, width), np.float32) for _ in range(count)]


def builder(context, bounds, instruction_set=None):
    """Return a function that builds, with an instruction set other than the best if it is given."""

    def build(depth):
        context.build(depth, bounds=bounds)

    def build_with(depth):
        os.environ["HZB_CPU"] = instruction_set
        build(depth)
        del os.environ["HZB_CPU"]

    return build_with if instruction_set else build


# ---- beside others ----


def bits(level):
    return np.asarray(level).view(np.uint16)


def check(name, chain, depth):
    """Compare the levels of a rival with those of hzb, bit for bit."""
    both = hzb.build(depth, bounds="both", rounding="nearest", device="cpu")
    for takes_max, wanted in enumerate(both):
        levels = chain(depth, takes_max)
        if not all(np.array_equal(bits(a), bits(b)) for a, b in zip(levels, wanted, strict=True)):
            raise SystemExit(f"{name} gives other levels than hzb at {depth.shape}")


def beside_others(context, threads, size, rounds, rivals):
    """Return the times of all rows at one size, in ms."""
    frames = random_frames(size)
    target = np.empty_like(frames[0])
    runs = {READ: np.min, COPY: lambda depth: np.copyto(target, depth)}
    runs |= {f"hzb, {bounds}": builder(context, bounds) for bounds in BOUNDS}
    for rival in rivals:
        chain = rival.make_chain()
        if rival.set_threads:
            rival.set_threads(threads)
        check(rival.name, chain, frames[0])
        runs[f"{rival.name}, furthest"] = lambda depth, chain=chain: chain(depth, False)
        runs[f"{rival.name}, both"] = lambda depth, chain=chain: [chain(depth, i) for i in (0, 1)]
    return medians({name: (run, frames) for name, run in runs.items()}, rounds)


def by_instruction_set(context, rounds):
    """Return the times of reading a frame and of chains, in ms, by instruction set and bounds."""
    (native,) = (row for row in _core._device_details() if "instruction_sets" in row)
    frames = random_frames(SPECIAL_SIZE)
    rows = {READ: (np.min, frames)}
    for name in native["instruction_sets"]:
        for bounds in BOUNDS:
            rows[f"{name}, {bounds}"] = (builder(context, bounds, name), frames)
    return medians(rows, rounds)


# ---- special numbers ----


def sprinkled(*values):
    """Put each value into one pixel of a hundred."""

    def change(frame, generator):
        for value in values:
            chosen = generator.random(frame.shape, np.float32) < 0.01
            frame = np.where(chosen, np.float32(value), frame)
        return frame

    return change


def scaled(factor, shift=0.0):
    return lambda frame, generator: (frame - np.float32(shift)) * np.float32(factor)


def bit_patterns(frame, generator):
    return generator.integers(0, 2**32, frame.shape, np.uint32).view(np.float32)


SPECIALS = {
    "random in [0, 1)": scaled(1),
    "1 % NaN": sprinkled(np.nan),
    "all NaN": scaled(np.nan),
    "all negative": scaled(-1),
    "half negative": scaled(1, 0.5),
    "1 % −0": sprinkled(-0.0),
    "all subnormal in float32": scaled(1e-38),
    "all subnormal in float16": scaled(6e-5),
    "1 % subnormal in float16": sprinkled(1e-6),
    "1 % infinite": sprinkled(np.inf),
    "nearly all beyond float16": scaled(1e6),
    "1 % each of NaN, ∞, −∞, −1, 1e-6": sprinkled(np.nan, np.inf, -np.inf, -1, 1e-6),
    "all bit patterns alike": bit_patterns,
}


def special_numbers(context, rounds):
    """Return times in ms by kind and bounds."""
    ordinary = random_frames(SPECIAL_SIZE, FRAMES // 3)
    rows = {}
    for kind, change in SPECIALS.items():
        generator = np.random.default_rng(1)
        frames = [change(frame, generator) for frame in ordinary] * 3
        for bounds in BOUNDS:
            rows[kind, bounds] = (builder(context, bounds), frames)
    times = medians(rows, rounds)
    return {kind: {bounds: times[kind, bounds] for bounds in BOUNDS} for kind in SPECIALS}


# ---- small calls ----


def small_calls(context):
    """Return the times of calls on a frame of 64x64, in µs."""
    (depth,) = random_frames("64x64", 1)
    record = context.device
    index = record.index
    out = [np.empty(shape, np.float16) for shape in hzb.level_shapes(depth.shape)]
    calls = {
        "context.build(d)": lambda: context.build(depth),
        'context.build(d, bounds="both")': lambda: context.build(depth, bounds="both"),
        "context.build(d, out=out)": lambda: context.build(depth, out=out),
        'hzb.build(d, device="cpu")': lambda: hzb.build(depth, device="cpu"),
        "hzb.build(d, device=record)": lambda: hzb.build(depth, device=record),
        "hzb.build(d, device=index)": lambda: hzb.build(depth, device=index),
    }
    times = {name: [] for name in calls}
    for _ in range(10):
        for name, call in calls.items():
            for _ in range(SMALL_CALLS // 10):
                start = time.perf_counter()
                call()
                times[name].append((time.perf_counter() - start) * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


# ---- the record ----


def facts_of(context, rivals):
    return {
        "date": datetime.date.today().isoformat(),
        "command": f"`{shlex.join(['python', *sys.argv])}`",
        "processor": f"{context.device.name}; {len(os.sched_getaffinity(0))} of "
        f"{os.cpu_count()} cores usable",
        "hzb": context.device.driver_version,
        "Python": platform.python_version(),
        **{rival.name: f"{rival.version()}; {rival.how}" for rival in rivals},
        "not there": ", ".join(r.name for r in RIVALS if r not in rivals) or "none of them",
    }


class Targets:
    """Says of each target whether it was met."""

    def __init__(self):
        self.rows = []

    def hold(self, what, value, at, limit):
        met = value <= limit if at == "at most" else value >= limit
        self.rows.append([what, f"{value:.2f}", f"{at} {limit:g}", "met" if met else "**missed**"])


def hold_chains(times, threads, size, where, targets):
    for bounds, (read, numpy) in ONE_THREAD.items():
        own = times[f"hzb, {bounds}"]
        if threads == 1:
            targets.hold(f"{where}, {bounds}: to d.min()", own / times[READ], "at most", read)
            ratio = times[f"NumPy, {bounds}"] / own
            targets.hold(f"{where}, {bounds}: NumPy to it", ratio, "at least", numpy)
        if threads == 16 and size in SIXTEEN_THREADS:
            targets.hold(f"{where}, {bounds}, ms", own, "at most", SIXTEEN_THREADS[size][bounds])
        if f"PyTorch, {bounds}" in times:
            ratio = times[f"PyTorch, {bounds}"] / own
            targets.hold(f"{where}, {bounds}: PyTorch to it", ratio, "at least", PYTORCH)


def table(*rows):
    header, *body = [[str(cell) for cell in row] for row in rows]
    lines = [header, ["---"] * len(header), *body]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table_of_chains(times, names):
    """Give all times, and of those of hzb the ratios to what others take for the same."""
    rows = [["", "ms", "to d.min()", *(f"{name} to it" for name in names)]]
    for name, own in times.items():
        who, _, bounds = name.partition(", ")
        ratios = [f"{times[f'{other}, {bounds}'] / own:.1f}" for other in names if who == "hzb"]
        rows.append(
            [name, f"{own:.3f}", f"{own / times[READ]:.2f}", *(ratios or [""] * len(names))]
        )
    return table(*rows)


def pages_of_chains(chains, names, targets):
    for size, by_threads in chains.items():
        for threads, times in by_threads.items():
            where = f"{size}, {threads} thread{'s' if threads > 1 else ''}"
            yield f"## {where}"
            yield table_of_chains(times, names)
            hold_chains(times, threads, size, where, targets)
        if {1, 2} <= by_threads.keys():
            for bounds in BOUNDS:
                gain = by_threads[1][f"hzb, {bounds}"] / by_threads[2][f"hzb, {bounds}"]
                targets.hold(f"{size}, {bounds}: one to two threads", gain, "at least", TWO_THREADS)


def table_of_specials(special, targets):
    rows = [["", "furthest, ms", "to random", "both, ms", "to random"]]
    first = next(iter(special.values()))
    for kind, times in special.items():
        rows.append([kind])
        for bounds, own in times.items():
            rows[-1] += [f"{own:.3f}", f"{own / first[bounds]:.2f}"]
            if times is not first:
                targets.hold(f"{kind}, {bounds}", own / first[bounds], "at most", SPECIAL)
    return table(*rows)


def page(record, rivals):
    """Write the record as Markdown, with what was missed."""
    targets = Targets()
    instructions, small = record["instruction sets"], record["small"]
    parts = [
        f"# The native path beside others, {record['facts']['date']}",
        "Medians in ms over twelve float32 frames in turn, of the furthest bound or both. The\n"
        'levels of all others are those of `hzb` with `rounding="nearest"`, compared bit for bit;\n'
        "`hzb` is timed with its default rounding, which keeps a bound a bound.",
        table(["", ""], *record["facts"].items()),
        *pages_of_chains(record["chains"], [rival.name for rival in rivals], targets),
        f"## Instruction sets, {SPECIAL_SIZE}, 1 thread",
        table_of_chains(instructions, []),
        f"## Special numbers, {SPECIAL_SIZE}, 1 thread",
        table_of_specials(record["special"], targets),
        "## A call on 64x64, 1 thread",
        table(["", "µs"], *([f"`{call}`", f"{own:.2f}"] for call, own in small.items())),
    ]
    for name, own in instructions.items():
        if name != READ:
            limit, _ = ONE_THREAD[name.partition(", ")[2]]
            targets.hold(f"{name}: to d.min()", own / instructions[READ], "at most", limit)
    targets.hold("64x64 through a context, µs", small["context.build(d)"], "at most", SMALL_US)
    parts += ["## Targets", table(["", "here", "target", ""], *targets.rows)]
    return "\n\n".join(parts) + "\n"


def main():
    usable = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    threads = sorted({1, min(2, usable), usable})
    parser.add_argument("--threads", nargs="+", type=int, default=threads, metavar="N")
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="WIDTHxHEIGHT")
    parser.add_argument("--rounds", type=int, default=5, help="series of each row (default: 5)")
    parser.add_argument("--markdown", help="write the record to this file, too")
    parser.add_argument("--json", help="write the figures to this file, too")
    arguments = parser.parse_args()

    os.environ.pop("HZB_CPU", None)
    rivals = [rival for rival in RIVALS if rival.version()]
    with hzb.Context("cpu") as context:
        record = {"facts": facts_of(context, rivals), "chains": {}}
        for size in arguments.sizes:
            of_size = record["chains"][size] = {}
            for threads in arguments.threads:
                os.environ["HZB_NUM_THREADS"] = str(threads)
                of_size[threads] = beside_others(context, threads, size, arguments.rounds, rivals)
        os.environ["HZB_NUM_THREADS"] = "1"
        record["instruction sets"] = by_instruction_set(context, arguments.rounds)
        record["special"] = special_numbers(context, arguments.rounds)
        record["small"] = small_calls(context)
    text = page(record, rivals)
    print(text)
    if arguments.markdown:
        with open(arguments.markdown, "w", encoding="utf-8") as file:
            file.write(text)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
