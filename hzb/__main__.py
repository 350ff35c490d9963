"""The command line: ``python -m hzb info`` and ``python -m hzb build``. Words and files only.

Exit status: 0 done; 1 a file, a device, memory or matplotlib failed; 2 a wrong argument or input.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import platform
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hzb
from hzb import _core

# What decides which drivers the Vulkan loader finds, and which of them hzb takes. Any other HZB_ or
# VK_ variable that is set is listed too.
_VARIABLES = (
    "HZB_DEVICE",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_INSTANCE_LAYERS",
    "VK_LAYER_PATH",
    "VK_LOADER_DEBUG",
)
_RECORD = (
    "index",
    "name",
    "kind",
    "vendor_id",
    "device_id",
    "uuid",
    "driver_name",
    "driver_version",
    "api_version",
    "memory",
)
# Those that a context tries on a known case before it uses them, and those that it falls back on.
_TRIED: tuple[_core._Algorithm, ...] = ("two_pass", "single_pass")
_UNTRIED = ("per_level", "batched")
_DEVICE_NODES = ("/dev/dri/*", "/dev/nvidia*", "/dev/dxg")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, that of the process by default, and give the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "info":
            _info(as_json=options.json)
        else:
            _build(options)
    except (TypeError, ValueError) as error:
        return _complain(str(error), 2)
    except (hzb.Error, ImportError, MemoryError) as error:
        return _complain(str(error), 1)
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}", 1)
    return 0


def _complain(reason: str, status: int) -> int:
    print(f"hzb: error: {reason}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hzb",
        description="Hierarchical Z buffers from NumPy depth arrays, on GPU or processor.",
        epilog="Exit status: 0 done; 1 a file, a device or memory failed; 2 a wrong argument.",
    )
    parser.add_argument("--version", action="version", version=f"hzb {hzb.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    info = commands.add_parser(
        "info", help="devices, drivers and versions: what a bug report needs", allow_abbrev=False
    )
    info.add_argument("--json", action="store_true", help="for machines and bug reports")

    build = commands.add_parser(
        "build",
        help="make the levels of a depth array in a file",
        description="Make the levels of a depth array. Depth is taken as reversed-Z (1 near, 0 "
        "far) unless --standard-z is given. Defaults stand in parentheses.",
        allow_abbrev=False,
    )
    build.add_argument("input", metavar="IN", type=Path, help="depth: a .npy or .npz file")
    build.add_argument("--key", help="array of a .npz (the only one, or 'depth')")
    build.add_argument(
        "-o",
        "--output",
        metavar="OUT.npz",
        type=Path,
        help="write level_0, level_1, ... (with --bounds both: furthest_0, ..., closest_0, ...)",
    )
    build.add_argument("--png", metavar="FILE", type=Path, help="draw the levels (of frame 0)")
    build.add_argument(
        "--layout",
        choices=("true", "tiles"),
        default="true",
        help="true sizes or equal tiles (true)",
    )
    build.add_argument(
        "--bounds",
        choices=("furthest", "closest", "both"),
        default="furthest",
        help="what a texel holds of its pixels (furthest)",
    )
    build.add_argument(
        "--standard-z", action="store_true", help="larger depth is further (reversed_z=False)"
    )
    build.add_argument(
        "--sizing", choices=("pow2", "floor", "ceil"), default="pow2", help="level sizes (pow2)"
    )
    build.add_argument(
        "--rounding",
        choices=("conservative", "nearest", "unreal"),
        default="conservative",
        help="to float16 (conservative)",
    )
    build.add_argument(
        "--nan",
        choices=("propagate", "ignore"),
        default="propagate",
        help="whether one NaN makes its texel NaN (propagate)",
    )
    build.add_argument(
        "--view-rect",
        nargs=4,
        type=int,
        metavar=("X0", "Y0", "X1", "Y1"),
        help="reduce this part alone; X1 and Y1 exclusive",
    )
    build.add_argument("--levels", type=int, metavar="N", help="the first N levels; all by default")
    build.add_argument(
        "--dtype", choices=("float16", "float32"), default="float16", help="of the levels (float16)"
    )
    build.add_argument(
        "--algorithm",
        default="auto",
        metavar="NAME",
        help="auto, per_level, batched, two_pass or single_pass; with the same bits (auto)",
    )
    build.add_argument(
        "--device", metavar="SPEC", help='index, UUID, part of a name or "cpu", as in HZB_DEVICE'
    )
    return parser


# info


def _info(*, as_json: bool) -> None:
    facts = _facts()
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        print("\n".join(_report(facts)))


def _facts() -> dict[str, Any]:
    loader = _core._loader_details()
    devices = [
        {**_record(record), **details, **_kernels(record, details)}
        for record, details in zip(hzb.devices(), _core._device_details(), strict=True)
    ]
    others = (name for name in os.environ if name.startswith(("HZB_", "VK_")))
    return {
        "versions": {
            "hzb": hzb.__version__,
            "python": f"{platform.python_version()} ({platform.python_implementation()})",
            "numpy": np.__version__,
            "system": platform.platform(),
            "machine": platform.machine(),
        },
        "loader": loader,
        "devices": devices,
        "device_nodes": sorted(node for pattern in _DEVICE_NODES for node in glob.glob(pattern)),
        "environment": {name: os.environ.get(name) for name in sorted({*_VARIABLES, *others})},
    }


def _record(device: hzb.Device) -> dict[str, Any]:
    return {name: getattr(device, name) for name in _RECORD}


def _kernels(record: hzb.Device, details: dict[str, Any]) -> dict[str, Any]:
    """Try the kernels of a device, by small builds of more than one tile with default options."""
    if record.kind == "native" or "error" in details:
        return {}
    try:
        with hzb.Context(record.index) as context:
            kernels = dict.fromkeys(_UNTRIED, "not checked")
            for name in _TRIED:
                kernels[name] = _verdict(context, name)
            plan = _core._describe_plan((1080, 1920), context=context)
    except hzb.Error as error:
        return {"kernels_error": str(error)}
    return {"kernels": kernels, "auto_1080p": plan["dispatches"][0]["kernel"]}


def _verdict(context: hzb.Context, kernel: _core._Algorithm) -> str:
    try:
        context.build(np.zeros((65, 65), np.float32), algorithm=kernel)
    except ValueError:
        return "missing"
    return "wrong answer" if kernel in _core._distrusted(context) else "right"


def _report(facts: dict[str, Any]) -> list[str]:
    versions, loader = facts["versions"], facts["loader"]
    lines = [
        "hzb {hzb}, Python {python}, NumPy {numpy}".format_map(versions),
        "system  {system}, {machine}".format_map(versions),
        f"loader  {_loader_line(loader)}",
        f"layers  {', '.join(loader['layers']) or 'none'}",
        f"nodes   {', '.join(facts['device_nodes']) or 'none'}",
        "",
        f"devices: {len(facts['devices'])}, in order of index",
    ]
    for device in facts["devices"]:
        lines += _device_lines(device)
    lines += ["", "environment"]
    width = max(map(len, facts["environment"]))
    lines += [
        f"  {name:{width}}  {'unset' if value is None else value}"
        for name, value in facts["environment"].items()
    ]
    return lines


def _loader_line(loader: dict[str, Any]) -> str:
    version, error = loader["instance_version"], loader["error"]
    return ", ".join([f"Vulkan {version}"] * bool(version) + [f"but {error}"] * bool(error))


def _device_lines(device: dict[str, Any]) -> list[str]:
    if "error" in device:
        rows = {"kind": device["kind"], "error": device["error"]}
    elif device["kind"] == "native":
        rows = _native_rows(device)
    else:
        rows = _vulkan_rows(device)
    return [
        f"  [{device['index']}] {device['name']}",
        *(f"      {name:14}  {value}" for name, value in rows.items()),
    ]


def _native_rows(device: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": f'{device["kind"]}, without Vulkan; as a device "cpu"',
        "driver": f"{device['driver_name']} {device['driver_version']}",
        "memory": _bytes(device["memory"]),
        "instructions": f"{device['instruction_set']} of {', '.join(device['instruction_sets'])}",
        "threads": device["threads"],
    }


def _vulkan_rows(device: dict[str, Any]) -> dict[str, Any]:
    def there(name: str) -> str:
        return "yes" if device[name] else "missing"

    groups = "×".join(map(str, device["group_count"]))
    images = f"up to {device['image_side']}, {device['image_layers']} layers"
    clock = f"yes, {device['timestamp_ns']:g} ns a tick" if device["timestamps"] else "missing"
    return {
        "kind": device["kind"],
        "ids": f"vendor {device['vendor_id']:#06x}, device {device['device_id']:#06x}",
        "UUID": device["uuid"],
        "driver": f"{device['driver_name']} {device['driver_version']}",
        "Vulkan": device["api_version"],
        "memory": _bytes(device["memory"]) + (", shared with the host" * device["unified"]),
        "16-bit storage": there("storage16"),
        "subgroup size": device["subgroup_size"] or "cannot be required",
        "shuffles": there("subgroup_shuffle"),
        "images": images if device["image_side"] else "missing",
        "timestamps": clock,
        "storage range": _bytes(device["storage_range"]),
        "largest buffer": _bytes(device["buffer_bytes"]),
        "groups": f"{groups}, {device['group_invocations']} invocations each, "
        f"{_bytes(device['shared_bytes'])} shared",
        "kernels": _kernels_line(device),
    }


def _kernels_line(device: dict[str, Any]) -> str:
    if "kernels_error" in device:
        return f"not tried: {device['kernels_error']}"
    usable, others = [], []
    for name, verdict in device["kernels"].items():
        if verdict in ("not checked", "right"):
            usable.append(name)
        else:
            others.append(f"not {name} ({verdict})")
    return f"{', '.join([*usable, *others])}; auto at 1920×1080: {device['auto_1080p']}"


def _bytes(count: int) -> str:
    value, units = float(count), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.4g} {units[0]}"


# build


def _build(options: argparse.Namespace) -> None:
    depth = _load(options.input, options.key)
    reversed_z = not options.standard_z
    with hzb.Context(device=options.device) as context:
        start = time.perf_counter()
        result = context.build(
            depth,
            bounds=options.bounds,
            reversed_z=reversed_z,
            sizing=options.sizing,
            rounding=options.rounding,
            nan=options.nan,
            view_rect=options.view_rect,
            levels=options.levels,
            dtype=np.dtype(options.dtype),
            algorithm=options.algorithm,
        )
        seconds = time.perf_counter() - start
        device = context.device
    chains = result if options.bounds == "both" else [result]

    convention = "reversed-Z: 1 near, 0 far" if reversed_z else "standard Z: larger is further"
    shapes = ", ".join("×".join(map(str, level.shape)) for level in chains[0])
    print(f"depth   {options.input}: {depth.dtype}, {depth.shape} ({convention})")
    print(f"device  {device}")
    print(
        f"levels  {len(chains[0])} of {options.dtype}, {options.bounds}, rows × columns: {shapes}"
    )
    print(f"time    {seconds * 1e3:.2f} ms, as the first build")
    if reversed_z:
        _hint_at_convention(depth)
    if options.output:
        names = ("furthest", "closest") if options.bounds == "both" else ("level",)
        _save(options.output, dict(zip(names, chains, strict=True)))
        print(f"written {options.output}")
    if options.png:
        _draw(options, depth.shape, result)
        print(f"picture {options.png}" + (", of the first frame" * (depth.ndim > 2)))


def _load(path: Path, key: str | None) -> NDArray[Any]:
    try:
        file = np.load(path, mmap_mode="r")
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a .npy or .npz file of numbers") from error
    if isinstance(file, np.ndarray):
        if key is not None:
            raise ValueError(f"--key {key}: {path} is a single array; leave --key out")
        return file
    with file:
        if key is None:
            key = file.files[0] if len(file.files) == 1 else "depth"
        if key not in file.files:
            raise ValueError(
                f"{path} has no array {key!r}; pass --key with one of: {', '.join(file.files)}"
            )
        try:
            array: NDArray[Any] = file[key]
        except (ValueError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path}: array {key!r} is damaged or not of numbers") from error
        return array


def _hint_at_convention(depth: NDArray[Any]) -> None:
    """Say what may be wrong where depth taken as reversed-Z does not lie in 0 to 1."""
    if depth.size == 0:
        return
    with np.errstate(invalid="ignore"):
        low, high = (float(bound.reduce(depth, axis=None)) for bound in (np.fmin, np.fmax))
    if low < 0 or high > 1:
        print(
            f"hint: depth goes from {low:g} to {high:g} where reversed-Z has 0 (far) to 1 (near); "
            "if larger is further here, pass --standard-z (reversed_z=False in Python)",
            file=sys.stderr,
        )


def _save(path: Path, chains: dict[str, list[NDArray[Any]]]) -> None:
    arrays = {
        f"{name}_{k}": level for name, levels in chains.items() for k, level in enumerate(levels)
    }
    # An open file, because numpy.savez would add .npz to a name that lacks it.
    with path.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _draw(options: argparse.Namespace, shape: tuple[int, ...], result: Any) -> None:
    if 0 in shape:
        raise ValueError(f"--png: an array of shape {shape} has no frame to draw")
    first = (0,) * (len(shape) - 2)
    if options.view_rect:
        x0, y0, x1, y1 = options.view_rect
        shape = (y1 - y0, x1 - x0)
    chain = (
        [[level[first] for level in levels] for levels in result]
        if options.bounds == "both"
        else [level[first] for level in result]
    )
    figure = hzb.plot.mips(
        chain,
        layout=options.layout,
        reversed_z=not options.standard_z,
        shape=shape,
    )
    figure.savefig(options.png)


if __name__ == "__main__":
    sys.exit(main())
