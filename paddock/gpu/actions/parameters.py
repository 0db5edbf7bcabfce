"""Parameters of each action on GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paddock.duration import Hours, Seconds
from paddock.gpu.parameter import Flag, Parameters, parameter

if TYPE_CHECKING:
    from paddock.gpu.leases.request import Request


@dataclass(frozen=True, kw_only=True)
class Criteria(Parameters):
    """Criteria for choosing GPUs: see `paddock.gpu.leases.request.Request`."""

    count: int = parameter(1, "how many", flag="gpus", aliases=("RequiredGPUs",), ge=1)
    min_memory_gib: float = parameter(
        0, "GiB of free memory of each, at least", flag="min-memory", aliases=("MinMemoryGB",), ge=0
    )
    max_utilisation: float | None = parameter(None, "per cent in use, at most", flag="max-utilisation")
    prefer: tuple[str, ...] = parameter((), "models to take first, such as H100", aliases=("PreferredModels",))
    exclude: tuple[str, ...] = parameter((), "models never to take")
    max_power_w: float | None = parameter(None, "watt that one may draw, at most", flag="max-power")
    workload: Literal["training", "inference", "build", "graphics", "ml"] | None = parameter(
        None, "what for: training, inference, build or graphics", aliases=("WorkloadType",)
    )
    share: float | None = parameter(
        None, "this part of each one's memory, beside others (0.5); by default the GPU alone"
    )
    near: Literal["none", "nvlink", "pcie-switch"] = parameter("none", "how near each other: nvlink or pcie-switch")
    uuids: tuple[str, ...] = parameter((), "only these, or those whose UUIDs start so")
    mig: str | None = parameter(None, "a MIG part of this profile: 1g.10gb")
    accept_degraded: bool = parameter(
        False, "also those that gpu.health would give no work, where the others do not suffice"
    )

    def request(self) -> Request:
        """Build the request of the values that were given. Raises GpuInputError."""
        from paddock.gpu.leases.request import Request

        return Request.from_dict(self.criteria())

    def criteria(self) -> dict[str, Any]:
        """Return the criteria that were given."""
        return {name: value for name, value in self.values().items() if name in Criteria.names()}


@dataclass(frozen=True, kw_only=True)
class NoParameters(Parameters):
    """No parameters."""


@dataclass(frozen=True, kw_only=True)
class Info(Parameters):
    gpu: str = parameter("", "this one: an index, or the beginning of its UUID; by default all")


@dataclass(frozen=True, kw_only=True)
class Monitor(Parameters):
    interval: float = parameter(1.0, "time between samples", unit=Seconds, ge=0.1, le=60)
    duration: float = parameter(
        10.0,
        "seconds in all",
        flag=Flag("duration", None, None, "time after which it ends; by default with Ctrl-C"),
        unit=Seconds,
        gt=0,
        le=3600,
    )
    metrics: tuple[str, ...] = parameter(
        (), "what to sample; by default utilisation, memory, temperature, power and sm_clock",
        flag=Flag("metrics", "", "", "names with commas between; an unknown one lists them"),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Lease(Criteria):
    """Criteria, and how long the lease lives."""

    owner: int | None = parameter(
        None, "the pid that the lease lives as long as; by default the process that called this", ge=1
    )
    ttl: float | None = parameter(
        None,
        "time that the lease lives without an owner; beside one, where that process cannot be seen",
        unit=Seconds,
        gt=0,
    )
    wait: float = parameter(0, "how long to wait for GPUs that others have", unit=Seconds, ge=0)
    priority: int = parameter(0, "place in the queue of those who wait: higher is served first", ge=-100, le=100)


@dataclass(frozen=True, kw_only=True)
class Deallocate(Parameters):
    leases: tuple[str, ...] = parameter(
        (), "ids of leases, or UUIDs of GPUs that one lease alone has", required=True, min_length=1
    )


@dataclass(frozen=True, kw_only=True)
class Renew(Deallocate):
    ttl: float | None = parameter(None, "time that they live from now; by default as before", unit=Seconds, gt=0)


@dataclass(frozen=True, kw_only=True)
class CudaInfo(Parameters):
    toolkit: str | None = parameter(None, "judge this CUDA version (12.8) instead of the installed one")


@dataclass(frozen=True, kw_only=True)
class Health(Parameters):
    expect: int = parameter(0, "how many GPUs there should be; 0 is any number", ge=0)
    instance: str = parameter("", "the EC2 instance type, which says how many and which; imds asks the machine")
    idle: bool = parameter(False, "nothing should be running on them")
    since_hours: float = parameter(
        0.0, "how far back errors in the kernel's log count; by default to the machine's start", unit=Hours, ge=0
    )


@dataclass(frozen=True, kw_only=True)
class Reset(Parameters):
    gpu: str = parameter(..., "an index, or the beginning of a UUID")
    kind: Literal["full", "soft"] = parameter(
        "full",
        "soft: only what a user changed: clocks, modes, error counters",
        flag=Flag("soft", False, False, "only what a user changed: clocks, modes, error counters", lambda _: "soft"),
    )
    dry_run: bool = parameter(
        False, "show what would be done, and do nothing", flag=Flag("yes", False, ..., "do it", not_)
    )


@dataclass(frozen=True, kw_only=True)
class Render(Criteria):
    target: Literal["docker", "docker-sdk", "compose", "cdi", "kubernetes", "proxmox", "slurm", "environment"] = (
        parameter(..., "docker, docker-sdk, compose, cdi, kubernetes, proxmox, slurm or environment")
    )
    count: int = parameter(
        1,
        "how many",
        flag=Flag("gpus", None, None, "how many; by default every GPU that works"),
        aliases=("RequiredGPUs",),
        ge=1,
    )
    fields: dict[str, Any] = parameter(
        {}, "the older connector's fields of that target: Enabled, GPUIDs, Limit, ...", only="json"
    )
    fields_file: Path | None = parameter(
        None, "a JSON file of the target's own fields, in place of these flags", flag="fields", only="flags"
    )
    options: dict[str, str | int | bool] = parameter(
        {}, "the target's own options, such as image and name", only="json"
    )
    option: tuple[str, ...] = parameter(
        (),
        "name=value of the target's own; may be given again",
        flag=Flag("option", None, None, read=tuple, iterable=True),
        only="flags",
    )
    output: Path | None = parameter(None, "write the files into this folder", only="flags")
    force: bool = parameter(False, "write over files that are not Paddock's or were edited", only="flags")


@dataclass(frozen=True, kw_only=True)
class MlEnv(Lease):
    framework: Literal["pytorch", "tensorflow", "jax", "none"] = parameter(
        "none", "what has to see the GPUs: pytorch, tensorflow, jax or none", required=True
    )
    count: int = parameter(
        1, "how many", flag=Flag("gpus", None, None), aliases=("RequiredGPUs",), ge=1
    )  # fmt: skip
    cuda: str | None = parameter(None, "this CUDA version (12.8); by default the newest that runs well here")
    target: Literal["docker", "kubernetes", "venv"] = parameter("docker", "docker, kubernetes or venv")
    image: str | None = parameter(None, "an image of your own with its tag, instead of the catalogue's choice")
    path: Path | None = parameter(None, "with --target venv: the folder to make", only="flags")
    start: bool = parameter(False, "start it, and check from inside whether it sees just its GPUs", only="flags")
    config: Path | None = parameter(None, "a JSON file of an MLEnvironmentConfig; flags take precedence", only="flags")


@dataclass(frozen=True, kw_only=True)
class Run(Criteria):
    command: tuple[str, ...] = parameter(
        (), "the program and its arguments; no shell reads them", only="json", required=True, min_length=1
    )
    wait: float = parameter(0, "how long to wait for GPUs that others have", unit=Seconds, ge=0)
    priority: int = parameter(0, "place in the queue of those who wait: higher is served first", ge=-100, le=100)
