"""What each action on GPUs may be told."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AliasChoices, Field

from paddock.gpu.leases.request import Request
from paddock.gpu.parameter import Parameters


class Wanted(Parameters):
    """The GPUs that are wanted: see `paddock.gpu.leases.request.Request`."""

    count: int = Field(1, ge=1, description="How many.", validation_alias=AliasChoices("count", "RequiredGPUs"))
    min_memory_gib: float = Field(
        0,
        ge=0,
        description="GiB of free memory of each, at least.",
        validation_alias=AliasChoices("min_memory_gib", "MinMemoryGB"),
    )
    max_utilisation: float | None = Field(None, description="Per cent in use, at most.")
    prefer: tuple[str, ...] = Field(
        (),
        description="Models to take first, such as H100.",
        validation_alias=AliasChoices("prefer", "PreferredModels"),
    )
    exclude: tuple[str, ...] = Field((), description="Models never to take.")
    max_power_w: float | None = Field(None, description="Watt that one may draw, at most.")
    workload: Literal["training", "inference", "build", "graphics", "ml"] | None = Field(
        None, description="What for.", validation_alias=AliasChoices("workload", "WorkloadType")
    )
    share: float | None = Field(None, description="This part of each one's memory, beside others; else it alone.")
    near: Literal["none", "nvlink", "pcie-switch"] = Field("none", description="How near each other.")
    uuids: tuple[str, ...] = Field((), description="Only these, or those whose UUIDs start so.")
    mig: str | None = Field(None, description="A MIG part of this profile: 1g.10gb.")

    def request(self) -> Request:
        """Raises GpuInputError."""
        return Request.from_dict(
            {name: getattr(self, name) for name in Wanted.model_fields if name in self.model_fields_set}
        )


class Nothing(Parameters):
    """No parameters."""


class Info(Parameters):
    gpu: str = Field("", description="This one: an index, or how its UUID starts. Else all.")


class Monitor(Parameters):
    interval: float = Field(1.0, ge=0.1, le=60, description="Seconds from sample to sample.")
    duration: float = Field(10.0, gt=0, le=3600, description="Seconds in all.")
    metrics: tuple[str, ...] = Field((), description="What to sample, such as utilisation and memory. Else everything.")


class Allocate(Wanted):
    ttl: float | None = Field(None, gt=0, description="Seconds that the lease lives, whoever asked for it.")
    wait: float = Field(0, ge=0, description="Seconds to wait for GPUs that others have.")
    owner: int | None = Field(
        None, ge=1, description="The pid that the lease lives as long as. Else the one that asks."
    )


class Deallocate(Parameters):
    leases: tuple[str, ...] = Field(min_length=1, description="Ids of leases, or UUIDs of GPUs that one alone has.")


class CudaInfo(Parameters):
    toolkit: str | None = Field(None, description="Judge this CUDA version (12.8) instead of the one that is here.")


class Reset(Parameters):
    gpu: str = Field(description="This one: an index, or how its UUID starts.")
    kind: Literal["full", "soft"] = Field("full", description="soft: clocks, compute mode and error counts alone.")
    dry_run: bool = Field(False, description="Say what would be done, and do nothing.")


class Render(Wanted):
    target: Literal["docker", "docker-sdk", "compose", "cdi", "kubernetes", "proxmox", "slurm", "environment"] = Field(
        description="Whose configuration."
    )
    fields: dict[str, Any] = Field(
        default_factory=dict, description="The older connector's fields of that target: Enabled, GPUIDs, Limit, ..."
    )
    options: dict[str, str | int | bool] = Field(
        default_factory=dict, description="The target's own, such as image and name."
    )


class MlEnv(Wanted):
    framework: Literal["pytorch", "tensorflow", "jax", "none"] = Field(description="What has to see the GPUs.")
    cuda: str | None = Field(None, description="Of this CUDA version (12.8). Else the newest that runs well here.")
    target: Literal["docker", "kubernetes", "venv"] = Field("docker", description="Where it is to run.")
    image: str | None = Field(None, description="This image with its tag, instead of the catalogue's choice.")
    ttl: float | None = Field(None, gt=0, description="Seconds that the lease lives, whoever asked for it.")
    owner: int | None = Field(
        None, ge=1, description="The pid that the lease lives as long as. Else the one that asks."
    )


class Run(Wanted):
    command: tuple[str, ...] = Field(min_length=1, description="The program and its arguments. No shell reads them.")
    wait: float = Field(0, ge=0, description="Seconds to wait for GPUs that others have.")
