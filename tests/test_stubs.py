"""The types that checkers and editors see: the stubs against the module, and what calls give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

# What is said to be an error must be one: an unused "ignore" is an error too.
USE = """
from typing import Any

import hzb
import hzb.reference
import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

depth = np.zeros((4, 4), np.float32)
rows: list[list[float]] = [[0.5, 1.0], [0.0, 0.25]]
Levels = list[NDArray[Any]]

assert_type(hzb.build(depth), Levels)
assert_type(hzb.build(rows, levels=np.int64(1), view_rect=(0, 0, 2, 2)), Levels)
assert_type(hzb.build(depth, bounds="closest", dtype="f4", device="llvmpipe"), Levels)
assert_type(hzb.build(depth, bounds="both"), hzb.Bounds)
assert_type(hzb.build(depth, bounds="both").closest, Levels)

halves: NDArray[np.float16] = np.empty((2, 2), np.float16)
room = (halves, halves[:1, :1])
pair = hzb.Bounds([halves], [halves.copy()])
assert_type(hzb.build(depth, out=room), tuple[NDArray[np.float16], NDArray[np.float16]])
assert_type(hzb.build(depth, bounds="both", levels=1, out=pair), hzb.Bounds)

with hzb.Context(device=0) as context:
    assert_type(context, hzb.Context)
    assert_type(context.build(depth), Levels)
    assert_type(context.build(depth, bounds="both"), hzb.Bounds)
    assert_type(context.device.memory, int)
    assert_type(hzb.build(depth, context=context), Levels)

assert_type(hzb.level_shapes((4, 4), covered=True), list[tuple[int, ...]])
assert_type([device.uuid for device in hzb.devices()], list[str | None])
assert_type(hzb.OutOfMemoryError().code, int | None)
assert_type(hzb.reference.build(depth, bounds="both"), hzb.Bounds)

hzb.build(depth, bounds="nearest")  # type: ignore[call-overload]
hzb.build(depth, "both")  # type: ignore[call-overload]
hzb.build(depth, bounds="both", out=room)  # type: ignore[call-overload]
context.build(depth, device=0)  # type: ignore[call-overload]
hzb.devices()[0].index = 1  # type: ignore[misc]
class Mine(hzb.Context): ...  # type: ignore[misc]
"""


def run(*arguments, **options):
    """Run a part of mypy, which must find nothing to say against."""
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_are_those_of_the_module():
    run("mypy.stubtest", "hzb._core", "--mypy-config-file", ROOT / "pyproject.toml", cwd=ROOT)


def test_calls_give_what_they_are_said_to(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    cache = ROOT / ".mypy_cache"
    run("mypy", "--strict", "--cache-dir", cache, tmp_path / "use.py", cwd=ROOT)
