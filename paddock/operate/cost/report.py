"""Cost of a period as data: what `--json` prints. None is not known, and never zero."""

from __future__ import annotations

from datetime import date, datetime
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

SCHEMA: Final = "paddock.cost/1"
"""The number changes when a key goes or changes its meaning; new keys leave it."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Bill(_Model):
    """Answer of Cost Explorer. `usd` is None where there was none, or where nothing carries the fleet's tag."""

    usd: float | None
    estimated: bool
    """AWS says that it may still change at least one of the days."""
    metric: str
    source: str
    requests: int
    requests_usd: float
    """What AWS asks for the requests themselves."""
    unknown: str
    fix: str
    permission: str
    failed: bool
    """True if it could not be read; false where it was read and has nothing."""


class Line(_Model):
    """Estimate of the plan for the period beside the actual."""

    name: str
    estimate_usd: float | None
    estimate_as_of: date | None
    """Day of the oldest price in it."""
    actual_usd: float | None
    ratio: float | None
    """Actual over estimate."""
    unknown: str


class Pool(Line):
    """A pool. Prices of an hour leave the use out: they compare what was paid for a node with what the plan expects."""

    node_hours: float | None
    """Hours of instances, as AWS counts them."""
    estimate_node_hour: float | None
    """Instance alone, of the first type and way to buy."""
    actual_node_hour: float | None


class Change(_Model):
    """An edit of the stack file. `usd` is its effect on the days of the period, and changes do not add up."""

    pool: str
    message: str
    edit: str
    usd: float
    basis: str
    """What the effect is reckoned from."""


class Waste(_Model):
    """GPU-hours that no job had. `needs` is what would make an unknown known."""

    kind: str
    meaning: str
    gpu_hours: float | None
    usd: float | None
    unknown: str
    needs: str
    at_least: bool = False
    """True where there may be more of it, as its source has not seen everything."""


class Utilisation(_Model):
    """Mean utilisation of the GPUs of one model, by DCGM."""

    gpu: str
    percent: float


class Workflow(_Model):
    """Time that a workflow's jobs took on the fleet's runners."""

    repository: str
    workflow: str
    hours: float
    share: float
    usd: float | None
    """Share of the pool's bill, where the fleet has one pool; else durations do not say whose hours they are."""
    gpu_percent: float | None
    """Mean utilisation of the GPUs that its jobs had."""


class JobUse(_Model):
    """GPUs that the jobs of a workflow had. None is not known, such as the use of GPUs in MIG mode."""

    repository: str
    """`owner/name`."""
    workflow: str
    """Name of its file, without extension."""
    gpu_hours: float
    """Of GPUs that its pods held, while an image was pulled, too."""
    gpu_percent: float | None
    """Mean utilisation, by DCGM."""
    idle_gpu_hours: float | None
    """Of these, those of five minutes and more without any work."""
    usd: float | None
    """Its part of the pool's bill, by the GPU-hours that were paid."""


class Metrics(_Model):
    """Answer of Prometheus."""

    url: str
    hours: float | None
    """Hours of the period for which it has samples."""
    unknown: str


class Cost(_Model):
    """All of a period."""

    schema_: str = Field(SCHEMA, alias="schema", serialization_alias="schema")
    stack: str
    fleet: str
    region: str
    at: datetime
    start: date
    end: date
    """First day that is not in it; days are UTC's."""
    days: int
    bill: Bill
    pools: tuple[Pool, ...]
    rest: Line
    total: Line
    changes: tuple[Change, ...]
    waste: tuple[Waste, ...]
    utilisation: tuple[Utilisation, ...]
    workflows: tuple[Workflow, ...]
    jobs: tuple[JobUse, ...] = ()
    jobs_unknown: str = ""
    """Why there are none."""
    metrics: Metrics | None
    """None where no Prometheus was named."""
    notes: tuple[str, ...]
