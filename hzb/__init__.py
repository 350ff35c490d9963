"""Hierarchical Z buffers of depth arrays, computed by headless Vulkan or on the processor.

Depth is reversed-Z (near = 1, far = 0) unless a call says ``reversed_z=False``. `build` makes the
levels, `level_shapes` tells their sizes, `devices` lists what there is to compute on. `reference`
is the same in NumPy, bit for bit, and `plot` draws levels; both are loaded when first used.
"""

from importlib import import_module
from types import ModuleType

from hzb._core import (
    Bounds,
    Context,
    Device,
    DeviceLostError,
    Error,
    LoaderNotFoundError,
    NoDeviceError,
    OutOfMemoryError,
    VulkanError,
    __version__,
    build,
    devices,
    level_shapes,
)

__all__ = [
    "Bounds",
    "Context",
    "Device",
    "DeviceLostError",
    "Error",
    "LoaderNotFoundError",
    "NoDeviceError",
    "OutOfMemoryError",
    "VulkanError",
    "__version__",
    "build",
    "devices",
    "level_shapes",
]

_LAZY = ("plot", "reference")


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
