"""GPU time of the HZB kernels, by timestamps, cold.

    python benchmarks/kernels.py [--device SPEC] [--sizes 1920x1080 …] [--json FILE]

Each figure is the median of 240 submissions after 25 ms of the same work (an idle card clocks
down), over frames and results that rotate through more than 400 MB (so that no cache holds them).
Two rows of context come from the same run: a chain of one texel, which is an empty dispatch between
the two timestamps, and the device's copy bandwidth where PyTorch can measure it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import sys

import numpy as np

import hzb
from hzb import _core

SIZES = ("1280x720", "1920x1080", "3840x2160", "7680x4320")
COLD_BYTES = 400e6


def microseconds(frame, bounds, algorithm, device, upload, repeats, sizing="pow2"):
    """Return the median, 10th and 90th percentile."""
    times = _core._measure(
        frame,
        sets=int(min(1000, max(2, COLD_BYTES // (frame.nbytes * 1.7) + 1))),
        repeats=repeats,
        heat_ns=25_000_000,
        upload=upload,
        bounds=bounds,
        algorithm=algorithm,
        sizing=sizing,
        device=device,
    )
    low, *_, high = statistics.quantiles(times, n=10)
    return [round(time / 1e3, 2) for time in (statistics.median(times), low, high)]


def copy_bandwidth():
    """Return bytes read and written a second by a large device copy, in TB/s, or None."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(20):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return round(2 * source.nbytes / statistics.median(times[5:]) / 1e9, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", help="device spec; the default device without it")
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="WIDTHxHEIGHT")
    parser.add_argument("--sizing", default="pow2", choices=("pow2", "floor", "ceil"))
    parser.add_argument("--repeats", type=int, default=240)
    parser.add_argument("--json", help="write the figures to this file, too")
    arguments = parser.parse_args()

    context = hzb.Context(arguments.device)
    device = context.device
    context.close()
    facts = {
        "date": datetime.date.today().isoformat(),
        "device": device.name,
        "driver": f"{device.driver_name} {device.driver_version}",
        "hzb": hzb.__version__,
        "python": platform.python_version(),
        "command": "python " + " ".join(sys.argv),
        "copy TB/s": copy_bandwidth(),
        "empty dispatch": microseconds(
            np.ones((1, 1), np.float32), "furthest", "per_level", device, False, arguments.repeats
        ),
    }
    for name, value in facts.items():
        print(f"{name}: {value}")
    print("\nmicroseconds: median (10th, 90th percentile); furthest only, then both chains")
    print("+ upload: from a device buffer to where the kernel reads (an image for batched)")
    rows = []

    def measure(frame, bounds, algorithm, upload):
        return microseconds(
            frame, bounds, algorithm, device, upload, arguments.repeats, arguments.sizing
        )

    generator = np.random.default_rng(1)
    for size in arguments.sizes:
        width, height = map(int, size.split("x"))
        frame = generator.random((height, width), np.float32)
        for algorithm in ("per_level", "batched"):
            for upload in (False, True):
                figures = [
                    measure(frame, bounds, algorithm, upload) for bounds in ("furthest", "both")
                ]
                row = {"size": size, "algorithm": algorithm, "upload": upload}
                rows.append({**row, "figures": figures})
                shown = "   ".join(f"{m:9.2f} ({a:.2f}, {b:.2f})" for m, a, b in figures)
                print(f"{size:>10} {algorithm + (' + upload' if upload else ''):<18} {shown}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"facts": facts, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
