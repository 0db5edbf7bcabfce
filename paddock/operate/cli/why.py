"""The work of `inv why`, without Invoke: read, walk, print, and say by the exit code whether a link is broken."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from paddock.errors import printable
from paddock.fleet import load
from paddock.operate.chain.links.evidence import span
from paddock.operate.chain.outcome import Status
from paddock.operate.chain.subject import job_of
from paddock.operate.chain.walk import SCHEMA, Walk, verdict, walks
from paddock.operate.cli.connect import Access, check_reached, connect
from paddock.operate.runbooks import LINKS, runbooks
from paddock.operate.snapshot.model import NOT_READ, Snapshot, name
from paddock.operate.snapshot.read import Sources, read
from paddock.terminal import NO_JSON, JsonOutput, console, json_errors

SECOND_READING = 5.0
"""Seconds to a second reading, where only that tells a change under way from a fault."""
_DRIFT = timedelta(minutes=1)
_Part = str | tuple[str, str]
_COLOURS: dict[Status, str] = {
    "ok": "green",
    "waits": "cyan",
    "broken": "bold red",
    "unknown": "magenta",
    "not-reached": "dim",
}
_MARKS: dict[Status, str] = {
    "ok": "ok",
    "waits": "waits",
    "broken": "BROKEN",
    "unknown": "unknown",
    "not-reached": "-",
}


@json_errors
def run(root: Path, stack: str, target: str, access: Access, *, json: JsonOutput = NO_JSON) -> int:
    """Walk the chain of a target, or of every scale set; print it, and return 1 where a link is broken, else 0.

    A job that several scale sets serve is broken only where each of their chains is.

    Raises FleetError, BadFlag, UnknownTarget, NoCluster and OutputError.
    """
    loaded = load(root, stack)
    sources = connect(loaded.fleet, access, job_of(target))
    snapshot, result = examine(lambda: read(loaded.fleet, sources, logs=True), stack, target)
    if not snapshot.jobs.known:
        check_reached(snapshot)
    json.write(document(snapshot, sources, result, stack))
    if not json.replaces_text:
        show(snapshot, sources, result, stack)
    return int(verdict(result) == "broken")


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


def document(snapshot: Snapshot, sources: Sources, result: Sequence[Walk], stack: str) -> dict[str, object]:
    """Return walks and sources as JSON."""
    return {
        "schema": SCHEMA,
        "stack": stack,
        "fleet": snapshot.fleet.name,
        "context": sources.kubernetes.cluster.context if sources.kubernetes else None,
        "at": snapshot.at.isoformat(),
        "verdict": verdict(result),
        "walks": [one.document() for one in result],
        "unknown": {
            part: {"reason": reading.reason, "fix": reading.fix or None, "permission": reading.permission or None}
            for part, reading in snapshot.readings().items()
            if not reading.known and reading is not NOT_READ
        },
    }


def show(snapshot: Snapshot, sources: Sources, result: Sequence[Walk], stack: str) -> None:
    """Print each walk, its links and what mends the broken one."""
    from rich.text import Text

    out = console()

    def line(*parts: _Part) -> None:
        clean = (printable(p) if isinstance(p, str) else (printable(p[0]), p[1]) for p in parts)
        out.print(Text.assemble(*clean), soft_wrap=True)

    cluster = sources.kubernetes.cluster if sources.kubernetes else None
    where = f"context {cluster.context}" if cluster else "cluster unknown"
    line(f"Why of {stack}  {snapshot.fleet.name}  {where}  {snapshot.at:%Y-%m-%d %H:%M:%S} UTC")
    if cluster and not cluster.named:
        line(("  no context is named after the cluster: this is the current one", "yellow"))
    drift = snapshot.clocks.get("machine", snapshot.at) - snapshot.at
    if abs(drift) > _DRIFT:
        side = "ahead of" if drift > timedelta() else "behind"
        line((f"  this machine's clock is {span(abs(drift))} {side} the cluster's, which counts", "yellow"))
    for one in result:
        line()
        _show_walk(one, line)
    if len(result) > 1 and all(one.subject.job is not None for one in result):
        line()
        line(f"GitHub may give the job to any of these {len(result)} scale sets: {verdict(result)}")


def _show_walk(one: Walk, line: Callable[..., None]) -> None:
    about = one.subject.pod if one.subject.steers else one.subject.runner or one.subject.pod
    of = f", {name(about)}" if about else ""
    line((f"{one.subject.scale_set}{of}", "bold"))
    for key, outcome in one.outcomes.items():
        line("  ", (f"{_MARKS[outcome.status]:8}", _COLOURS[outcome.status]), f"{LINKS[key]:20}  {outcome.evidence}")
    decisive = one.outcomes.get(one.link)
    if decisive is None:
        line("  nothing is broken")
        return
    if decisive.status == "broken":
        book = runbooks()[decisive.runbook]
        line("  ", (f"{book.title}.", "bold"), f" {book.means}")
        line(f"  evidence: {decisive.evidence}")
    elif decisive.status == "waits":
        line(f"  nothing is broken; it waits at: {LINKS[one.link]}")
    else:
        line(f"  no link is known to be broken; unknown: {LINKS[one.link]}")
    if one.fix:
        line(f"  fix: {one.fix}")
