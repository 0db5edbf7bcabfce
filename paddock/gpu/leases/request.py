"""Requests for GPUs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from paddock.console.parameters import one_of
from paddock.gpu.errors import GpuInputError

Workload = Literal["training", "inference", "build", "graphics"]
Near = Literal["none", "nvlink", "pcie-switch"]

_ACTION_NAMES = {
    "MinMemoryGB": "min_memory_gib",
    "RequiredGPUs": "count",
    "WorkloadType": "workload",
    "PreferredModels": "prefer",
}
"""Names used by agents of the older connector. Its GB are GiB, as GPU makers use them."""
_WORKLOADS = {"ml": "training"}
_LISTS = ("prefer", "exclude", "uuids")
_DEFAULT_MAX = 8
ENOUGH = 0.92
"""Sufficient fraction of the requested memory: no GPU has quite the nominal size."""


@dataclass(frozen=True, slots=True)
class Request:
    """Request for `count` GPUs, or MIG parts. Raises GpuInputError where it is contradictory.

    `min_memory_gib` is of free memory; 8 % less is taken for the same.
    `max_utilisation` is in per cent, `max_power_w` the limit of one GPU in watt. `prefer` and `exclude` name models:
    `H100`, `a100-80gb`, `RTX PRO 6000`. `share` is the part of each GPU's memory that is wanted, 0 to 1, while
    others use the rest; None is the GPU alone. `uuids`, or their first characters, are the only ones to choose from.
    `mig` is a profile, `1g.10gb`. `near` is what every two of the GPUs must have between them. `accept_degraded`
    takes GPUs that fail `gpu.health`, where too few others are free.
    """

    count: int = 1
    min_memory_gib: float = 0
    max_utilisation: float | None = None
    prefer: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_power_w: float | None = None
    workload: Workload | None = None
    share: float | None = None
    near: Near = "none"
    uuids: tuple[str, ...] = ()
    mig: str | None = None
    accept_degraded: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 1:
            raise _wrong("count", self.count, "a whole number, 1 or more")
        _check("min_memory_gib", self.min_memory_gib, 0, math.inf, "GiB, 0 or more")
        _check("max_utilisation", self.max_utilisation, 0, 100, "per cent, 0 to 100")
        _check("max_power_w", self.max_power_w, 1, math.inf, "watt, 1 or more")
        _check("share", self.share, 0, 1, "a part of the memory, above 0 and at most 1")
        if self.share == 0:
            raise _wrong("share", self.share, "a part of the memory, above 0 and at most 1")
        for name, allowed in (("workload", get_args(Workload)), ("near", get_args(Near))):
            value = getattr(self, name)
            if value not in allowed and not (name == "workload" and value is None):
                raise _wrong(name, value, f"one of {', '.join(allowed)}")
        for name in _LISTS:
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(isinstance(name, str) and name.strip() for name in value):
                raise _wrong(name, value, "a list of names")
        if not isinstance(self.accept_degraded, bool):
            raise _wrong("accept_degraded", self.accept_degraded, "true or false")
        if self.uuids and self.count > len(self.uuids):
            raise _wrong("count", self.count, f"at most {len(self.uuids)}, as many as there are UUIDs to choose from")
        if self.mig is not None and not (isinstance(self.mig, str) and self.mig.strip()):
            raise _wrong("mig", self.mig, "a profile, such as 1g.10gb")
        if self.mig is not None and self.count > 1:
            raise _wrong("count", self.count, "1 with a MIG profile, since a process can use one part only")

    @property
    def min_memory_mib(self) -> float:
        """Sufficient free memory."""
        return self.min_memory_gib * 1024 * ENOUGH

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Request:
        """Build from a JSON object, also with the names MinMemoryGB, RequiredGPUs, WorkloadType, PreferredModels."""
        names = [field.name for field in fields(cls)]
        arguments: dict[str, Any] = {}
        for key, value in values.items():
            name = _ACTION_NAMES.get(key, key)
            if name not in names:
                allowed = (*names, *_ACTION_NAMES)
                raise GpuInputError(f"a request for GPUs has no {key!r}\n    expected: {one_of(key, allowed)}")
            if name in arguments:
                raise GpuInputError(
                    f"a request for GPUs says {name} twice\n    expected: each once\n    fix: leave {key!r} out"
                )
            arguments[name] = _plain(name, value)
        if "uuids" in arguments:
            arguments.setdefault("count", len(arguments["uuids"]))
        return cls(**arguments)


def max_per_task(environ: Mapping[str, str] = os.environ) -> int:
    """Return the limit of GPUs per task, PADDOCK_MAX_GPUS_PER_TASK. Raises GpuInputError."""
    text = environ.get("PADDOCK_MAX_GPUS_PER_TASK") or str(_DEFAULT_MAX)
    if not text.isdecimal() or int(text) < 1:
        raise _wrong("PADDOCK_MAX_GPUS_PER_TASK", text, "a whole number, 1 or more")
    return int(text)


def within_limit(request: Request, environ: Mapping[str, str] = os.environ) -> None:
    """Check the limit of GPUs per task. Raises GpuInputError."""
    limit = max_per_task(environ)
    if request.count > limit:
        raise GpuInputError(
            f"{request.count} GPUs are more than one task may have\n    expected: at most {limit}"
            "\n    fix: ask for less, or set PADDOCK_MAX_GPUS_PER_TASK"
        )


def _plain(name: str, value: Any) -> Any:
    if name in _LISTS and isinstance(value, Sequence):
        return (value,) if isinstance(value, str) else tuple(value)
    if name == "workload" and isinstance(value, str):
        return _WORKLOADS.get(value, value) or None
    return value


def _check(name: str, value: object, low: float, high: float, expected: str) -> None:
    if value is None and name != "min_memory_gib":
        return
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not low <= number <= high or number == math.inf:
        raise _wrong(name, value, expected)


def _wrong(name: str, value: object, expected: str) -> GpuInputError:
    return GpuInputError(f" is {value!r}\n    expected: {expected}", name)
