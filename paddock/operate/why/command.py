"""`why`: each scale set's way from GitHub's queue to the GPU, up to the link that is broken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.console.project import root
from paddock.console.report import Report
from paddock.fleet import load
from paddock.kubernetes.kubeconfig import Cluster
from paddock.operate.connect import check_reached, connect
from paddock.operate.parameters import OfClusterAndGitHub
from paddock.operate.snapshot.model import NOT_READ, Snapshot, name
from paddock.operate.snapshot.read import read
from paddock.operate.why.admission import admissions
from paddock.operate.why.links.evidence import span
from paddock.operate.why.outcome import Status
from paddock.operate.why.subject import job_of
from paddock.operate.why.walk import Walk, verdict, walks
from paddock.runbooks import LINKS, runbooks

SECOND_READING = 5.0
"""Seconds to a second reading, where only that tells a change under way from a fault."""
_DRIFT = timedelta(minutes=1)
_MARKS: dict[Status, str] = {"broken": "BROKEN", "not-reached": "-"}


@dataclass(frozen=True, kw_only=True)
class Why(OfClusterAndGitHub):
    """Parameters of `why`."""

    target: str = parameter(
        "", "a scale set, a runner, or the address of a job's page; by default every scale set", positional=True
    )


@dataclass(frozen=True, kw_only=True)
class Walks(Report):
    """Walks of a snapshot. A job that several scale sets serve is broken only where each of their walks is."""

    SCHEMA = "paddock.why/1"
    stack: str
    snapshot: Snapshot
    cluster: Cluster | None
    walks: Sequence[Walk]

    @property
    def exit_code(self) -> int:
        return int(verdict(self.walks) == "broken")

    def document(self) -> dict[str, Any]:
        return {
            "schema": self.SCHEMA,
            "stack": self.stack,
            "fleet": self.snapshot.fleet.name,
            "context": self.cluster.context if self.cluster else None,
            "at": self.snapshot.at.isoformat(),
            "verdict": verdict(self.walks),
            "walks": [one.document() for one in self.walks],
            "unknown": {
                part: {"reason": reading.reason, "fix": reading.fix or None, "permission": reading.permission or None}
                for part, reading in self.snapshot.readings().items()
                if not reading.known and reading is not NOT_READ
            },
        }

    def text(self) -> Iterator[str]:
        at, cluster = self.snapshot.at, self.cluster
        where = f"context {cluster.context}" if cluster else "cluster unknown"
        yield f"Why jobs wait: {self.stack}  {self.snapshot.fleet.name}  {where}  {at:%Y-%m-%d %H:%M:%S} UTC"
        if cluster and not cluster.named:
            yield "  no context is named after the cluster: this is the current one"
        drift = self.snapshot.clocks.get("machine", at) - at
        if abs(drift) > _DRIFT:
            side = "ahead of" if drift > timedelta() else "behind"
            yield f"  this machine's clock is {span(abs(drift))} {side} the cluster's, which counts"
        for one in self.walks:
            yield from ("", *_walk(one))
        if len(self.walks) > 1 and all(one.subject.job is not None for one in self.walks):
            yield ""
            yield f"GitHub may give the job to any of these {len(self.walks)} scale sets: {verdict(self.walks)}"


@command()
def why(parameters: Why) -> Walks:
    """Walk the chain of a target, or of every scale set. Raises FleetError, BadFlag, UnknownTarget and NoCluster."""
    fleet = load(root(), parameters.stack).fleet
    sources = connect(fleet, parameters, job_of(parameters.target))

    def take() -> Snapshot:
        snapshot = read(fleet, sources, logs=True)
        return replace(snapshot, admissions=admissions(snapshot, sources.github, sources.job))

    snapshot, result = examine(take, parameters.stack, parameters.target)
    if not snapshot.jobs.known:
        check_reached(snapshot)
    cluster = sources.kubernetes.cluster if sources.kubernetes else None
    return Walks(stack=parameters.stack, snapshot=snapshot, cluster=cluster, walks=result)


def examine(
    take: Callable[[], Snapshot], stack: str, target: str, wait: float = SECOND_READING
) -> tuple[Snapshot, Sequence[Walk]]:
    """Return a snapshot and its walks; those of a second one, where only that tells whether something is broken."""
    snapshot = take()
    result = walks(snapshot, stack, target)
    if any(outcome.passing for one in result for outcome in one.outcomes.values()):
        time.sleep(wait)
        snapshot = replace(take(), earlier=snapshot)
        result = walks(snapshot, stack, target)
    return snapshot, result


def _walk(one: Walk) -> Iterator[str]:
    """Yield the links of a walk, and the fix of the broken one."""
    about = one.subject.pod if one.subject.steers else one.subject.runner or one.subject.pod
    yield f"{one.subject.scale_set}, {name(about)}" if about else one.subject.scale_set
    for key, outcome in one.outcomes.items():
        mark = _MARKS.get(outcome.status, outcome.status)
        yield f"  {mark:8}{LINKS[key]:20}  {outcome.evidence}".rstrip()
    decisive = one.outcomes.get(one.link)
    if decisive is None:
        yield "  nothing is broken"
        return
    if decisive.status == "broken":
        book = runbooks()[decisive.runbook]
        yield f"  {book.title}. {book.means}"
        yield f"  evidence: {decisive.evidence}"
    elif decisive.status == "waits":
        yield f"  nothing is broken; it waits at: {LINKS[one.link]}"
    else:
        yield f"  no link is known to be broken; unknown: {LINKS[one.link]}"
    if one.fix:
        yield f"  fix: {one.fix}"
