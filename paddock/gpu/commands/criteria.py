"""Criteria for choosing GPUs, and how long a lease of them lives: parameters of every command that takes some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from paddock.console.parameters import Parameters, parameter
from paddock.duration import Seconds

if TYPE_CHECKING:
    from paddock.gpu.leases.request import Request


@dataclass(frozen=True, kw_only=True)
class Criteria(Parameters):
    """Criteria for choosing GPUs: see `paddock.gpu.leases.request.Request`."""

    count: int = parameter(1, "how many", flag="gpus", aliases=("RequiredGPUs",), ge=1)
    min_memory_gib: float = parameter(
        0, "least free memory of each, in GiB", flag="min-memory", aliases=("MinMemoryGB",), ge=0
    )
    max_utilisation: float | None = parameter(None, "most that each may be in use, in per cent", flag="max-utilisation")
    prefer: tuple[str, ...] = parameter((), "models to take first, such as H100", aliases=("PreferredModels",))
    exclude: tuple[str, ...] = parameter((), "models not to take")
    max_power_w: float | None = parameter(None, "most that each may draw, in watts", flag="max-power")
    workload: Literal["training", "inference", "build", "graphics", "ml"] | None = parameter(
        None, "what they are for: training, inference, build or graphics", aliases=("WorkloadType",)
    )
    share: float | None = parameter(
        None, "this part of each one's memory, shared with others (0.5); by default the GPU alone"
    )
    near: Literal["none", "nvlink", "pcie-switch"] = parameter("none", "how near to each other: nvlink or pcie-switch")
    uuids: tuple[str, ...] = parameter((), "only GPUs whose UUIDs are or begin with these")
    mig: str | None = parameter(None, "a MIG part of this profile: 1g.10gb")
    accept_degraded: bool = parameter(False, "also take GPUs that fail gpu.health, where too few others are free")

    def request(self) -> Request:
        """Build the request of the values that were given. Raises GpuInputError."""
        from paddock.gpu.leases.request import Request

        return Request.from_dict(self.criteria())

    def criteria(self) -> dict[str, Any]:
        """Return the criteria that were given."""
        return {name: value for name, value in self.values().items() if name in Criteria.names()}


@dataclass(frozen=True, kw_only=True)
class LeaseTerms(Criteria):
    """Criteria, and how long the lease lives."""

    owner: int | None = parameter(
        None, "pid of the process whose end releases the lease; by default the process that called this", ge=1
    )
    ttl: float | None = parameter(
        None,
        "how long the lease lives without an owner, or with one whose process cannot be seen",
        unit=Seconds,
        gt=0,
    )
    wait: float = parameter(0, "how long to wait for GPUs that others have", unit=Seconds, ge=0)
    priority: int = parameter(0, "place in the queue of those who wait: higher is served first", ge=-100, le=100)

    def terms(self) -> dict[str, Any]:
        """Return the terms of the lease, as `paddock.gpu.leases.allocation.allocate` takes them."""
        return {"owner": self.owner, "ttl": self.ttl, "wait": self.wait, "priority": self.priority}
