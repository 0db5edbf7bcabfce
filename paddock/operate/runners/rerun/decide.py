"""Decision whether a job is run again. Pure: only where evidence ties it to one node that AWS took back under it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from paddock.errors import one_line
from paddock.operate.runners.rerun.model import Decision, Evidence, Job, NodeVerdict, Placement, Statements

MOST_ATTEMPTS: Final = 3
"""Attempts of a run: the first, and two more."""
CLOCKS: Final = timedelta(seconds=60)
"""Difference between the clocks of GitHub, AWS and the cluster that counts as none."""
LONGEST: Final = timedelta(minutes=30)
"""From the first sign to the job's end. GitHub misses a runner after about ten minutes."""

_ENDS = ("failure", "cancelled")
"""Conclusions of a job whose runner ended: a runner that gets SIGTERM says failure, GitHub itself may say cancelled
(actions/runner StepsRunner.cs; runs-on/runs-on issue 249; read 2026-11-25)."""
_OTHERS = re.compile(
    r"The run was canceled by @"
    r"|Canceling since a higher priority waiting request"
    r"|The strategy configuration was canceled"
    r"|exceeded the maximum execution time"
)
"""Annotations of a job that a person, a newer run, a matrix or a time limit ended."""
_RUNNER = re.compile(
    r"The runner has received a shutdown signal|lost communication with the server|Operating system is shutting down"
)
"""Words of a runner that was ended, and of GitHub about one that vanished (JobRunner.cs). Since July 2026 GitHub shows
them in the log and no more as annotations (camunda/camunda issue 57701)."""


def decide(job: Job, evidence: Evidence, statements: Statements | None = None) -> Decision:
    """Return what is to be done with a job. Without `said` the state `ask` says that it is needed."""
    if job.conclusion not in _ENDS:
        return Decision("left", f"it ended as {job.conclusion or job.status or 'nothing that GitHub reports'}")
    if not job.runner:
        return Decision("left", "no runner ever had it")
    if job.ended is None or job.started is None:
        return Decision("unknown", "GitHub reports no times for it")
    if evidence.unknown:
        return Decision("unknown", evidence.unknown, evidence.fix, evidence.permission)
    taken_back = [(where, verdict) for where, verdict in evidence.placed if verdict.state == "taken-back"]
    if not taken_back:
        return _not_taken_back(evidence)
    where, verdict = taken_back[0]
    decision = _of_lost_node(job, job.ended, where, verdict, statements)
    lost = decision.state == "rerun"
    if lost and job.attempt >= MOST_ATTEMPTS:
        decision = Decision("left", f"{decision.why}; it has run {job.attempt} times, and is run again at most twice")
    return Decision(
        decision.state,
        decision.why,
        decision.fix,
        decision.permission,
        node=where.node,
        instance=verdict.instance,
        lost=lost,
    )


def _not_taken_back(evidence: Evidence) -> Decision:
    for _, verdict in evidence.placed:
        if verdict.state == "unknown":
            return Decision("unknown", verdict.reason, verdict.fix, verdict.permission)
    return Decision("left", "; ".join(verdict.reason for _, verdict in evidence.placed))


def _of_lost_node(
    job: Job, ended: datetime, where: Placement, verdict: NodeVerdict, statements: Statements | None
) -> Decision:
    signs = [time for time in (verdict.noticed, where.killed) if time]
    first = min(signs, default=None)
    if first and ended < first - CLOCKS:
        return Decision(
            "left", f"it ended at {_clock(ended)}, before its node {where.node} went from {_clock(first)} on"
        )
    if first and ended > first + LONGEST:
        late = f"it ended at {_clock(ended)}, long after its node {where.node} went at {_clock(first)}"
        return Decision("unknown", f"{late}: that may be another one of this name")
    early = next((step for step in job.failed_steps if first and step.ended and step.ended < first), None)
    if early:
        return Decision("left", f"its step {early.name} failed before its node {where.node} went at {_clock(first)}")
    if statements is None:
        return Decision("ask", verdict.reason)
    if statements.unknown:
        return Decision("unknown", statements.unknown, statements.fix, statements.permission)
    for text in statements.texts:
        if match := _OTHERS.search(text):
            return Decision("left", f"GitHub says: {one_line(_sentence(text, match.start()))}")
    words = next((match[0] for text in statements.texts if (match := _RUNNER.search(text))), "")
    killed = where.killed if where.killed and where.killed <= ended + CLOCKS else None
    # A kubelet ends the pod of a job whose own step failed, too: afterwards.
    own = [step for step in job.failed_steps if not (killed and step.ended and step.ended >= killed)]
    if own and not words:
        return Decision("left", f"its step {own[0].name} failed by itself")
    if not words and not killed:
        lacks = f"; its log cannot be read: {statements.no_log}" if statements.no_log else ""
        return Decision("unknown", f"{verdict.reason}; yet nothing says that its runner ended before it did{lacks}")
    how = f"GitHub says: {words}" if words else f"the kubelet ended {where.pod} at {_clock(killed)}, before it ended"
    return Decision("rerun", f"{verdict.reason}; {how}")


def names_an_end(texts: Iterable[str]) -> bool:
    """Return whether GitHub's words tell what ended a job."""
    return any(_OTHERS.search(text) or _RUNNER.search(text) for text in texts)


def _sentence(text: str, start: int) -> str:
    """Return the line of a text where something is."""
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    return text[begin : end if end >= 0 else len(text)][:200]


def _clock(time: datetime | None) -> str:
    return f"{time:%H:%M:%S} UTC" if time else "an unknown time"
