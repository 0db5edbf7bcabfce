"""Fields of the older GPU connector, by its names.

`from_dict` reads them from JSON. docs/gpu-rendering.md documents the meaning of each field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, get_args

from paddock.console.parameters import one_of
from paddock.gpu.errors import GpuInputError
from paddock.image_reference import BadReference, Reference

_Read = Callable[[str, Any], Any]
_MAX_TEXT = 1024


def wrong(problem: str, expected: str = "", fix: str = "") -> GpuInputError:
    lines = [problem, *([f"expected: {expected}"] if expected else []), *([f"fix: {fix}"] if fix else [])]
    return GpuInputError("\n    ".join(lines))


def matching(name: str, value: object, pattern: str, expected: str) -> str:
    """Return the value if it is a text of that form. Raises GpuInputError."""
    if not isinstance(value, str) or not re.fullmatch(pattern, short(name, value)):
        raise wrong(f"{name} is {value!r}", expected)
    return value


def short(name: str, text: str) -> str:
    """Return the text unless it is too long to be a value here, or to repeat. Raises GpuInputError."""
    if len(text) > _MAX_TEXT:
        raise wrong(f"{name} has {len(text):,} characters", f"at most {_MAX_TEXT:,}")
    return text


def image_reference(value: object) -> str:
    """Return the value if it names an image: anything else could be an option of `docker run`. Raises GpuInputError."""
    try:
        Reference.parse(short("image", str(value)))
    except BadReference as error:
        raise GpuInputError(f"image: {error}") from None
    return str(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise wrong(f"{name} is {value!r}", "true or false")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise wrong(f"{name} is {value!r}", "text")
    return value.strip()


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise wrong(f"{name} is {value!r}", "a whole number")
    return value


def _counts(name: str, value: Any) -> tuple[int, ...]:
    return tuple(_count(f"{name}[{place}]", item) for place, item in enumerate(_list(name, value)))


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):  # compute,utility
        value = [item for item in value.split(",") if item.strip()]
    return tuple(_text(f"{name}[{place}]", item) for place, item in enumerate(_list(name, value)))


def _labels(name: str, value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping):
        raise wrong(f"{name} is {value!r}", "names and values")
    return {_text(f"a name in {name}", key): _text(f"{name}.{key}", text) for key, text in value.items()}


def _tolerations(name: str, value: Any) -> tuple[Toleration, ...]:
    return tuple(_toleration(f"{name}[{place}]", item) for place, item in enumerate(_list(name, value)))


def _list(name: str, value: Any) -> Sequence[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise wrong(f"{name} is {value!r}", "a list")
    return value


def _named(name: str, read: _Read, default: Any) -> Any:
    return field(default=default, metadata={"name": name, "read": read})


@dataclass(frozen=True, slots=True)
class Toleration:
    """Toleration of Kubernetes; None and "" are left out."""

    key: str = _named("key", _text, "")
    operator: str = _named("operator", _text, "")
    value: str = _named("value", _text, "")
    effect: str = _named("effect", _text, "")
    seconds: int | None = _named("tolerationSeconds", _count, None)

    def kubernetes(self) -> dict[str, Any]:
        values = {entry.metadata["name"]: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values.items() if value not in ("", None)}


@dataclass(frozen=True, slots=True)
class Docker:
    enabled: bool = _named("Enabled", _flag, True)
    runtime: str = _named("Runtime", _text, "")
    gpu_ids: tuple[int, ...] = _named("GPUIDs", _counts, ())
    all: bool = _named("All", _flag, False)
    capabilities: tuple[str, ...] = _named("Capabilities", _texts, ())
    memory: str = _named("Memory", _text, "")


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """Fields of a pod. A Limit or Request of 0 is not set."""

    enabled: bool = _named("Enabled", _flag, True)
    resource_name: str = _named("ResourceName", _text, "")
    limit: int = _named("Limit", _count, 0)
    request: int = _named("Request", _count, 0)
    node_selector: Mapping[str, str] = field(
        default_factory=dict, metadata={"name": "NodeSelector", "read": _labels}, hash=False
    )
    tolerations: tuple[Toleration, ...] = _named("Tolerations", _tolerations, ())
    runtime_class: str = _named("RuntimeClass", _text, "")


@dataclass(frozen=True, slots=True)
class Proxmox:
    enabled: bool = _named("Enabled", _flag, True)
    pci_devices: tuple[str, ...] = _named("PCIDevices", _texts, ())
    gpu_ids: tuple[int, ...] = _named("GPUIDs", _counts, ())
    vfio: bool = _named("VFIO", _flag, True)
    primary: bool = _named("Primary", _flag, False)
    rombar: bool = _named("ROMBAR", _flag, True)
    x_vga: bool = _named("X_VGA", _flag, False)


@dataclass(frozen=True, slots=True)
class Connector:
    """Settings for all targets. `max_gpus_per_task` 0 means the limit of the environment."""

    nvidia_smi_path: str = _named("NvidiaSMIPath", _text, "")
    docker_runtime: str = _named("DockerRuntime", _text, "")
    cuda_version: str = _named("CUDAVersion", _text, "")
    enable_monitoring: bool = _named("EnableMonitoring", _flag, False)
    max_gpus_per_task: int = _named("MaxGPUsPerTask", _count, 0)


Fields = Docker | Kubernetes | Proxmox
_Kind = TypeVar("_Kind", bound=Fields | Connector | Toleration)


def from_dict(kind: type[_Kind], values: Mapping[str, Any]) -> _Kind:
    """Build from the older connector's names and values; null counts as absent. Raises GpuInputError."""
    return _read(kind, values, f"{kind.__name__} has")


def names(kind: type[Any]) -> tuple[str, ...]:
    """Return the older connector's names of the fields."""
    return tuple(entry.metadata["name"] for entry in fields(kind))


def is_fields(kind: object) -> bool:
    return kind in get_args(Fields)


def _toleration(name: str, toleration: Any) -> Toleration:
    if isinstance(toleration, Toleration):
        return toleration
    if not isinstance(toleration, Mapping):
        raise wrong(f"{name} is {toleration!r}", "key, operator, value and effect")
    # Kubernetes writes `key`, the older connector `Key`.
    result = _read(
        Toleration, {str(key)[:1].lower() + str(key)[1:]: item for key, item in toleration.items()}, f"{name} has"
    )
    if result.operator not in ("", "Exists", "Equal"):
        raise wrong(f"{name}.operator is {result.operator!r}", "Exists or Equal")
    if result.effect not in ("", "NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise wrong(f"{name}.effect is {result.effect!r}", "NoSchedule, PreferNoSchedule or NoExecute")
    if result.operator == "Exists" and result.value:
        raise wrong(f"{name} has a value", "none, since Exists takes every value", "use Equal, or leave value out")
    if result.operator != "Exists" and not result.key:
        raise wrong(f"{name} has no key", "a key", "Exists without a key tolerates everything, if that is meant")
    if result.seconds is not None and result.effect != "NoExecute":
        raise wrong(f"{name} has tolerationSeconds", "effect NoExecute with it")
    return result


def _read(kind: type[_Kind], values: Mapping[str, Any], prefix: str) -> _Kind:
    entries = {entry.metadata["name"]: entry for entry in fields(kind)}
    arguments = {}
    for name, value in values.items():
        if name not in entries:
            raise wrong(f"{prefix} no {name!r}", one_of(str(name), entries))
        if value is not None:
            arguments[entries[name].name] = entries[name].metadata["read"](name, value)
    return kind(**arguments)
