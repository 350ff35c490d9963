"""What makes the batched kernel the batched kernel: few dispatches, Morton order, few barriers.

That its bits are right is asserted with those of all kernels, elsewhere.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hzb
from hzb import _core

SHADERS = Path(__file__).parent.parent / "shaders"


def dispatches(shape: tuple[int, ...], device: str, **options: object) -> list[dict[str, object]]:
    plan = _core._describe_plan(shape, device=device, **options)
    return list(plan["dispatches"])


@pytest.mark.vulkan
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (9, 17), (850, 850), (808, 1264), (3, 4097)])
@pytest.mark.parametrize("sizing", ["pow2", "ceil"])
def test_four_levels_a_dispatch(device: str, shape: tuple[int, int], sizing: str) -> None:
    made = dispatches(shape, device, sizing=sizing, algorithm="batched")
    levels = len(hzb.level_shapes(shape, sizing=sizing))
    assert len(made) == -(-levels // 4)
    assert [step["first"] for step in made] == list(range(0, levels, 4))
    assert sum(step["count"] for step in made) == levels


def floor_batches(width: int, height: int) -> list[int]:
    """Levels of each dispatch: an odd side above 1 can only be the source of a first level."""
    counts: list[int] = []
    while (width, height) != (1, 1) or not counts:
        crossing = (width % 2 and width > 1) or (height % 2 and height > 1)
        if not counts or crossing or counts[-1] == 4:
            counts.append(0)
        counts[-1] += 1
        width, height = max(1, width // 2), max(1, height // 2)
    return counts


@pytest.mark.vulkan
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 32, 48, 96, 850, 1023, 1024, 1264])
@pytest.mark.parametrize("height", [1, 2, 5, 64, 80, 808, 1080])
def test_floor_starts_a_dispatch_at_odd_sides(device: str, width: int, height: int) -> None:
    made = dispatches((height, width), device, sizing="floor", algorithm="batched")
    assert [step["count"] for step in made] == floor_batches(width, height)


@pytest.mark.vulkan
def test_per_level_has_a_dispatch_a_level(device: str) -> None:
    made = dispatches((850, 850), device, algorithm="per_level")
    assert [(step["kernel"], step["first"], step["count"]) for step in made] == [
        ("per_level", level, 1) for level in range(10)
    ]


@pytest.mark.vulkan
def test_only_the_levels_asked_for(device: str) -> None:
    made = dispatches((850, 850), device, algorithm="batched", levels=6)
    assert [step["count"] for step in made] == [4, 2]


@pytest.mark.vulkan
def test_auto_is_batched_for_the_rounding_that_it_defines(device: str) -> None:
    made = dispatches((850, 850), device, rounding="unreal")
    assert {step["kernel"] for step in made} == {"batched"}


@pytest.mark.vulkan
def test_the_frame_is_gathered_from_an_image_where_one_holds_it(device: str) -> None:
    def source(shape: tuple[int, ...]) -> object:
        return dispatches(shape, device, algorithm="batched")[0]["source"]

    assert source((16384, 2)) == "image"
    assert source((1, 40000)) == "input"
    assert source((3000, 2, 2)) == "input"  # more layers than both CPU drivers have


def morton(lane: int) -> tuple[int, int]:
    """Column and row of a lane, bit by bit as the rule is written."""
    bit = [(lane >> i) & 1 for i in range(6)]
    return 4 * bit[0] + 2 * bit[2] + bit[4], 4 * bit[1] + 2 * bit[3] + bit[5]


@pytest.mark.vulkan
def test_lanes_take_texels_in_bit_reversed_morton_order(device: str) -> None:
    levels = _core._build_lane_table(np.zeros((32, 48)), device=device, algorithm="batched")
    for level, lanes in enumerate(levels[:4]):
        side = 8 >> level
        table = np.empty((side, side), np.uint16)
        for lane in range(side * side):
            x, y = morton(lane)
            table[y >> level, x >> level] = lane
        rows, columns = lanes.shape
        tiled = np.tile(table, (-(-rows // side), -(-columns // side)))[:rows, :columns]
        np.testing.assert_array_equal(lanes.view(np.uint16), tiled)


def test_the_lanes_of_a_bank_stride_hold_one_quad() -> None:
    for lane in range(16):
        quad = {morton(lane + 16 * i) for i in range(4)}
        x, y = min(quad)
        assert x % 2 == y % 2 == 0
        assert quad == {(x, y), (x + 1, y), (x, y + 1), (x + 1, y + 1)}


def barriers(shader: str, levels: int, subgroup: int, tmp_path: Path) -> tuple[int, int]:
    """Workgroup and subgroup barriers left in a module once its specialization is known."""
    module, optimised = tmp_path / "module.spv", tmp_path / "optimised.spv"
    subprocess.run(
        ["glslangValidator", "-V", "--target-env", "vulkan1.1", f"-I{SHADERS}", "-o", module,
         SHADERS / "hzb" / shader],
        check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run(
        ["spirv-opt", f"--set-spec-const-default-value=7:{levels} 8:{subgroup}",
         "--freeze-spec-const", "--fold-spec-const-op-composite", "-O", module, "-o", optimised],
        check=True,
    )  # fmt: skip
    text = subprocess.run(
        ["spirv-dis", "--no-color", optimised], check=True, capture_output=True, text=True
    ).stdout
    scopes = Counter(re.findall(r"OpControlBarrier %uint_(\d+)", text))
    return scopes["2"], scopes["3"]


@pytest.mark.parametrize("shader", ["batched.comp", "batched_gather.comp"])
@pytest.mark.parametrize(
    ("subgroup", "workgroup_barriers"), [(1, 3), (4, 2), (8, 2), (16, 1), (32, 1), (64, 0)]
)
def test_a_subgroup_needs_no_workgroup_barrier(
    shader: str, subgroup: int, workgroup_barriers: int, tmp_path: Path
) -> None:
    assert barriers(shader, 4, subgroup, tmp_path) == (workgroup_barriers, 3 - workgroup_barriers)
    assert barriers(shader, 1, subgroup, tmp_path) == (0, 0)


def conflicts(read: Callable[[int, int, int], int], banks: int = 32, subgroup: int = 32) -> int:
    """Shared-memory cycles beyond one, over the three reductions of an 8x8 tile.

    `read(bank_size, lane, i)` is the word that a lane reads as the ith of its quad.
    """
    extra = 0
    for size in (16, 4, 1):
        for first in range(0, size, subgroup):
            for i in range(4):
                lanes = range(first, min(first + subgroup, size))
                words = {read(size, lane, i) for lane in lanes}
                extra += max(Counter(word % banks for word in words).values()) - 1
    return extra


def test_morton_order_has_no_bank_conflicts_and_row_major_order_has() -> None:
    def bank_strided(size: int, lane: int, i: int) -> int:
        return lane + i * size

    def row_major(size: int, lane: int, i: int) -> int:
        side = int(size**0.5)
        row, column = divmod(lane, side)
        return (2 * row + i // 2) * 2 * side + 2 * column + i % 2

    assert conflicts(bank_strided) == 0
    assert conflicts(row_major) == 4
    assert conflicts(row_major, banks=16, subgroup=16) == 12
