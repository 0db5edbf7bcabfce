"""Results of an upgrade or a removal: what `--json` prints."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

UPGRADE: Final = "paddock.arc-upgrade/1"
DESTROY: Final = "paddock.fleet-destroy/1"
State = Literal["done", "unchanged", "planned", "failed", "interrupted"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Phase(_Model):
    """One part of the work, and what became of it."""

    name: str
    state: State
    message: str
    details: tuple[str, ...] = ()
    fix: str = ""


class Work(_Model):
    """Outcome of a command that works in phases. Phases that were not reached are not in it."""

    stack: str
    fleet: str
    context: str | None
    at: datetime
    seconds: float
    phases: tuple[Phase, ...] = ()
    interrupted: bool = False
    next: str = ""
    """Command that goes on, or undoes it."""

    @property
    def failed(self) -> bool:
        return any(phase.state in ("failed", "interrupted") for phase in self.phases)


class ScaleSet(_Model):
    """A scale set before the upgrade."""

    name: str
    version: str | None
    """Version of the chart that made it; None where it does not say."""
    phase: str | None
    present: bool = True
    """False where the cluster has none of that name."""
    drained: bool = False


class Upgrade(Work):
    """Outcome of `inv arc.upgrade`."""

    schema_: str = Field(UPGRADE, alias="schema", serialization_alias="schema")
    installed: str
    """Version of the controller before."""
    target: str
    absent_crds: tuple[str, ...] = ()
    """Kinds of ARC that the cluster did not know."""
    sets: tuple[ScaleSet, ...]
    jobs: tuple[str, ...] = ()
    """Runners that had a job before."""
    also: tuple[str, ...] = ()
    """What `pulumi up` changes beside ARC."""


class Item(_Model):
    """Something that stays, or is left: one thing of the fleet that is still there afterwards."""

    what: str
    """Kind and name, or ARN."""
    reason: str
    """Why it stays; `unknown` where that is not known."""
    usd_per_month: float | None = None
    """None where it is not known, or depends on use."""
    cost: str = ""
    """The price, its unit, source and date, or why there is none."""
    removal: str = ""
    """What removes it."""


class Destroy(Work):
    """Outcome of `inv fleet.destroy`."""

    schema_: str = Field(DESTROY, alias="schema", serialization_alias="schema")
    goes: dict[str, int]
    """Resources of the stack that go, by type."""
    stays: tuple[Item, ...]
    """What stays by design, as far as state and cluster say."""
    jobs: tuple[str, ...] = ()
    """Runners that had a job before."""
    left: tuple[Item, ...] | None = None
    """What AWS still has with the fleet's tag; None where AWS was not asked."""
    unknown: tuple[str, ...] = ()
    """What could not be read, with the permission that is missing."""

    @property
    def failed(self) -> bool:
        return super().failed or bool(self.unknown)
