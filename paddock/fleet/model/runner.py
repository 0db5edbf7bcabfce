"""Runner scale sets, which a workflow names with `runs-on`."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field, Tag, WithJsonSchema, model_validator
from pydantic_core import InitErrorDetails

from paddock.catalog.limits import limit
from paddock.fleet.model.base import (
    Distinct,
    KubernetesName,
    Matching,
    Model,
    NamedModel,
    below_min,
    form,
    mistake,
    refuse,
)
from paddock.fleet.model.github import RunnerGroup
from paddock.fleet.model.quantity import Cpu, Memory

Image = Annotated[
    str,
    Matching(
        r"^[a-z0-9][\w.:/-]*(:[\w.-]+|@sha256:[0-9a-f]{64})$",
        "an image with tag or digest, such as registry/name:tag or registry/name@sha256:...",
    ),
]
_MOUNT = r"^(/(?!\.{1,2}(/|$))[^/:]+)+$"


def _mount(path: str) -> str:
    """Return the path if it is written in the one way that can be compared with other paths."""
    if not re.search(_MOUNT, path):
        plain = re.sub("^/+", "/", posixpath.normpath(path)) if path.startswith("/") and ":" not in path else ""
        expected = "an absolute path, without a colon, //, . or .. in it or a slash at its end"
        fix = f"write {plain}" if plain.strip("/") else ""
        refuse([mistake(f'"{path}" is not a place to mount at', (), expected, fix)])
    return path


Mount = Annotated[
    str,
    Matching(".", "an absolute path"),
    AfterValidator(_mount),
    WithJsonSchema({"type": "string", "pattern": _MOUNT, "maxLength": 253}),
]

Label = Annotated[str, Matching(r"^[^\s,]+$", "a label of 1 to 255 characters without spaces or commas", 255)]

SCALE_SET_NAME_MAX = limit("arc.scale-set-name")
"""ARC's scale-set chart refuses longer names."""
LOWEST_PRIORITY = -1000
"""Of a runner; the autoscaler is told that pods of it still count."""
# `cronsim` reads schedules; only the five numeric fields that every CronJob takes pass.
_CRON_PART = r"(\*|\d{1,2}(-\d{1,2})?)(/\d{1,2})?"
_CRON_FIELD = rf"{_CRON_PART}(,{_CRON_PART})*"
_CRON = rf"^{_CRON_FIELD} {_CRON_FIELD} {_CRON_FIELD} {_CRON_FIELD} {_CRON_FIELD}$"


def _cron_schedule(expression: str) -> str:
    """Return `expression` if it is a cron schedule. Raises ValueError."""
    try:
        valid = re.fullmatch(_CRON, expression) is not None and CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
    except CronSimError:
        valid = False
    if not valid:
        raise ValueError(
            f'"{expression}" is not a cron schedule; write minute hour day month weekday, such as "0 8 * * 1-5"'
        )
    return expression


class Warm(Model):
    """From this time on, keep this many idle runners; a second entry takes them away again."""

    at: Annotated[str, AfterValidator(_cron_schedule), WithJsonSchema({"type": "string", "pattern": _CRON})]
    """Cron schedule, such as "0 8 * * 1-5"."""
    min: Annotated[int, Field(ge=0)]
    """Idle runners from then on."""
    time_zone: Annotated[str, Matching(r"^[A-Za-z_]+(/[A-Za-z0-9_+-]+)*$", "a time zone, such as America/New_York")] = (
        "Etc/UTC"
    )
    """Time zone of `at`."""


class Scratch(Model):
    """Space that lives and dies with the runner pod, on the node's fastest disk or in memory."""

    scratch: Memory
    """Size limit."""
    mount: Mount
    """Where jobs see it."""
    medium: Literal["disk", "memory"] = "disk"
    """`memory` counts against the runner's memory."""


class Claim(Model):
    """A persistent volume claim that is already there, shared by all runners: a ccache or model cache on EFS or FSx."""

    claim: KubernetesName
    """Name of the claim in the runners' namespace."""
    mount: Mount
    """Where jobs see it."""
    read_only: bool = False
    """Jobs cannot write to it."""


class Volume(Model):
    """An EBS volume made for each runner pod and deleted with it."""

    volume: Memory
    """Size."""
    mount: Mount
    """Where jobs see it."""
    storage_class: KubernetesName = "gp3-encrypted"
    """Storage class, of which `gp3-encrypted` comes with the fleet."""


Storage = Annotated[
    Annotated[Scratch, Tag("<scratch>")] | Annotated[Claim, Tag("<claim>")] | Annotated[Volume, Tag("<volume>")],
    form(
        "scratch",
        "claim",
        "volume",
        refusal="not a volume; write {scratch: SIZE, mount: PATH}, {claim: NAME, mount: PATH} or "
        "{volume: SIZE, mount: PATH}",
    ),
]


_OURS = ("/opt/paddock/", "/var/run/paddock/", "/home/runner/externals", "/var/run/nvidia-container-devices")
"""Places into which not even a part may be mounted."""

_MOUNTED: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("mounts.json").read_bytes())
"""What a runner's pod has by itself, by container mode; that of `none` in every mode. `/run` leads to `/var/run`."""


def _covers(mount: str, place: str) -> bool:
    """Return true if a volume there would hide what a place holds, or put files of a job's into it."""
    return mount == place or (place.startswith(_OURS) and mount.startswith(f"{place}/"))


RESERVED_ENVIRONMENT: dict[str, str] = {
    "ACTIONS_RUNNER_HOOK_": "the job hooks are set by such variables",
    "ACTIONS_RUNNER_INPUT_": "the runner takes such variables as options of its own registration",
}
"""Beginnings of names that a runner's `environment` may not have, and why. Case does not count, as to the runner."""
VARIABLE_MAX = 32 * 1024
"""Characters of a variable's value; Linux starts no program with one of more than 128 KiB."""
VariableName = Annotated[str, Matching(r"^[A-Za-z_][A-Za-z0-9_]*$", "the name of an environment variable")]


RUNTIME_VARIABLES = (
    "NVIDIA_VISIBLE_DEVICES", "NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_IMEX_CHANNELS"
)  # fmt: skip
"""By these a container asks NVIDIA's runtime for GPUs: what it gets is for the device plugin alone to say."""


class Runner(NamedModel):
    """A scale set of ephemeral GPU runners: one pod a job, one job a pod."""

    pool: str
    """The GPU pool its pods run on."""
    scale_set_name: Annotated[
        Annotated[str, Matching(r"^[a-z]([a-z0-9-]*[a-z0-9])?$", "lower-case letters, digits and dashes")] | None,
        Field(alias="name"),
    ] = None
    """Scale-set name, always a label too; by default the key in `runners`. At most 45 characters."""
    labels: Annotated[tuple[Label, ...], Distinct()] = ()
    """What `runs-on` may ask for; by default self-hosted, linux, x64 and the name. No two runners share a set."""
    gpus: Annotated[int, Field(ge=1, le=16)] = 1
    """GPUs of a job, or shares of one where the pool shares its GPUs."""
    cpu: Cpu | None = None
    """By default its share of the smallest instance of the pool."""
    memory: Memory | None = None
    """Request and limit; by default its share of the smallest instance of the pool."""
    min: Annotated[int, Field(ge=0)] = 0
    """Idle runners kept at all times."""
    max: Annotated[int, Field(ge=1)] | None = None
    """Jobs at a time; by default what the pool can hold."""
    warm: tuple[Warm, ...] = ()
    """Idle runners by schedule."""
    container: Literal["none", "dind", "kubernetes-novolume"] = "none"
    """`none`: the runner holds the GPU. `kubernetes-novolume`: job containers in pods of their own. `dind`: Docker."""
    image: Image | None = None
    """Runner image with tag or digest; by default the stack's own, else GitHub's."""
    priority: Annotated[int, Field(ge=LOWEST_PRIORITY, le=1000)] = 0
    """Of two waiting jobs the higher goes first. Running jobs are never evicted for it."""
    environment: dict[VariableName, Annotated[str, Field(max_length=VARIABLE_MAX)]] = {}
    """Environment variables of the job. No secrets: those belong to GitHub."""
    volumes: dict[
        Annotated[str, Matching(r"^[a-z]([a-z0-9-]{0,40}[a-z0-9])?$", "lower-case letters, digits and dashes")], Storage
    ] = {}
    """Further volumes by name, such as a ccache or a model cache."""
    shm: Memory | None = None
    """Size of `/dev/shm`, for NCCL and data loaders; by default a quarter of the memory, at most 8Gi a GPU. With MPS
    there is one of 64 MiB for all runners of a node."""
    group: RunnerGroup | None = None
    """Runner group; by default that of `github`."""
    mark_node: bool = True
    """A job that starts on a broken GPU marks the node for replacement, and no more jobs come to it. It needs a token
    in the runner's pod, which can do just that; with `kubernetes-novolume` there is none."""

    @property
    def scale_set(self) -> str:
        """Name of the scale set: GitHub's name of the runner, and always one of its labels. ARC adds it by itself."""
        return self.scale_set_name or self.name

    @property
    def privileged(self) -> bool:
        """Return whether a job can become root on its node; Docker without root needs a privileged container too."""
        return self.container == "dind"

    @property
    def effective_labels(self) -> tuple[str, ...]:
        """Labels a workflow may ask for."""
        return self.labels or ("self-hosted", "linux", "x64", self.scale_set)

    @model_validator(mode="after")
    def _consistent(self) -> Runner:
        refuse(self._mistakes())
        return self

    def _mistakes(self) -> Iterator[InitErrorDetails]:
        if self.max is not None and self.max < self.min:
            yield below_min(self.max, self.min, at=("max",))
        for index, warm in enumerate(self.warm):
            if self.max is not None and warm.min > self.max:
                message = f"{warm.min} warm runners are more than max ({self.max})"
                yield mistake(
                    message, ("warm", index, "min"), f"{self.max} or less", "lower it, or raise the runner's max"
                )
        for name in self.environment:
            reason = next((why for start, why in RESERVED_ENVIRONMENT.items() if name.upper().startswith(start)), "")
            if reason:
                yield mistake(f"{name} is reserved: {reason}", ("environment", name), "another name", f"remove {name}")
            if name.upper() in RUNTIME_VARIABLES:
                yield mistake(
                    f"{name} would ask the container runtime for GPUs in addition to those that the runner was given",
                    ("environment", name),
                    "gpus, which says how many GPUs a job gets",
                    f"remove {name}; a step that should use fewer GPUs sets CUDA_VISIBLE_DEVICES",
                )
        mounts = dict(_MOUNTED["none"] | _MOUNTED[self.container])
        for name, volume in self.volumes.items():
            path = re.sub("^/run(?=/|$)", "/var/run", volume.mount)
            if taken := next((place for place in mounts if _covers(path, place)), None):
                message = f"{volume.mount} is already used by {mounts[taken]}"
                yield mistake(message, ("volumes", name, "mount"), "a path of its own, such as /data")
            mounts.setdefault(path, f"volume {name}")


def occurrences(expression: str, time_zone: str, start: datetime, end: datetime) -> Iterator[datetime]:
    """Times in UTC at which the schedule fires in its own time zone, from `start` until before `end`."""
    local = (start - timedelta(seconds=1)).astimezone(ZoneInfo(time_zone))  # CronSim begins after its start
    return takewhile(lambda time: time < end, (time.astimezone(UTC) for time in CronSim(expression, local)))
