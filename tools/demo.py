"""The demonstration that `make demo` runs: the HZB of a real depth buffer, and a picture of it."""

import time
from pathlib import Path

import numpy as np

import hzb

ROOT = Path(__file__).resolve().parent.parent
DEPTH = ROOT / "tests/data/depth/gltf_rotunda_reversedz_1264x808.npz"
PICTURE = ROOT / "mips.png"


def main() -> None:
    with np.load(DEPTH) as file:
        depth = file["depth"]
    print(f"hzb {hzb.__version__}")
    print(f"depth   {DEPTH.name}: {depth.dtype}, {depth.shape}, reversed-Z")

    with hzb.Context() as context:
        print(f"device  {context.device}")
        chain = context.build(depth)  # the first build also makes the pipelines
        start = time.perf_counter()
        chain = context.build(depth)
        milliseconds = (time.perf_counter() - start) * 1e3

    shapes = ", ".join("×".join(map(str, level.shape)) for level in chain)
    print(f"levels  {len(chain)} of {chain[0].dtype}, rows × columns: {shapes}")
    print(f"time    {milliseconds:.2f} ms, from array to arrays")
    hzb.plot.mips(chain, shape=depth.shape).savefig(PICTURE, dpi=150, bbox_inches="tight")
    print(f"picture {PICTURE}")


if __name__ == "__main__":
    main()
