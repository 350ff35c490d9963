"""Large tiles on subgroups of sizes that no driver at hand has.

The drivers of the tests have 4 and 8, NVIDIA's has 32. A size of 64 (and of 16) has been tried here
alone, by reading what is left of the shader once its size is known and by a simulation of the lanes
of one tile, and never on a device.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SHADERS = Path(__file__).parent.parent / "shaders"
SUBGROUPS = (1, 4, 8, 16, 32, 64)
LANES = 256
BANKS = 32

# Of one tile through six levels, for each size of subgroups: barriers of the workgroup, numbers
# that pass through shared memory in all, and the lane bits over which shuffles reduce.
BARRIERS = {1: 5, 4: 3, 8: 3, 16: 1, 32: 1, 64: 1}
PASSED_BY_LANES = {1: 256, 4: 0, 8: 0, 16: 0, 32: 0, 64: 0}
PASSED_BY_FOURS = {1: 64, 4: 64, 8: 64, 16: 0, 32: 0, 64: 0}
PASSED = {1: 656, 4: 144, 8: 144, 16: 16, 32: 16, 64: 16}
SHUFFLES = {
    1: [],
    4: [1, 2] * 2,
    8: [1, 2] * 2,
    16: [1, 2, 4, 8] * 2,
    32: [1, 2, 4, 8] * 2,
    64: [1, 2, 4, 8] * 2,
}

# Where chains that end earlier leave the loop over levels. Without it spirv-opt can unroll that, as
# drivers do.
EARLY_END = "        if (level + i >= push.levels)\n            break;\n"

# The kernels: constants 6, 10 and 12 (whether they begin with the frame, whether they count, and
# blocks along a side that a lane takes of the frame), how often each has the code of a tile, and
# its barriers beside that: one after a tile's number is left in several slots, one before the next
# tile of a later round, one before the next round.
KERNELS = {
    "two_pass, over the frame": ("6:true 10:false 12:1", 1, 1),
    "two_pass, over the frame, wide": ("6:true 10:false 12:2", 1, 1),
    "two_pass, the rest": ("6:false 10:false 12:1", 1, 3),
    "single_pass": ("6:true 10:true 12:1", 2, 5),
    "single_pass, wide": ("6:true 10:true 12:2", 2, 5),
}


# The specialised shader


def read_module(folder: Path, flags: list[str], constants: str) -> str:
    """Give the text of the shader for values of its specialization constants, loops unrolled."""
    library = (SHADERS / "lib/tiles.glsl").read_text("utf-8")
    assert library.count(EARLY_END) == 1
    shutil.copytree(SHADERS / "lib", folder / "lib")
    (folder / "lib/tiles.glsl").write_text(library.replace(EARLY_END, ""), "utf-8")
    shutil.copy(SHADERS / "hzb/tiles.comp", folder)
    shader, module, optimised = (folder / name for name in ("tiles.comp", "tiles.spv", "out.spv"))
    subprocess.run(
        ["glslangValidator", "-V", "--quiet", "--target-env", "vulkan1.1", *flags, f"-I{folder}",
         "-o", module, shader],
        check=True, capture_output=True,
    )  # fmt: skip
    subprocess.run(
        ["spirv-opt", f"--set-spec-const-default-value={constants}", "--freeze-spec-const",
         "--fold-spec-const-op-composite", "-O", "--loop-unroll", "-O", module, "-o", optimised],
        check=True,
    )  # fmt: skip
    subprocess.run(["spirv-val", "--target-env", "vulkan1.1", optimised], check=True)
    return subprocess.run(
        ["spirv-dis", "--no-color", optimised], check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("flags", [[], ["-DHZB_STORAGE16=1"]], ids=["words", "storage16"])
@pytest.mark.parametrize("subgroup", SUBGROUPS)
def test_what_is_left_for_a_subgroup_size(
    subgroup: int, flags: list[str], kernel: str, tmp_path: Path
) -> None:
    constants, tiles, beside = KERNELS[kernel]
    chains = 2 if tiles == 2 else 1
    text = read_module(tmp_path, flags, f"0:{chains} 8:{subgroup} {constants}")
    # Of a workgroup (scope 2), shared memory made visible (0x100) by acquire and release (8).
    barriers = Counter(re.findall(r"OpControlBarrier %uint_(\d+) %uint_(\d+) %uint_(\d+)", text))
    assert barriers == {("2", "2", "264"): tiles * BARRIERS[subgroup] + beside}
    masks = re.findall(r"= OpGroupNonUniformShuffleXor %int %uint_3 %\w+ %uint_(\d+)\n", text)
    for_chains = [mask for mask in SHUFFLES[subgroup] for _ in range(chains)]
    assert [int(mask) for mask in masks] == for_chains * tiles
    assert text.count("= OpGroupNonUniform") == len(masks)
    # Without a size that is required, what the driver takes for one does not matter.
    assert ("BuiltIn Subgroup" in text) == (subgroup > 1)
    (length,) = re.findall(r"%PASSED = OpConstant %uint (\d+)\n", text)
    assert int(length) == PASSED[subgroup]


# A simulation of the lanes


def square_texel(lane: int) -> tuple[int, int]:
    """Run the shader's own lines, which Python reads alike."""
    source = (SHADERS / "lib/morton.glsl").read_text("utf-8")
    (body,) = re.findall(r"uvec2 square_texel\(uint lane\)\n\{\n(.*?)\n\}", source, re.DOTALL)
    *lines, last = re.sub(r"(?<=[0-9a-f])u\b|//.*|;", "", body).split("\n")
    names = {"lane": lane}
    for line in lines:
        exec(line.replace("uint ", "").strip(), names)
    x, y = eval(last.strip().removeprefix("return uvec2"), names)
    return x, y


SQUARE = [square_texel(lane) for lane in range(LANES)]


def test_lanes_take_texels_in_morton_order() -> None:
    for lane, (x, y) in enumerate(SQUARE):
        bit = [(lane >> i) & 1 for i in range(8)]
        assert x == bit[0] + 2 * bit[2] + 4 * bit[4] + 8 * bit[6]
        assert y == bit[1] + 2 * bit[3] + 4 * bit[5] + 8 * bit[7]


def block_bits(x: int, y: int, side: int) -> int:
    """Give the set of texels of the tile's first level in a square: bit 32 y + x for each."""
    row = ((1 << side) - 1) << x
    return sum(row << 32 * (y + i) for i in range(side))


@dataclass
class Tile:
    """A tile of 32x32 texels of a first level, reduced as reduce_tile does it.

    A lane's number is the set of texels that it has been reduced from.
    """

    subgroup: int
    # level, texel: the number that was stored there
    stored: dict[tuple[int, int, int], int] = field(default_factory=dict)
    shuffles: list[int] = field(default_factory=list)
    barriers: int = 0
    # What has passed through shared memory.
    shared: dict[int, int] = field(default_factory=dict)
    # Words that the lanes of a workgroup write or read at a time, None where one does not
    accesses: list[list[int | None]] = field(default_factory=list)

    def store(self, level: int, x: int, y: int, number: int) -> None:
        assert (level, x, y) not in self.stored
        self.stored[level, x, y] = number

    def shuffle(self, numbers: list[int], bit: int) -> list[int]:
        for mask in (bit, bit << 1):
            self.shuffles.append(mask)
            # Beyond the subgroup, it would be undefined.
            assert mask < self.subgroup
            numbers = [number | numbers[lane ^ mask] for lane, number in enumerate(numbers)]
        return numbers

    def read(self, places: Iterable[int]) -> list[int]:
        places = list(places)
        self.accesses.append(list(places))
        return [self.shared[place] for place in places]

    def exchange(self, numbers: list[int], places: list[int | None]) -> None:
        self.barriers += 1
        self.accesses.append(places)
        given = {place: numbers[lane] for lane, place in enumerate(places) if place is not None}
        assert max(given) < PASSED[self.subgroup]
        # What is written over may not have been read by all lanes yet.
        assert not given.keys() & self.shared.keys()
        self.shared |= given

    def read_four(self, places: list[int]) -> list[int]:
        parts = [self.read(place + k for place in places) for k in range(4)]
        return [a | b | c | d for a, b, c, d in zip(*parts, strict=True)]

    def reduce_sixteen(self, time: int, numbers: list[int]) -> tuple[list[int], list[int]]:
        by_lanes = PASSED_BY_LANES[self.subgroup]
        start = time * (by_lanes + PASSED_BY_FOURS[self.subgroup])
        lanes = range(LANES)
        if self.subgroup >= 4:
            of_four = self.shuffle(numbers, 1)
        else:
            self.exchange(numbers, [start + lane for lane in lanes])
            of_four = self.read_four([start + (lane & ~3) for lane in lanes])
        if self.subgroup >= 16:
            return of_four, self.shuffle(of_four, 4)
        start += by_lanes
        self.exchange(of_four, [start + (lane >> 2) if lane & 3 == 0 else None for lane in lanes])
        return of_four, self.read_four([start + (lane >> 2 & ~3) for lane in lanes])

    def store_two_levels(
        self, numbers: tuple[list[int], list[int]], level: int, texels: list[tuple[int, int]]
    ) -> None:
        of_four, of_sixteen = numbers
        for lane, (x, y) in enumerate(texels):
            if lane & 3 == 0:
                self.store(level, x, y, of_four[lane])
            elif lane & 15 == 1:
                self.store(level + 1, x >> 1, y >> 1, of_sixteen[lane])

    def reduce(self) -> list[int]:
        for x, y in SQUARE:
            for i in range(4):
                at = 2 * x + i % 2, 2 * y + i // 2
                self.store(0, *at, block_bits(*at, 1))
        numbers = [block_bits(2 * x, 2 * y, 2) for x, y in SQUARE]
        for lane, (x, y) in enumerate(SQUARE):
            self.store(1, x, y, numbers[lane])
        reduced = self.reduce_sixteen(0, numbers)
        self.store_two_levels(reduced, 2, [(x >> 1, y >> 1) for x, y in SQUARE])
        start = 2 * (PASSED_BY_LANES[self.subgroup] + PASSED_BY_FOURS[self.subgroup])
        self.exchange(
            reduced[1],
            [start + (lane >> 4) if lane & 15 == 0 else None for lane in range(LANES)],
        )
        reduced = self.reduce_sixteen(1, self.read(start + (lane & 15) for lane in range(LANES)))
        self.store_two_levels(reduced, 4, [(x >> 1, y >> 1) for x, y in SQUARE[:16]])
        return reduced[1]

    def conflicts(self) -> int:
        """Count shared-memory cycles beyond one, a chain, over all accesses of a tile."""
        width = self.subgroup if self.subgroup > 1 else 32
        extra = 0
        for places in self.accesses:
            for start in range(0, LANES, width):
                words = {word for word in places[start : start + width] if word is not None}
                if words:
                    extra += max(Counter(word % BANKS for word in words).values()) - 1
        return extra


@pytest.mark.parametrize("subgroup", SUBGROUPS)
def test_each_number_reaches_its_texels(subgroup: int) -> None:
    tile = Tile(subgroup)
    # All lanes know what is left: any may leave it in slots.
    assert set(tile.reduce()) == {block_bits(0, 0, 32)}
    assert tile.stored == {
        (level, x, y): block_bits(x << level, y << level, 1 << level)
        for level in range(6)
        for x in range(32 >> level)
        for y in range(32 >> level)
    }
    # That this is what the shader does.
    assert tile.barriers == BARRIERS[subgroup]
    assert tile.shuffles == SHUFFLES[subgroup]


@pytest.mark.parametrize("subgroup", SUBGROUPS)
def test_no_bank_conflicts(subgroup: int) -> None:
    tile = Tile(subgroup)
    tile.reduce()
    assert tile.conflicts() == 0
