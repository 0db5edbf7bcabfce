"""State of a fleet, on one screen. None is not known, and never zero."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from paddock.console.table import table
from paddock.operate.report import OfFleet
from paddock.runbooks import LINKS

_WAITING_PARTS = ("jobs", "runners", "pods")


@dataclass(frozen=True, kw_only=True)
class PoolState:
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


@dataclass(frozen=True, kw_only=True)
class ScaleSetState:
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


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Job or runner that waits longest, or scale set that takes no job, with the verdict of the chain."""

    scale_set: str
    name: str
    seconds: float | None
    """None where nobody knows since when."""
    verdict: str
    link: str | None
    evidence: str | None
    fix: str | None


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Price of the nodes that are there now: instances alone, from the catalogue."""

    usd_per_hour: float | None
    as_of: str | None
    """Day of the oldest price in it."""
    sources: tuple[str, ...]
    missing: tuple[str, ...]
    """What is not in the value, which is then the least that is paid."""


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """EKS's word on the cluster. None is not known, or not said."""

    version: str | None = None
    """Kubernetes minor that runs."""
    status: str | None = None
    """EKS's word, such as ACTIVE or UPDATING."""
    upgrade: str | None = None
    """Next minor, where EKS has looked at an upgrade to it."""
    readiness: str | None = None
    """Worst state of its insights: ERROR, UNKNOWN, WARNING or PASSING."""
    reason: str | None = None
    """The insight of that state, where it does not pass."""
    unknown: str | None = None
    permission: str | None = None


@dataclass(frozen=True, kw_only=True)
class Datum:
    """One source, its age, and why it is unknown where it is."""

    part: str
    source: str
    """`cluster`, `AWS` or `GitHub`."""
    age_seconds: float | None
    unknown: str | None
    permission: str | None


@dataclass(frozen=True, kw_only=True)
class Status(OfFleet):
    """All of a fleet."""

    SCHEMA = "paddock.status/1"
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
    control_plane: ControlPlane | None = None
    """None where the cluster is not EKS's."""

    @property
    def exit_code(self) -> int:
        return int(all(pool.ready is None for pool in self.pools))

    def text(self) -> Iterator[str]:
        where = f"context {self.context}" if self.context else "cluster unknown"
        yield self.heading("Status", self.region, where, f"{self.at:%Y-%m-%d %H:%M:%S} UTC")
        yield ""
        yield from _counts(
            ("pool", "ready", "starting", "broken", "draining", "max", "GPUs", "in use"),
            [
                (p.pool, p.ready, p.starting, p.broken, p.draining, p.most, p.gpus_allocatable, p.gpus_allocated)
                for p in self.pools
            ],
            ("draining", "max", "starting", "in use", "GPUs", "broken"),
        )
        yield ""
        yield from _counts(
            ("scale set", "phase", "assigned", "running", "idle", "starting", "failed", "max"),
            [
                (s.scale_set, s.phase, s.assigned, s.running, s.idle, s.starting, s.failed, s.most)
                for s in self.scale_sets
            ],
            ("max", "starting", "idle", "assigned", "failed", "phase"),
        )
        yield ""
        yield f"oldest waiting      {self._waiting()}"
        if self.oldest_waiting and self.oldest_waiting.fix:
            yield f"  fix: {self.oldest_waiting.fix}"
        yield f"spot interruptions  {_shown(self.spot_interruptions)} in the events that the cluster keeps"
        yield f"nodes cost          {self._price()}"
        yield from self._control_plane()
        yield f"read                {self._ages()}"
        reasons: dict[str, list[str]] = {}
        for datum in self.data:
            if datum.unknown:
                reasons.setdefault(datum.unknown, []).append(datum.part)
        yield from (f"  {', '.join(parts)} unknown: {reason}" for reason, parts in reasons.items())

    def _control_plane(self) -> Iterator[str]:
        said = self.control_plane
        if said is None:
            return
        runs = f"Kubernetes {said.version}, {said.status}" if said.version else "unknown"
        ready = f"; upgrade to {said.upgrade}: {said.readiness}" if said.upgrade else ""
        yield f"control plane       {runs}{ready}{f', {said.reason}' if said.reason else ''}"
        if said.unknown:
            yield f"  {'upgrade insights' if said.version else 'control plane'} unknown: {said.unknown}"

    def _waiting(self) -> str:
        oldest = self.oldest_waiting
        if oldest is None:
            lacking = [datum.part for datum in self.data if datum.unknown and datum.part in _WAITING_PARTS]
            return "none" if self.waiting_known else f"unknown: no waiting job was seen, without {', '.join(lacking)}"
        link = LINKS.get(oldest.link or "", "no link")
        since = "" if oldest.seconds is None else f" for {oldest.seconds:.0f} s"
        return f"{oldest.name}{since}: {oldest.verdict} at {link}: {oldest.evidence or ''}"

    def _price(self) -> str:
        cost = self.cost
        if cost.usd_per_hour is None:
            return f"unknown: {', '.join(cost.missing)}"
        least = "at least " if cost.missing else ""
        lacking = f"; without {', '.join(cost.missing)}" if cost.missing else ""
        dated = f", prices of {cost.as_of} ({', '.join(cost.sources)})" if cost.as_of else ""
        return f"{least}{cost.usd_per_hour:.2f} USD an hour{dated}{lacking}"

    def _ages(self) -> str:
        """Return the age of each source: that of its oldest datum."""
        ages: dict[str, float] = {}
        for datum in self.data:
            known = datum.age_seconds if not datum.unknown else None
            if known is not None:
                ages[datum.source] = max(known, ages.get(datum.source, 0.0))
        sources = dict.fromkeys(datum.source for datum in self.data)
        said = (f"{source} {ages[source]:.0f} s ago" if source in ages else f"{source} unknown" for source in sources)
        return f"{', '.join(said)}; reading took {self.seconds:.1f} s"


def _counts(head: tuple[str, ...], rows: list[tuple[object, ...]], drop: tuple[str, ...]) -> Iterator[str]:
    return table(head, [list(map(_shown, row)) for row in rows], right=head[1:], drop=drop)


def _shown(value: object) -> str:
    return "?" if value is None else str(value)
