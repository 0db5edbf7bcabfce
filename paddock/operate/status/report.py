"""State of a fleet as data: what `--json` prints. None is not known, and never zero."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

SCHEMA: Final = "paddock.status/1"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PoolState(_Model):
    """Nodes and GPUs of a pool. Counts are None where nodes, or for `gpus_allocated` pods, are not known."""

    pool: str
    ready: int | None
    starting: int | None
    """Instances that boot, and nodes that are not yet ready with their GPUs. None where AWS's part is not known."""
    broken: int | None
    """Not ready although it was, without GPUs for long, or an instance that never became a node."""
    draining: int | None
    """Cordoned, or being deleted."""
    most: int
    """`nodes.max` of the stack file, for each of its node groups."""
    gpus_allocatable: int | None
    """Of nodes that are ready."""
    gpus_allocated: int | None


class ScaleSetState(_Model):
    """Runners of a scale set. None where the kind that says it is not known."""

    scale_set: str
    phase: str | None
    assigned: int | None
    """Jobs that GitHub has assigned, as the listener last asked for runners; at most `most`."""
    running: int | None
    """Runners with a job."""
    idle: int | None
    starting: int | None
    failed: int | None
    most: int


class Waiting(_Model):
    """Job or runner that waits longest, or scale set that takes no job, with the verdict of the chain."""

    scale_set: str
    name: str
    seconds: float | None
    """None where nobody knows since when."""
    verdict: str
    link: str | None
    evidence: str | None
    fix: str | None


class Cost(_Model):
    """Price of the nodes that are there now: instances alone, from the catalogue."""

    usd_per_hour: float | None
    as_of: str | None
    """Day of the oldest price in it."""
    sources: tuple[str, ...]
    missing: tuple[str, ...]
    """What is not in the value, which is then the least that is paid."""


class Datum(_Model):
    """One source, its age, and why it is unknown where it is."""

    part: str
    source: str
    """`cluster`, `AWS` or `GitHub`."""
    age_seconds: float | None
    unknown: str | None
    permission: str | None


class Status(_Model):
    """All of a fleet."""

    schema_: str = Field(SCHEMA, alias="schema", serialization_alias="schema")
    stack: str
    fleet: str
    region: str
    context: str | None
    at: datetime
    seconds: float
    """Duration of the reading."""
    pools: tuple[PoolState, ...]
    scale_sets: tuple[ScaleSetState, ...]
    oldest_waiting: Waiting | None
    waiting_known: bool
    """False where jobs, runners or pods are not known, so that nothing waiting says nothing."""
    spot_interruptions: int | None
    """Nodes with a notice among the events that the cluster still has, about one hour."""
    cost: Cost
    data: tuple[Datum, ...]
