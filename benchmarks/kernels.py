"""GPU time of the HZB kernels, by timestamps, cold, beside their limits, targets and rivals.

    python benchmarks/kernels.py [--device SPEC] [--sizes 1920x1080 64x1920x1080 …] [--sizings ceil]
                                 [--algorithms auto …] [--seconds N] [--markdown FILE] [--json FILE]
                                 [--no-rivals]

Each figure is a median, with the 10th and 90th percentile, after so much of the same work that the
clocks are up, over frames and results that rotate through more than 400 MB, so that no cache holds
them. In the same run:

- a chain of one texel, which is an empty dispatch between the two timestamps;
- the device's copy bandwidth, where PyTorch can measure it;
- the roof: reading the frame and writing levels 0 and 1, and nothing else;
- targets, set by a prototype on an H200, and the fastest public shader of each size there. An empty
  dispatch took 3.3 µs, so each figure is also given less what it takes more here;
- what one would write in PyTorch and CUDA instead (`gpu_rivals.py`).

An algorithm may be given with the side of its tiles over a frame, as single_pass@64 and @128.
What a submission sets before its kernels, the counts of `single_pass`, is not in the figures.
What a device refuses is a dash, with the reason once. A batch is measured as one submission.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import sys
import time

import gpu_rivals
import numpy as np

import hzb
from hzb import _core

STARTED = time.perf_counter()

SIZES = (
    "1280x720",
    "1920x1080",
    "2560x1440",
    "3840x2160",
    "7680x4320",
    "16384x16384",
    "64x1920x1080",
)
SIZINGS = ("pow2", "ceil")
ALGORITHMS = ("per_level", "batched", "two_pass", "single_pass", "auto")
BOUNDS = ("furthest", "both")
COLD_BYTES = 400e6

ROOF = "roof"
ROOF_OPTIONS = {"algorithm": "two_pass", "levels": 2}

# Microseconds for furthest and both, by SIZES; where they were set an empty dispatch took EMPTY.
EMPTY = 3.3
TARGETS = {
    "pow2": ((9, 9.8), (10.2, 11.4), (13.8, 16), (19.8, 24.5), (57, 71), (300, 365), (172, 230)),
    "ceil": ((8.8, 9.5), (10, 11), (13, 15.5), (18, 22), (46, 58), (300, 365), (165, 220)),
}

# Microseconds for one chain without padding, which is "ceil", of half of its texels. FidelityFX SPD
# is not conservative where a side is odd.
PUBLIC = {
    "1280x720": ("Granite hiz", 9.2),
    "1920x1080": ("Granite hiz", 10.7),
    "2048x1024": ("Granite hiz", 11.1),
    "3840x2160": ("FidelityFX SPD 2", 20.0),
    "4096x4096": ("FidelityFX SPD 2", 30.1),
    "7680x4320": ("FidelityFX SPD 2", 47.1),
    "16384x16384": ("FidelityFX SPD 2", 311),
}

# Those with targets first, in case the time is up before the last.
RIVAL_CELLS = (
    ("1920x1080", "both"),
    ("64x1920x1080", "both"),
    ("1920x1080", "furthest"),
    ("64x1920x1080", "furthest"),
    ("3840x2160", "both"),
    ("3840x2160", "furthest"),
)
# How many times as long torch.compile has to take.
RIVAL_TARGETS = {
    ("1920x1080", "both"): 2.0,
    ("64x1920x1080", "both"): 1.6,
    ("64x1920x1080", "furthest"): 1.6,
}

# Shares of the time that a run may take: series that would end later have less heat, and rivals
# that would start later are left out.
KERNELS_END = 0.58
LESS_HEAT_MS = 80
LAST_START = 0.87
LAST_TUNED_START = 0.71


def seconds():
    return time.perf_counter() - STARTED


def shape_of(size):
    """Turn "64x1920x1080" into (64, 1080, 1920)."""
    *frames, width, height = map(int, size.split("x"))
    return (*frames, height, width)


def random_frames(size):
    """Make frames of depth in [0, 1)."""
    return np.random.default_rng(1).random(shape_of(size), np.float32)


def summary(times):
    """Return the median, 10th and 90th percentile."""
    if len(times) == 1:
        return np.array(times * 3)
    low, *_, high = statistics.quantiles(times, n=10, method="inclusive")
    return np.array([statistics.median(times), low, high])


def rotating_bytes(frame, sizing, bounds, levels=None):
    """Count what a build reads and writes."""
    shapes = hzb.level_shapes(frame.shape, sizing=sizing, levels=levels)
    texels = sum(int(np.prod(shape)) for shape in shapes)
    return frame.nbytes + 2 * texels * (2 if bounds == "both" else 1)


def copies_for(size_bytes):
    """Count the copies that outgrow the caches."""
    return int(min(256, max(2, COLD_BYTES // size_bytes + 1)))


def repeats_for(size_bytes, most):
    """Ask for fewer figures of what takes long and varies little."""
    return min(most, max(40, int(most * 50e6 / size_bytes)))


class Bench:
    """Measures hzb; keeps what was refused, and an eye on the time."""

    def __init__(self, arguments, device):
        self.arguments = arguments
        self.device = device
        self.refusals = {}  # reason: cells
        figures = len(arguments.sizes) * len(arguments.sizings) * len(BOUNDS)
        self.left = self.all = 1 + figures * (1 + len(arguments.algorithms))
        self.short_of_heat = 0

    def refuse(self, cell, error):
        reason = f"{type(error).__name__}: {error}"
        if reason not in self.refusals:
            print(f"  – {cell}: {reason}", flush=True)
        self.refusals.setdefault(reason, []).append(cell)

    def guarded(self, cell, work, *arguments):
        """Return what work gives, or None if it fails, whatever it runs into: the run goes on."""
        try:
            return work(*arguments)
        except Exception as error:
            self.refuse(cell, error)
            return None

    def heat_ms(self):
        done = self.all - self.left
        late = done >= 8 and seconds() / done * self.all > KERNELS_END * self.arguments.seconds
        if not late or self.arguments.heat <= LESS_HEAT_MS:
            return self.arguments.heat
        self.short_of_heat += 1
        return LESS_HEAT_MS

    def plan(self, shape, **options):
        return _core._describe_plan(shape, device=self.device, **options)

    def times(self, frame, heat_ms, options):
        """Return microseconds of one submission."""
        size_bytes = rotating_bytes(
            frame, options["sizing"], options["bounds"], options.get("levels")
        )
        times = _core._measure(
            frame,
            sets=copies_for(size_bytes),
            repeats=repeats_for(size_bytes, self.arguments.repeats),
            heat_ns=int(heat_ms * 1e6),
            device=self.device,
            **options,
        )
        return [time / 1e3 for time in times]

    def figure(self, cell, frame, **options):
        """Return the median and percentiles, or None if it is refused."""
        heat_ms = self.heat_ms()
        self.left -= 1
        try:
            figures = summary(self.times(frame, heat_ms, options))
        except (ValueError, hzb.Error) as error:
            self.refuse(cell, error)
            return None
        median, low, high = (round(float(value), 2) for value in figures)
        return {"median": median, "p10": low, "p90": high}

    def figures_of(self, size, sizing, frame):
        """Yield a row for the roof and for each algorithm: its name and figures by bounds."""
        plans = {}
        rows = {}
        for name in (ROOF, *self.arguments.algorithms):
            row = rows[name] = {}
            algorithm, _, side = name.partition("@")
            _core._set_tile_side(int(side or 0))
            for bounds in BOUNDS:
                cell = f"{size} {sizing} {name} {bounds}"
                options = {"sizing": sizing, "bounds": bounds}
                options.update(ROOF_OPTIONS if name == ROOF else {"algorithm": algorithm})
                try:
                    plan = self.plan(frame.shape, **options)
                    if name == ROOF and len(plan["dispatches"]) != 1:
                        raise ValueError(f"no roof: it takes {len(plan['dispatches'])} dispatches")
                except (ValueError, hzb.Error) as error:
                    self.left -= 1
                    self.refuse(cell, error)
                    row[bounds] = None
                    continue
                same = next(
                    (other for other in rows if plans.get((other, bounds)) == plan), None
                )  # "auto" takes one of the others
                if same and rows[same][bounds]:
                    self.left -= 1
                    row[bounds] = {**rows[same][bounds], "same as": same}
                else:
                    if name != ROOF:
                        plans[name, bounds] = plan
                    row[bounds] = self.figure(cell, frame, **options)
            yield name, row
        _core._set_tile_side(0)


# ---- words ----


def shown(figure):
    if not figure:
        return "–"
    return f"{figure['median']:.2f} ({figure['p10']:.2f}, {figure['p90']:.2f})"


def ratio(figure, other):
    return f"{figure['median'] / other['median']:.2f}" if figure and other else "–"


def held(value, target):
    return "met" if value <= target else f"missed by {value - target:.2f}"


def with_heads(heads, rows):
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def name_of(name, row):
    same = dict.fromkeys(figure.get("same as") for figure in row.values() if figure)
    same.pop(None, None)
    return f"{name} (= {', '.join(same)})" if same else name


def best_of(rows, bounds):
    """Return the name and figure of the fastest algorithm, or None."""
    figures = {name: row[bounds] for name, row in rows.items() if name != ROOF and row.get(bounds)}
    return min(figures.items(), key=lambda item: item[1]["median"], default=None)


def target_of(size, sizing, bounds):
    if size not in SIZES or sizing not in TARGETS:
        return None
    return TARGETS[sizing][SIZES.index(size)][BOUNDS.index(bounds)]


def less_dispatch(figure, empty):
    """Take off what an empty dispatch takes longer than where targets were set."""
    return round(figure["median"] - empty["median"] + EMPTY, 2)


def target_cells(name, figure, target, empty):
    """Return who took how long and whether that is the target, as it is and less the dispatch."""
    if not figure:
        return ["–"] * 4
    less = less_dispatch(figure, empty)
    median = figure["median"]
    return [f"{name} {median:.2f}", held(median, target), f"{less:.2f}", held(less, target)]


TARGET_HEADS = ["size", "sizing", "bounds", "target", "fastest", "", "less", "", "auto", ""]
TARGET_HEADS += TARGET_HEADS[6:8]


def target_rows(size, sizing, rows, empty):
    table = []
    for bounds in BOUNDS:
        target = target_of(size, sizing, bounds)
        best = best_of(rows, bounds)
        if target and best:
            row = [size, sizing, bounds, target, *target_cells(*best, target, empty)]
            row += target_cells("auto", rows.get("auto", {}).get(bounds), target, empty)
            table.append(row)
    return table


PUBLIC_HEADS = ["size", "shader", "µs", "fastest", "", "less", ""]


def public_rows(results, empty):
    for size, (shader, target) in PUBLIC.items():
        best = best_of(results.get((size, "ceil"), {}), "furthest")
        if best:
            yield [size, shader, target, *target_cells(*best, target, empty)]


def kernel_rows(size, rows):
    roof = rows.get(ROOF, {})
    for name, row in rows.items():
        cells = [size, name_of(name, row)]
        for bounds in BOUNDS:
            cells += [shown(row[bounds]), ratio(row[bounds], roof.get(bounds))]
        yield cells


RIVAL_HEADS = ["size", "sizing", "bounds", "rival", "µs", "fastest of hzb", "ratio", "target"]


# ---- in turn ----


def measure_kernels(bench, empty):
    """Return rows of figures by size and sizing, printed as they come."""
    results = {}
    print("\nµs: median (10th, 90th percentile) and ratio to the roof; furthest, then both")
    for size in bench.arguments.sizes:
        frame = random_frames(size)
        for sizing in bench.arguments.sizings:
            rows = results[size, sizing] = {}
            for name, row in bench.figures_of(size, sizing, frame):
                rows[name] = row
                cells = [f"{shown(row[b]):>27} {ratio(row[b], rows[ROOF][b]):>5}" for b in BOUNDS]
                label = name_of(name, row)
                print(f"{size:>12} {sizing:<5} {label:<20} {'  '.join(cells)}", flush=True)
            for _, _, bounds, target, *cells in target_rows(size, sizing, rows, empty):
                said = [
                    f"{figure} {verdict}, less {less} {its_verdict}".replace("– –, less – –", "–")
                    for figure, verdict, less, its_verdict in (cells[:4], cells[4:])
                ]
                print(f"{'':>12} {bounds}, target {target}: {'; '.join(said)}", flush=True)
    print(f"{seconds():.0f} s so far")
    return results


def rival_row(bench, rival, cell, frame, chains, best):
    """Measure one rival and return its row."""
    size, sizing, bounds = cell
    expected = chains.furthest + (chains.closest if bounds == "both" else [])
    size_bytes = rotating_bytes(frame, sizing, bounds)
    times = gpu_rivals.times_of(
        rival,
        frame,
        sizing,
        expected,
        copies_for(size_bytes),
        repeats_for(size_bytes, bench.arguments.repeats),
        bench.arguments.heat / 1e3,
    )
    median, low, high = (round(float(value), 2) for value in summary(times))
    row = {"size": size, "sizing": sizing, "bounds": bounds, "rival": rival.name}
    row |= {"median": median, "p10": low, "p90": high, "hzb": None, "ratio": None, "target": None}
    if best:
        row["hzb"] = f"{best[0]} {best[1]['median']:.2f}"
        row["ratio"] = round(median / best[1]["median"], 2)
        if rival.name.startswith("torch.compile"):
            row["target"] = RIVAL_TARGETS.get((size, bounds))
    return row


def rival_cells(row):
    cells = [row["size"], row["sizing"], row["bounds"], row["rival"], shown(row)]
    cells += [row["hzb"] or "–", row["ratio"] or "–"]
    target = row["target"]
    if not target:
        return [*cells, "–"]
    missing = target - row["ratio"]
    return [*cells, f"{target}: " + ("met" if missing <= 0 else f"missed by {missing:.2f}")]


def measure_rivals(bench, results):
    """Return a row for each rival and cell, printed as they come."""
    arguments = bench.arguments
    cells = [cell for cell in RIVAL_CELLS if cell[0] in arguments.sizes]
    cells = cells or [(size, bounds) for size in arguments.sizes for bounds in BOUNDS]
    print("\nothers, their bits compared with those of hzb first; µs")
    usable = []
    for rival in gpu_rivals.RIVALS:
        if rival.fault:
            print(f"  – {rival.name}: {rival.fault}")
            bench.refusals.setdefault(rival.fault, []).append(rival.name)
        else:
            usable.append(rival)
    if not usable:
        return []
    # Without padding first: it is less work for everyone.
    order = [
        (rival.tuned, sizing, number, rival)
        for rival in usable
        for sizing in arguments.sizings
        if sizing in SIZINGS
        for number in range(len(cells))
    ]
    order.sort(key=lambda turn: turn[:3])
    frames, chains, table = {}, {}, []

    def measured(rival, size, sizing, bounds):
        if size not in frames:
            frames[size] = random_frames(size)
        if (size, sizing) not in chains:
            chains[size, sizing] = hzb.build(
                frames[size], sizing=sizing, bounds="both", device=bench.device
            )
        best = best_of(results.get((size, sizing), {}), bounds)
        cell = (size, sizing, bounds)
        return rival_row(bench, rival, cell, frames[size], chains[size, sizing], best)

    for tuned, sizing, number, rival in order:
        size, bounds = cells[number]
        label = f"{size} {sizing} {rival.name} {bounds}"
        if seconds() > bench.arguments.seconds * (LAST_TUNED_START if tuned else LAST_START):
            bench.refuse(label, TimeoutError("the run's time was up"))
            continue
        started = seconds()
        row = bench.guarded(label, measured, rival, size, sizing, bounds)
        if not row:
            continue
        table.append(row)
        size, sizing, bounds, name, time_shown, best, *verdict = rival_cells(row)
        print(
            f"{size:>12} {sizing:<5} {bounds:<8} {name:<21} {time_shown:>27}  {best} "
            f"{' '.join(map(str, verdict))}   ({seconds() - started:.0f} s)",
            flush=True,
        )
    table.sort(key=lambda row: (row["sizing"], cells.index((row["size"], row["bounds"]))))
    return table


# ---- the record ----


def page(facts, results, rivals, bench, empty):
    """Write the record as Markdown."""
    parts = [
        f"# Kernels beside limits, targets and others: {facts['device']}, {facts['date']}",
        "GPU time in µs, medians (10th, 90th percentile), cold: frames and results rotate through\n"
        "more than 400 MB. Conservative rounding to float16.",
        with_heads(["", ""], facts.items()),
    ]
    for sizing in bench.arguments.sizings:
        rows = [
            cells
            for (size, its_sizing), its_rows in results.items()
            if its_sizing == sizing
            for cells in kernel_rows(size, its_rows)
        ]
        heads = ["size", "kernel", "furthest", "to roof", "both", "to roof"]
        parts += [f"## `{sizing}`", with_heads(heads, rows)]
    parts.append(
        "The roof reads the frame, writes levels 0 and 1 and nothing else: `two_pass` with "
        "`levels=2`."
    )
    rows = [row for key, its_rows in results.items() for row in target_rows(*key, its_rows, empty)]
    if rows:
        parts += [
            "## Targets",
            f'"less": without what an empty dispatch took longer than the {EMPTY} µs of where '
            "targets were set.",
            with_heads(TARGET_HEADS, rows),
        ]
    rows = list(public_rows(results, empty))
    if rows:
        parts += [
            "## Public shaders",
            "The fastest of Granite, FidelityFX SPD, nvpro_pyramid, nvhiz, DXVK and niagara where "
            "targets were set, for one\nchain without padding, beside `ceil`.",
            with_heads(PUBLIC_HEADS, rows),
        ]
    if rivals:
        hows = [f"- {rival.name}: {rival.how}" for rival in gpu_rivals.RIVALS]
        parts += [
            "## Others",
            "The same bits, compared first: minimum (maximum) of 2x2 texels of depth in [0, 1), "
            "level 0 rounded to float16\ntoward the bound, then 16-bit integers. In CUDA graphs, "
            "by CUDA events, cold.",
            "\n".join(hows),
            with_heads(RIVAL_HEADS, map(rival_cells, rivals)),
        ]
    if bench.refusals:
        lines = [
            f"- {'; '.join(cells[:4])}{f'; {len(cells) - 4} more' if len(cells) > 4 else ''}: "
            + " ".join(reason.split())
            for reason, cells in bench.refusals.items()
        ]
        parts += ["## Not measured", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def write(arguments, *parts):
    facts, results, rivals, bench, _ = parts
    if arguments.json:
        rows = [
            {"size": size, "sizing": sizing, "algorithm": name, "figures": row}
            for (size, sizing), its_rows in results.items()
            for name, row in its_rows.items()
        ]
        record = {"facts": facts, "rows": rows, "rivals": rivals, "not measured": bench.refusals}
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
    if arguments.markdown:
        with open(arguments.markdown, "w", encoding="utf-8") as file:
            file.write(page(*parts))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="device spec; the default device without it")
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="[FRAMESx]WIDTHxHEIGHT")
    parser.add_argument("--sizings", nargs="+", default=SIZINGS, choices=(*SIZINGS, "floor"))
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=240, help="figures of frames up to 50 MB")
    parser.add_argument("--heat", type=float, default=300, help="ms of work before a series")
    parser.add_argument("--seconds", type=float, default=240, help="the whole run may take")
    parser.add_argument("--no-rivals", action="store_true", help="measure hzb alone")
    parser.add_argument("--json", metavar="FILE", help="write the figures to this file, too")
    parser.add_argument("--markdown", metavar="FILE", help="write a record to this file, too")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    with hzb.Context(arguments.device) as context:
        device = context.device
    if device.kind == "native":
        sys.exit(f"{device.name} has no timestamps: benchmarks/cpu.py measures the processor")
    bench = Bench(arguments, device)
    facts = {
        "date": datetime.date.today().isoformat(),
        "device": device.name,
        "driver": f"{device.driver_name} {device.driver_version}, Vulkan {device.api_version}",
        "hzb": hzb.__version__,
        "Python, NumPy": f"{platform.python_version()}, {np.__version__}",
        **gpu_rivals.versions(),
        "command": f"`python {' '.join(sys.argv)}`",
        "copy TB/s": bench.guarded("copy", gpu_rivals.copy_bandwidth) or "not measured",
    }
    options = {"sizing": "pow2", "bounds": "furthest", "algorithm": "per_level"}
    empty = bench.figure("1x1", np.ones((1, 1), np.float32), **options)
    if not empty:
        sys.exit(f"{device.name} cannot be measured")
    facts["empty dispatch"] = shown(empty)
    for name, value in facts.items():
        print(f"{name}: {value}")

    results = measure_kernels(bench, empty)
    facts["heat"] = f"{arguments.heat:g} ms"
    if bench.short_of_heat:
        facts["heat"] += f", {LESS_HEAT_MS} ms for {bench.short_of_heat} series that came late"
    # Once before the rivals, in case one takes the process with it.
    write(arguments, facts, results, [], bench, empty)
    if not arguments.no_rivals:
        if not gpu_rivals.torch_fault:
            what = "graph of an empty kernel"
            heat_s = arguments.heat / 1e3
            times = bench.guarded(what, gpu_rivals.empty_times, arguments.repeats, heat_s)
            if times:
                facts[what] = f"{statistics.median(times):.2f}"
                print(f"{what}: {facts[what]}")
        rivals = measure_rivals(bench, results)
        facts["took"] = f"{seconds():.0f} s"
        write(arguments, facts, results, rivals, bench, empty)
    print(f"{seconds():.0f} s in all")


if __name__ == "__main__":
    main()
