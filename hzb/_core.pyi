# Types of the C module; what things do is in their docstrings. Names with a leading underscore are
# for the package's own tests, benchmarks and command line.

from collections.abc import Sequence
from types import TracebackType
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    Protocol,
    SupportsIndex,
    TypeAlias,
    TypedDict,
    TypeVar,
    final,
    overload,
    type_check_only,
)

from _typeshed import structseq
from numpy.typing import ArrayLike, DTypeLike, NDArray

__version__: Final[str]

_Bounds: TypeAlias = Literal["furthest", "closest"]
_Sizing: TypeAlias = Literal["pow2", "floor", "ceil"]
_Rounding: TypeAlias = Literal["conservative", "nearest", "unreal"]
_NaN: TypeAlias = Literal["propagate", "ignore"]
_Algorithm: TypeAlias = Literal["auto", "per_level", "batched", "two_pass", "single_pass"]
_ViewRect: TypeAlias = Sequence[SupportsIndex] | NDArray[Any]
_Levels: TypeAlias = list[NDArray[Any]] | tuple[NDArray[Any], ...]
_Pair: TypeAlias = Bounds | tuple[_Levels, _Levels] | list[_Levels]
_DeviceSpec: TypeAlias = str | SupportsIndex | Device
_Fault: TypeAlias = Literal["alloc", "thread", "file", "vulkan", "device_lost", "known_answer"]

_L = TypeVar("_L", bound=_Levels)
_P = TypeVar("_P", bound=_Pair)

@type_check_only
class _DLPack(Protocol):
    def __dlpack__(self, *, stream: None = ...) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

_Depth: TypeAlias = ArrayLike | _DLPack

class Error(Exception):
    result: str | None
    code: int | None
    function: str | None

class VulkanError(Error): ...
class LoaderNotFoundError(VulkanError): ...
class NoDeviceError(VulkanError): ...
class DeviceLostError(VulkanError): ...
class OutOfMemoryError(VulkanError, MemoryError): ...

class Bounds(NamedTuple):
    furthest: list[NDArray[Any]]
    closest: list[NDArray[Any]]

@final
class Device(
    structseq[Any],
    tuple[int, str, str, int, int, str | None, str, str, str | None, int],
):
    __match_args__: Final = (
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
    @property
    def index(self) -> int: ...  # type: ignore[override] # hides the method of tuples
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def vendor_id(self) -> int: ...
    @property
    def device_id(self) -> int: ...
    @property
    def uuid(self) -> str | None: ...
    @property
    def driver_name(self) -> str: ...
    @property
    def driver_version(self) -> str: ...
    @property
    def api_version(self) -> str | None: ...
    @property
    def memory(self) -> int: ...

@final
class Context:
    def __new__(cls, device: _DeviceSpec | None = None) -> Context: ...
    def __enter__(self) -> Context: ...
    def __exit__(
        self,
        *exception: type[BaseException] | BaseException | TracebackType | None,
    ) -> None: ...
    @property
    def device(self) -> Device: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    @overload
    def build(
        self,
        depth: _Depth,
        *,
        bounds: _Bounds = ...,
        reversed_z: bool = ...,
        sizing: _Sizing = ...,
        rounding: _Rounding = ...,
        nan: _NaN = ...,
        view_rect: _ViewRect | None = ...,
        levels: SupportsIndex | None = ...,
        dtype: DTypeLike = ...,
        algorithm: _Algorithm = ...,
        out: None = ...,
    ) -> list[NDArray[Any]]: ...
    @overload
    def build(
        self,
        depth: _Depth,
        *,
        bounds: _Bounds = ...,
        reversed_z: bool = ...,
        sizing: _Sizing = ...,
        rounding: _Rounding = ...,
        nan: _NaN = ...,
        view_rect: _ViewRect | None = ...,
        levels: SupportsIndex | None = ...,
        dtype: DTypeLike = ...,
        algorithm: _Algorithm = ...,
        out: _L,
    ) -> _L: ...
    @overload
    def build(
        self,
        depth: _Depth,
        *,
        bounds: Literal["both"],
        reversed_z: bool = ...,
        sizing: _Sizing = ...,
        rounding: _Rounding = ...,
        nan: _NaN = ...,
        view_rect: _ViewRect | None = ...,
        levels: SupportsIndex | None = ...,
        dtype: DTypeLike = ...,
        algorithm: _Algorithm = ...,
        out: None = ...,
    ) -> Bounds: ...
    @overload
    def build(
        self,
        depth: _Depth,
        *,
        bounds: Literal["both"],
        reversed_z: bool = ...,
        sizing: _Sizing = ...,
        rounding: _Rounding = ...,
        nan: _NaN = ...,
        view_rect: _ViewRect | None = ...,
        levels: SupportsIndex | None = ...,
        dtype: DTypeLike = ...,
        algorithm: _Algorithm = ...,
        out: _P,
    ) -> _P: ...

@overload
def build(
    depth: _Depth,
    *,
    bounds: _Bounds = ...,
    reversed_z: bool = ...,
    sizing: _Sizing = ...,
    rounding: _Rounding = ...,
    nan: _NaN = ...,
    view_rect: _ViewRect | None = ...,
    levels: SupportsIndex | None = ...,
    dtype: DTypeLike = ...,
    algorithm: _Algorithm = ...,
    out: None = ...,
    device: _DeviceSpec | None = ...,
    context: Context | None = ...,
) -> list[NDArray[Any]]: ...
@overload
def build(
    depth: _Depth,
    *,
    bounds: _Bounds = ...,
    reversed_z: bool = ...,
    sizing: _Sizing = ...,
    rounding: _Rounding = ...,
    nan: _NaN = ...,
    view_rect: _ViewRect | None = ...,
    levels: SupportsIndex | None = ...,
    dtype: DTypeLike = ...,
    algorithm: _Algorithm = ...,
    out: _L,
    device: _DeviceSpec | None = ...,
    context: Context | None = ...,
) -> _L: ...
@overload
def build(
    depth: _Depth,
    *,
    bounds: Literal["both"],
    reversed_z: bool = ...,
    sizing: _Sizing = ...,
    rounding: _Rounding = ...,
    nan: _NaN = ...,
    view_rect: _ViewRect | None = ...,
    levels: SupportsIndex | None = ...,
    dtype: DTypeLike = ...,
    algorithm: _Algorithm = ...,
    out: None = ...,
    device: _DeviceSpec | None = ...,
    context: Context | None = ...,
) -> Bounds: ...
@overload
def build(
    depth: _Depth,
    *,
    bounds: Literal["both"],
    reversed_z: bool = ...,
    sizing: _Sizing = ...,
    rounding: _Rounding = ...,
    nan: _NaN = ...,
    view_rect: _ViewRect | None = ...,
    levels: SupportsIndex | None = ...,
    dtype: DTypeLike = ...,
    algorithm: _Algorithm = ...,
    out: _P,
    device: _DeviceSpec | None = ...,
    context: Context | None = ...,
) -> _P: ...
def level_shapes(
    shape: Sequence[SupportsIndex] | NDArray[Any],
    *,
    sizing: _Sizing = "pow2",
    view_rect: _ViewRect | None = None,
    levels: SupportsIndex | None = None,
    covered: bool = False,
) -> list[tuple[int, ...]]: ...
def devices() -> list[Device]: ...
def _restore_context(spec: str, /) -> Context: ...

@type_check_only
class _LoaderDetails(TypedDict):
    error: str | None
    instance_version: str | None
    layers: list[str]

def _loader_details() -> _LoaderDetails: ...
def _device_details() -> list[dict[str, Any]]: ...
def _arm_fault(kind: _Fault, nth: int, /) -> None: ...
def _fault_calls(kind: _Fault, /) -> int: ...
def _live() -> dict[str, int]: ...
def _blocks() -> dict[str, int]: ...
def _take_validation_messages() -> list[str]: ...
def _set_tile_side(side: Literal[0, 64, 128], /) -> None: ...
def _distrusted(device: Context | _DeviceSpec, /) -> list[str]: ...
def _provoke_validation_message(device: _DeviceSpec, /) -> None: ...
def _describe_plan(shape: Sequence[SupportsIndex], **options: Any) -> dict[str, Any]: ...
def _build_lane_table(depth: _Depth, **options: Any) -> Any: ...
def _measure(
    depth: _Depth,
    *,
    sets: SupportsIndex = 1,
    repeats: SupportsIndex = 1,
    heat_ns: SupportsIndex = 0,
    upload: bool = False,
    **options: Any,
) -> list[float]: ...
