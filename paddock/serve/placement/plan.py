"""A plan, and its opposite: what is placed where, what is left unused, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from paddock.serve.placement.device import COLLECTIVES, Backend, Device
from paddock.serve.placement.memory import FORMULAS, MIB, Layers, MemoryUse
from paddock.serve.placement.request import Policy, Request

Kind = Literal[
    "HomogeneousCuda", "HomogeneousRocm", "HomogeneousMetal", "HomogeneousCpu", "HeterogeneousPipeline"
]  # fmt: skip
KINDS: dict[Backend, Kind] = {
    "cuda": "HomogeneousCuda",
    "rocm": "HomogeneousRocm",
    "metal": "HomogeneousMetal",
    "cpu": "HomogeneousCpu",
}
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Placed:
    """A device with what it holds. `allowed` are the bytes that a model may take there."""

    device: Device
    memory: MemoryUse
    allowed: int

    @property
    def lacking(self) -> int:
        return max(0, self.memory.needed - self.allowed)


@dataclass(frozen=True, slots=True)
class Group:
    """Equal devices that share the weights; a stage of a pipeline has its run of layers."""

    devices: tuple[Placed, ...]
    dtype: str
    layers: Layers | None = None

    @property
    def backend(self) -> Backend:
        return self.devices[0].device.backend

    @property
    def degree(self) -> int:
        return len(self.devices)

    @property
    def collective(self) -> str | None:
        return COLLECTIVES[self.backend] if self.degree > 1 else None

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
class Plan:
    """A feasible placement."""

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


def document(result: Plan | Infeasible) -> dict[str, Any]:
    """Return the result as JSON types."""
    request, policy, model = result.request, result.policy, result.request.model
    feasible = isinstance(result, Plan)
    head: dict[str, Any] = {
        "schema": SCHEMA,
        "feasible": feasible,
        "class": result.kind if isinstance(result, Plan) else None,
        "backend": result.backend if isinstance(result, Plan) else None,
        "request": {
            "model": model.name,
            "architecture": model.architecture,
            "parameters": model.parameters,
            "active_parameters": model.active_parameters,
            "format": model.format,
            "weight_bytes": model.bytes,
            "layers": len(model.layers),
            "layer_kinds": dict(Counter(layer.kind for layer in model.layers)),
            "heads": model.heads,
            "kv_heads": model.kv_heads,
            "experts": model.experts or None,
            "experts_active": model.experts_active or None,
            "context_of_model": model.context,
            "sources": dict(model.sources),
            "notes": list(model.notes),
            "dtype": request.dtype,
            "context": request.context,
            "concurrency": request.concurrency,
        },
        "policy": {
            "backend": policy.backend,
            "reserve": policy.reserve,
            "tensor_parallel": policy.tensor_parallel,
            "across_agents": policy.across_agents,
            "pipeline": policy.pipeline,
            "share": policy.share,
        },
        "formulas": dict(FORMULAS),
        "reasons": [{"choice": reason.choice, "text": reason.text} for reason in result.reasons],
    }
    if isinstance(result, Plan):
        return {
            **head,
            "groups": [_group(group) for group in result.groups],
            "unused": [_unused(unused) for unused in result.unused],
            "notes": list(result.notes),
        }
    return {
        **head,
        "attempts": [_group(attempt) for attempt in result.attempts],
        "refused": [_unused(unused) for unused in result.refused],
        "changes": [{"text": change.text, "flags": change.flags or None} for change in result.changes],
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "backend": group.backend,
        "dtype": group.dtype,
        "tensor_parallel": group.degree,
        "collective": group.collective,
        "layers": group.layers.count if group.layers else None,
        "devices": [_placed(placed) for placed in group.devices],
    }


def _placed(placed: Placed) -> dict[str, Any]:
    memory = placed.memory
    return {
        **_device(placed.device),
        "needed": {
            "weights_mib": mib_up(memory.weights),
            "cache_mib": mib_up(memory.cache),
            "activations_mib": mib_up(memory.activations),
            "total_mib": mib_up(memory.needed),
        },
        "reserve_mib": mib_up(memory.reserve),
        "allowed_mib": placed.allowed // MIB,
        "lacking_mib": mib_up(placed.lacking),
    }


def _device(device: Device) -> dict[str, Any]:
    return {
        "agent": device.agent,
        "backend": device.backend,
        "index": device.index,
        "part": device.part,
        "uuid": device.uuid,
        "name": device.name,
        "memory_mib": device.memory_mib,
        "free_mib": device.free_mib,
        "bandwidth_gbs": device.bandwidth_gbs,
    }


def _unused(unused: Unused) -> dict[str, Any]:
    return {**_device(unused.device), "reason": unused.reason, "suggestion": unused.suggestion or None}


def mib_up(count: int) -> int:
    """Return bytes as MiB, rounded up: a need is never shown as less."""
    return -(-count // MIB)
