"""The native path on 64-bit Arm: compiled by a cross compiler, run by an emulator.

That needs Debian's gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user-static, which
``make test-all`` installs.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from golden import CASES

import hzb.reference

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parent.parent
COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64-static"
FLAGS = ["-std=c11", "-O3", "-static", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
DEFINES = ["-D_GNU_SOURCE", "-DHZB_ISA=baseline"]
# The native path is these files alone: none of them knows Python or Vulkan.
SOURCES = [
    "tests/arm/main.c",
    *(f"csrc/ops/hzb/{name}.c" for name in ("cpu", "cpu_kernels", "options")),
    "csrc/core/frames.c",
    *(str(file.relative_to(ROOT)) for file in sorted((ROOT / "csrc/base").glob("*.c"))),
]

# The struct header of arm/main.c, for a little-endian processor.
HEADER = np.dtype(
    [
        ("name", "S96"),
        *((word, "S16") for word in ("bounds", "sizing", "rounding", "nan")),
        *((number, "<i8") for number in ("float32", "reversed_z", "has_view_rect")),
        ("view_rect", "<i8", 4),
        *((number, "<i8") for number in ("levels", "scalar", "scalar_bytes", "swapped")),
        *((number, "<i8") for number in ("frames", "height", "width")),
    ]
)
# In the order of enum hzb_scalar.
SCALARS = ["f2", "f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


def write_case(file, name, depth, options, levels):
    header = np.zeros((), HEADER)
    header["name"] = name
    defaults = {
        "bounds": "furthest",
        "sizing": "pow2",
        "rounding": "conservative",
        "nan": "propagate",
        "reversed_z": True,
    }
    for option, default in defaults.items():
        header[option] = options.get(option, default)
    header["float32"] = np.dtype(options.get("dtype", "f2")) == np.float32
    if options.get("view_rect") is not None:
        header["has_view_rect"] = 1
        header["view_rect"] = options["view_rect"]
    header["levels"] = options.get("levels") or 0
    header["scalar"] = SCALARS.index(depth.dtype.str[1:])
    header["scalar_bytes"] = depth.itemsize
    header["swapped"] = depth.dtype.byteorder == ">"
    header["frames"] = np.prod(depth.shape[:-2], dtype=np.int64)
    header["height"], header["width"] = depth.shape[-2:]
    file.write(header.tobytes())
    file.write(depth.tobytes())
    chains = levels if options.get("bounds") == "both" else [levels]
    for chain in chains:
        for level in chain:
            file.write(level.tobytes())


def more_cases(rng):
    """Give frames of all types, of all bit patterns, and frames large enough for threads."""
    for scalar in SCALARS:
        for order in "<>":
            dtype = np.dtype(scalar).newbyteorder(order)
            depth = rng.integers(0, 256, (2, 39, 33 * dtype.itemsize), np.uint8).view(dtype)
            yield f"{dtype.str}", depth, {"bounds": "both"}
    patterns = rng.integers(0, 2**32, (601, 703), np.uint32).view(np.float32)
    ordinary = rng.random((2, 900, 1001), np.float32)
    for sizing in ("pow2", "floor", "ceil"):
        for nan in ("propagate", "ignore"):
            for dtype in ("f2", "f4"):
                options = {"bounds": "both", "sizing": sizing, "nan": nan, "dtype": dtype}
                yield f"patterns {options}", patterns, options
        yield f"ordinary {sizing}", ordinary, {"bounds": "both", "sizing": sizing}
    for rounding in ("nearest", "unreal"):
        yield f"patterns {rounding}", patterns, {"bounds": "both", "rounding": rounding}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    program = tmp_path_factory.mktemp("arm") / "native"
    command = [COMPILER, *FLAGS, *DEFINES, "-Icsrc", *SOURCES, "-lpthread", "-o", str(program)]
    subprocess.run(command, cwd=ROOT, check=True)
    return program


@pytest.mark.parametrize("threads", ["1", "3"])
def test_native_path(program, threads, rng, tmp_path):
    count = 0
    with open(tmp_path / "cases", "wb") as file:
        for case in CASES:
            write_case(file, case.name, case.depth, case.options, case.levels)
            count += 1
        for name, depth, options in more_cases(rng):
            write_case(file, name, depth, options, hzb.reference.build(depth, **options))
            count += 1
    command = [EMULATOR, str(program), str(tmp_path / "cases")]
    env = {**os.environ, "HZB_NUM_THREADS": threads}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{count} cases\n", "")
