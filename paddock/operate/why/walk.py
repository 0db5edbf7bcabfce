"""The walk: every link in order, up to the first that is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from paddock.errors import one_line
from paddock.fleet.arc import Controller, controller
from paddock.operate.snapshot.model import Snapshot, name
from paddock.operate.why.links import arc, capacity, job, node, placement, queue, runner, start
from paddock.operate.why.outcome import Outcome, Status
from paddock.operate.why.subject import Subject, subjects
from paddock.runbooks import LINKS, runbooks

Judge = Callable[[Snapshot, Subject], Outcome]

JUDGES: Mapping[str, Judge] = MappingProxyType(
    {
        "github": queue.github,
        "scale-set": arc.scale_set,
        "listener": arc.listener,
        "runner": runner.runner,
        "pod": placement.pod,
        "scheduler": placement.scheduler,
        "node-group": capacity.node_group,
        "node": node.node,
        "device-plugin": node.device_plugin,
        "image-pull": start.image_pull,
        "registration": start.registration,
        "job": job.job,
    }
)
"""Links in their order."""


@dataclass(frozen=True, slots=True)
class Walk:
    """One walk: what it was about, and each link's outcome."""

    subject: Subject
    outcomes: Mapping[str, Outcome]
    stack: str
    controller: Controller

    @property
    def verdict(self) -> Status:
        """`broken`, else `waits`, else `unknown` where a link is, else `ok`."""
        states = {outcome.status for outcome in self.outcomes.values()}
        order: tuple[Status, ...] = ("broken", "waits", "unknown")
        return next((state for state in order if state in states), "ok")

    @property
    def link(self) -> str:
        """Link of the verdict, of several unknown ones the last: the others have something known behind them."""
        links = [key for key, outcome in self.outcomes.items() if outcome.status == self.verdict != "ok"]
        return links[-1] if links else ""

    @property
    def fix(self) -> str:
        outcome = self.outcomes.get(self.link)
        if outcome is None:
            return ""
        if not outcome.runbook:
            return outcome.fix
        there = {"stack": self.stack, "systems": self.controller.namespace, "controller": self.controller.account}
        return runbooks()[outcome.runbook].fix_for({**there, **outcome.names})

    def document(self) -> dict[str, Any]:
        """Return the walk as JSON."""
        outcome = self.outcomes.get(self.link)
        book = runbooks()[outcome.runbook] if outcome and outcome.runbook else None
        subject = self.subject
        return {
            "runner": subject.runner_key,
            "scale_set": subject.scale_set,
            "pool": subject.pool.name,
            "job": subject.job.get("id") if subject.job else None,
            "ephemeral_runner": name(subject.runner) if subject.runner else None,
            "pod": name(subject.pod) if subject.pod else None,
            "verdict": self.verdict,
            "link": self.link or None,
            "evidence": outcome.evidence if outcome else None,
            "runbook": book.id if book else None,
            "means": book.means if book else None,
            "fix": self.fix or None,
            "links": [
                {
                    "link": key,
                    "title": LINKS[key],
                    "status": outcome.status,
                    "evidence": outcome.evidence,
                    "permission": outcome.permission or None,
                }
                for key, outcome in self.outcomes.items()
            ],
        }


def walk(snapshot: Snapshot, subject: Subject, stack: str) -> Walk:
    """Return each link's outcome. An unknown link stops nothing: a later one may still be known to be broken."""
    outcomes: dict[str, Outcome] = {}
    over, then = False, ""
    for key, judge in JUDGES.items():
        if over or then not in ("", key):
            outcomes[key] = Outcome("not-reached")
            continue
        outcome = _judged(judge, snapshot, subject)
        outcomes[key], then = outcome, outcome.then
        over = outcome.ends or outcome.status in ("broken", "waits") or _nothing_to_follow(key, outcome, subject)
    result = Walk(subject, outcomes, stack, controller(snapshot.fleet, subject.spec))
    if subject.queued and result.verdict == "ok":  # it waits, so something is not as it should be
        outcomes["registration"] = Outcome("unknown", "the job waits, and no link says why")
    return result


def _nothing_to_follow(key: str, outcome: Outcome, subject: Subject) -> bool:
    """Return whether later links have no object to judge."""
    if key == "registration":  # of a job that has ended the queue says so
        return True
    if outcome.status != "unknown":
        return False
    if key == "image-pull":  # a container that has not started cannot register
        return True
    if key in ("runner", "pod"):
        return subject.pod is None and (key == "pod" or subject.runner is None)
    return key in ("scheduler", "node-group", "node", "device-plugin") and not (
        subject.pod and subject.pod["spec"].get("nodeName")
    )


def _judged(judge: Judge, snapshot: Snapshot, subject: Subject) -> Outcome:
    try:
        return judge(snapshot, subject)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        # An object of a form that nobody foresaw: the others are still judged.
        reason = f"an object has a form that this link does not know: {type(error).__name__}: {one_line(str(error))}"
        return Outcome("unknown", reason)


def walks(snapshot: Snapshot, stack: str, target: str = "") -> Sequence[Walk]:
    """Return a walk for the target, or for each scale set. Raises UnknownTarget."""
    return [walk(snapshot, subject, stack) for subject in subjects(snapshot, target)]


def verdict(results: Sequence[Walk]) -> Status:
    """Return the verdict of several walks: the worst, but of one job the best, which any of its scale sets may take."""
    order: tuple[Status, ...] = ("ok", "waits", "unknown", "broken")
    verdicts = sorted((result.verdict for result in results), key=order.index)
    of_one_job = len(results) > 1 and all(result.subject.job is not None for result in results)
    return (verdicts[0] if of_one_job else verdicts[-1]) if verdicts else "ok"
