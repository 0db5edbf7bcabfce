"""The work of `inv why`, without Invoke: read, walk, print, and say by the exit code whether a link is broken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from paddock.errors import printable
from paddock.fleet import load
from paddock.operate.chain.outcome import Status
from paddock.operate.chain.subject import job_of
from paddock.operate.chain.walk import SCHEMA, Walk, walks
from paddock.operate.cli.connect import Access, connect
from paddock.operate.runbooks import LINKS, runbooks
from paddock.operate.snapshot.model import NOT_READ, Snapshot, name
from paddock.operate.snapshot.read import Sources, read
from paddock.terminal import NO_JSON, JsonOutput, console, json_errors

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

    Raises FleetError, BadFlag, UnknownTarget and OutputError.
    """
    loaded = load(root, stack)
    sources = connect(loaded.fleet, access, job_of(target))
    snapshot = read(loaded.fleet, sources, logs=True)
    result = walks(snapshot, stack, target)
    json.write(document(snapshot, sources, result, stack))
    if not json.replaces_text:
        show(snapshot, sources, result, stack)
    return int(any(one.verdict == "broken" for one in result))


def document(snapshot: Snapshot, sources: Sources, result: Sequence[Walk], stack: str) -> dict[str, object]:
    """Return walks and sources as JSON."""
    return {
        "schema": SCHEMA,
        "stack": stack,
        "fleet": snapshot.fleet.name,
        "context": sources.kubernetes.cluster.context if sources.kubernetes else None,
        "at": snapshot.at.isoformat(),
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
    for one in result:
        line()
        _show_walk(one, line)


def _show_walk(one: Walk, line: Callable[..., None]) -> None:
    about = one.subject.runner or one.subject.pod
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
