"""A plan, and its opposite: what is placed where, what is left unused, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, Literal

from paddock.serve.placement.device import Backend, Device
from paddock.serve.placement.memory import FORMULAS, MIB, MemoryUse
from paddock.serve.placement.request import Policy, Request

Kind = Literal["HomogeneousCuda", "HomogeneousRocm", "HomogeneousMetal", "HomogeneousCpu"]
KINDS: dict[Backend, Kind] = {
    "cuda": "HomogeneousCuda",
    "rocm": "HomogeneousRocm",
    "metal": "HomogeneousMetal",
    "cpu": "HomogeneousCpu",
}
SCHEMA = 2


@dataclass(frozen=True, slots=True)
class Placed:
    """A device with what it holds. `allowed` are the bytes that a model may take there."""

    device: Device
    memory: MemoryUse
    allowed: int

    @property
    def lacking(self) -> int:
        return max(0, self.memory.needed - self.allowed)

    @property
    def part(self) -> float:
        """Return `allowed` as a part of the device's memory, rounded down: vLLM starts with no more than is free."""
        total = (self.device.memory_mib or 0) * MIB
        return self.allowed * 100 // total / 100 if total else 0.0


@dataclass(frozen=True, slots=True)
class Group:
    """Equal devices that share the weights. `dtype` is as `paddock.serve.placement.engines.format_on` says it."""

    devices: tuple[Placed, ...]
    dtype: str

    @property
    def backend(self) -> Backend:
        return self.devices[0].device.backend

    @property
    def degree(self) -> int:
        return len(self.devices)

    @property
    def lacking(self) -> int:
        """Return the bytes that its devices lack together."""
        return sum(placed.lacking for placed in self.devices)


@dataclass(frozen=True, slots=True)
class Unused:
    """A device without a part of the model. `suggestion` is what it could hold."""

    device: Device
    reason: str
    suggestion: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """One choice, and why it fell that way."""

    choice: str
    text: str


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the request, the policy or the devices after which the model fits."""

    text: str
    flags: str = ""


@dataclass(frozen=True, slots=True)
class ModelPlacement:
    """A feasible placement: one group. Its policy names the engine."""

    request: Request
    policy: Policy
    kind: Kind
    backend: Backend
    groups: tuple[Group, ...]
    unused: tuple[Unused, ...]
    reasons: tuple[Reason, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Infeasible:
    """No placement: the best attempt of each set of equal devices, and the changes that help, smallest first."""

    request: Request
    policy: Policy
    attempts: tuple[Group, ...]
    refused: tuple[Unused, ...]
    reasons: tuple[Reason, ...]
    changes: tuple[Change, ...]


def document(result: ModelPlacement | Infeasible) -> dict[str, Any]:
    """Return the result as JSON types."""
    request, policy, model = result.request, result.policy, result.request.model
    head: dict[str, Any] = {
        "schema": SCHEMA,
        "feasible": isinstance(result, ModelPlacement),
        "class": result.kind if isinstance(result, ModelPlacement) else None,
        "backend": result.backend if isinstance(result, ModelPlacement) else None,
        "request": {
            "model": model.name,
            **_of(model, "architecture", "parameters", "active_parameters", "format"),
            "weight_bytes": model.bytes,
            "layers": len(model.layers),
            "layer_kinds": dict(Counter(layer.kind for layer in model.layers)),
            **_of(model, "heads", "kv_heads"),
            "experts": model.experts or None,
            "experts_active": model.experts_active or None,
            "context_of_model": model.context,
            "sources": dict(model.sources),
            "notes": list(model.notes),
            **_of(request, "dtype", "context", "concurrency"),
        },
        "policy": {
            **_of(policy, "backend", "reserve", "tensor_parallel", "across_agents", "share", "engine"),
            **{name: getattr(policy, name) or None for name in ("server", "python", "quantization")},
        },
        "formulas": dict(FORMULAS),
        "reasons": [asdict(reason) for reason in result.reasons],
    }
    if isinstance(result, ModelPlacement):
        return {**head, "groups": [*map(_group, result.groups)], "unused": [*map(_unused, result.unused)],
                "notes": list(result.notes)}  # fmt: skip
    return {
        **head,
        "attempts": [*map(_group, result.attempts)],
        "refused": [*map(_unused, result.refused)],
        "changes": [{"text": change.text, "flags": change.flags or None} for change in result.changes],
    }


def _group(group: Group) -> dict[str, Any]:
    devices = [_placed(placed) for placed in group.devices]
    return {"backend": group.backend, "dtype": group.dtype, "tensor_parallel": group.degree, "devices": devices}


def _placed(placed: Placed) -> dict[str, Any]:
    memory = placed.memory
    needed = {f"{name}_mib": mib_up(getattr(memory, name)) for name in ("weights", "cache", "activations")}
    return {
        **_device(placed.device),
        "needed": {**needed, "total_mib": mib_up(memory.needed)},
        "reserve_mib": mib_up(memory.reserve),
        "allowed_mib": placed.allowed // MIB,
        "lacking_mib": mib_up(placed.lacking),
    }


def _device(device: Device) -> dict[str, Any]:
    identity = _of(device, "agent", "backend", "index", "part", "uuid", "name")
    return {**identity, **_of(device, "memory_mib", "free_mib", "bandwidth_gbs")}


def _unused(unused: Unused) -> dict[str, Any]:
    return {**_device(unused.device), "reason": unused.reason, "suggestion": unused.suggestion or None}


def _of(source: object, *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


def mib_up(count: int) -> int:
    """Return bytes as MiB, rounded up: a need is never shown as less."""
    return -(-count // MIB)
