"""What `make demo` runs: the HZB of a real depth buffer on every device, and a picture of it.

Ends with status 1 where a device gives other bits than the reference.
"""

import sys
import time
from pathlib import Path

import numpy as np

import hzb

ROOT = Path(__file__).resolve().parent.parent
DEPTH = ROOT / "tests/data/depth/gltf_rotunda_reversedz_1264x808.npz"
PICTURE = ROOT / "mips.png"
SECONDS = 0.3  # for each measurement


def main() -> int:
    with np.load(DEPTH) as file:
        depth = file["depth"]
    print(f"hzb {hzb.__version__}")
    print(f"depth   {DEPTH.name}: {depth.dtype}, {depth.shape}, reversed-Z")
    start = time.perf_counter()
    expected = hzb.reference.build(depth)
    seconds = time.perf_counter() - start
    shapes = ", ".join("×".join(map(str, level.shape)) for level in expected)
    print(f"levels  {len(expected)} of {expected[0].dtype}, rows × columns: {shapes}\n")

    print(f"{'device':44} {'algorithm':10} {'time':>10}  same bits")
    print_row("hzb.reference, in NumPy", "", seconds, "")
    all_same = True
    for device in hzb.devices():
        for algorithm in ("auto",) if device.kind == "native" else ("auto", "batched"):
            with hzb.Context(device) as context:
                chain, seconds = build_and_time(context, depth, algorithm)
            same = all(
                np.array_equal(level.view(np.uint16), want.view(np.uint16))
                for level, want in zip(chain, expected, strict=True)
            )
            all_same &= same
            print_row(f"{device.index}: {device.name}", algorithm, seconds, "yes" if same else "NO")

    with hzb.Context() as context:
        print(f"\ndefault {context.device}")
        chain = context.build(depth)
    hzb.plot.mips(chain, shape=depth.shape).savefig(PICTURE, dpi=150, bbox_inches="tight")
    print(f"picture {PICTURE}")
    return 0 if all_same else 1


def build_and_time(context, depth, algorithm):
    """Give the levels, and the best time from array to arrays once pipelines are made."""
    chain = context.build(depth, algorithm=algorithm)
    best, end = float("inf"), time.perf_counter() + SECONDS
    while (start := time.perf_counter()) < end:
        chain = context.build(depth, algorithm=algorithm)
        best = min(best, time.perf_counter() - start)
    return chain, best


def print_row(name, algorithm, seconds, same):
    print(f"{name:44.44} {algorithm:10} {seconds * 1e3:7.2f} ms  {same}")


if __name__ == "__main__":
    sys.exit(main())
