"""The difference of two plans as data: what `--json --against` prints, and what renderers take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal

import pydantic

from paddock.plan.diff.replacement import Effect
from paddock.plan.document.model import Model, PlanDocument
from paddock.plan.finding import Finding, Step

SCHEMA: Final = "paddock.diff/2"
Action = Literal["add", "remove", "replace", "change"]
Verdict = Literal["none", "safe", "interrupts", "replaces", "refused"]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A place in a resource that differs. `old` and `new` are as people read them; None: there was no value."""

    path: str
    old: str | None
    new: str | None
    keys: Annotated[tuple[str, ...], pydantic.Field(exclude=True)] = ()
    """Property names from the input down to where a list's item or an embedded document begins."""


@dataclass(frozen=True, slots=True)
class Change:
    """A resource that is not as it was."""

    urn: str
    type: str
    name: str
    owner: str
    """The component it belongs to: `GpuPool t4`."""
    action: Action
    replaced: Effect
    """`replace` is certain, `unknown` is possible, `update` is neither."""
    why: tuple[str, ...]
    """What forces a replacement or may, and what changes because another resource does."""
    fields: tuple[FieldChange, ...]
    protected: bool
    """Pulumi refuses to delete or replace it."""

    @property
    def follows(self) -> bool:
        """Return whether it changes only because another resource does."""
        return self.action in ("replace", "change") and not self.fields


@dataclass(frozen=True, slots=True)
class FitChange:
    """Number of a runner's jobs that a node holds; None where the pairing is not in that plan."""

    runner: str
    pool: str
    instance: str
    old: int | None
    new: int | None
    old_limit: str
    new_limit: str


@dataclass(frozen=True, slots=True)
class Amount:
    """Dollars before and after. None where the plan has no such number."""

    old: float | None
    new: float | None

    @property
    def differs(self) -> bool:
        return self.old != self.new


@dataclass(frozen=True, slots=True)
class PartCost:
    """A pool's part of the month, or a runner's hour, where it is not as it was. What is not there costs nothing."""

    name: str
    action: Literal["add", "remove", "change"]
    low: Amount
    expected: Amount
    high: Amount
    jobs: Amount | None = None
    """Of a runner: its jobs a month, as expected."""

    @property
    def differs(self) -> bool:
        amounts = (self.low, self.expected, self.high, self.jobs)
        return any(amount.differs for amount in amounts if amount)


@dataclass(frozen=True, slots=True)
class CostChange:
    """Cost before and after: the month in all, each pool's part of it, and an hour of each runner.

    `fixed` is what a month costs without any job or GPU node. `pools` and `runners` hold only what differs.
    """

    fixed: Amount
    low: Amount
    expected: Amount
    high: Amount
    pools: tuple[PartCost, ...] = ()
    runners: tuple[PartCost, ...] = ()

    @property
    def differs(self) -> bool:
        month = (self.fixed, self.low, self.expected, self.high)
        return any(amount.differs for amount in month) or bool(self.pools or self.runners)


@dataclass(frozen=True, slots=True)
class Roll:
    """A node group that loses all its nodes."""

    group: str
    pool: str
    """`system` for the nodes that hold the controllers."""
    capacity: str
    """As EKS names it: SPOT, ON_DEMAND, CAPACITY_BLOCK."""
    nodes: int
    """At most so many; a group that is scaled to zero loses none."""
    kind: Literal["roll", "replace", "remove", "unknown"]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Interruption:
    """Jobs that end before they are done, if they run at that time."""

    runner: str
    jobs: int
    """At most."""
    pool: str
    certain: bool


@dataclass(frozen=True, slots=True)
class ScaleSetChange:
    """A change of a runner scale set, and its consequence for waiting jobs."""

    runner: str
    kind: Literal["add", "remove", "replace", "unknown", "restart", "resize"]
    labels: tuple[str, ...]
    says: str


@dataclass(frozen=True, slots=True)
class Rename:
    """A pool or a runner with the same content under another key, and all that differs only because of that."""

    kind: Literal["pool", "runner"]
    old: str
    new: str
    consequences: tuple[str, ...]
    changes: tuple[Change, ...]
    rolls: tuple[Roll, ...]
    interruptions: tuple[Interruption, ...]
    scale_sets: tuple[ScaleSetChange, ...]


class Diff(Model):
    """Everything that differs; renderers only print it."""

    schema_version: Literal["paddock.diff/2"] = pydantic.Field(SCHEMA, alias="schema")
    verdict: Verdict
    stack: str
    project: str
    renames: tuple[Rename, ...] = ()
    """What they hold is in none of the other lists."""
    changes: tuple[Change, ...]
    """Riskiest first."""
    refused: tuple[str, ...]
    """What Pulumi or AWS will not do."""
    rolls: tuple[Roll, ...]
    interruptions: tuple[Interruption, ...]
    scale_sets: tuple[ScaleSetChange, ...]
    new_findings: tuple[Finding, ...]
    fixed_findings: tuple[Finding, ...]
    new_steps: tuple[Step, ...] = ()
    """What a person does before this change is applied, and did not have to do before."""
    fits: tuple[FitChange, ...]
    cost: CostChange
    outputs: tuple[FieldChange, ...]
    notes: tuple[str, ...]

    def count(self, action: Action) -> int:
        return sum(change.action == action for change in self.changes)

    @property
    def following(self) -> int:
        """Replacements that happen only because of another replacement."""
        return sum(change.follows for change in self.changes if change.action == "replace")

    @property
    def unsure(self) -> tuple[Change, ...]:
        """Changes that may turn out to be replacements."""
        return tuple(change for change in self.changes if change.action == "change" and change.replaced == "unknown")

    @property
    def empty(self) -> bool:
        findings = self.new_findings or self.fixed_findings or self.new_steps
        return not (self.renames or self.changes or findings or self.fits or self.outputs or self.cost.differs)


class ComparedPlan(PlanDocument):
    """Output of `--json --against`: a plan and its difference from a saved one."""

    diff: Diff
