"""The golden cases of data/golden: inputs and the levels every implementation has to give."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Chain = list[NDArray[Any]]

_FILE = Path(__file__).parent / "data" / "golden" / "hzb.json"


@dataclass(frozen=True)
class Case:
    """One call of ``build`` and its answer."""

    name: str
    depth: NDArray[np.float32]
    options: dict[str, Any]
    levels: Chain | tuple[Chain, Chain]  # a pair, furthest and closest, for bounds="both"

    def __str__(self) -> str:
        return self.name


def _array(bits: list[str], shape: list[int], dtype: np.dtype[Any]) -> NDArray[Any]:
    words = np.array([int(word, 16) for word in bits], f"u{dtype.itemsize}")
    return words.view(dtype).reshape(shape)


def _case(entry: dict[str, Any]) -> Case:
    options = entry["options"]
    stored = np.dtype(options.get("dtype", "float16"))

    def chain(levels: list[dict[str, Any]]) -> Chain:
        return [_array(level["bits"], level["shape"], stored) for level in levels]

    levels = entry["levels"]
    return Case(
        name=entry["name"],
        depth=_array(entry["depth_bits"], entry["shape"], np.dtype(np.float32)),
        options=options,
        levels=(chain(levels["furthest"]), chain(levels["closest"]))
        if options.get("bounds") == "both"
        else chain(levels),
    )


CASES = [_case(entry) for entry in json.loads(_FILE.read_text(encoding="utf-8"))]
