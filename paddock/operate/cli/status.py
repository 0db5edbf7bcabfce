"""The work of `inv status`, without Invoke: read once or again and again, and print one screen."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.errors import printable
from paddock.fleet import Stack, load
from paddock.operate.cli.connect import Access, NoCluster, check_reached, connect
from paddock.operate.runbooks import LINKS
from paddock.operate.snapshot.read import Sources, read
from paddock.operate.status.compute import status
from paddock.operate.status.report import Datum, Status
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, console, json_errors

if TYPE_CHECKING:
    from rich.console import Console

_WAITING_PARTS = ("jobs", "runners", "pods")
PERIOD = 10.0
"""Seconds from one screen of `--watch` to the next."""


@json_errors
def run(root: Path, stack: str, access: Access, *, watch: bool = False, json: JsonOutput = NO_JSON) -> int:
    """Print the state of a fleet, with `watch` until Ctrl-C; return 1 where the cluster is not known, else 0.

    Raises FleetError, BadFlag, NoCluster and OutputError.
    """
    if watch and json.replaces_text:
        raise BadFlag("--watch with --json\n    expected: one of them\n    fix: run --json as often as you like")
    loaded = load(root, stack)
    sources = connect(loaded.fleet, access)
    try:
        while True:
            try:
                report = _read(loaded, sources)
            except NoCluster as error:
                if not watch:
                    raise
                console(sys.stderr).print(printable(str(error)), soft_wrap=True, markup=False)
            else:
                json.write(report.model_dump(mode="json", by_alias=True))
                if not json.replaces_text:
                    out = console()
                    if watch and out.is_terminal:
                        out.clear()
                    show(report, out)
                if not watch:
                    return int(all(pool.ready is None for pool in report.pools))
            time.sleep(PERIOD)
    except KeyboardInterrupt:
        if not watch:
            raise
        return 0


def _read(stack: Stack, sources: Sources) -> Status:
    """Return the state. Raises NoCluster."""
    began = time.monotonic()
    snapshot = read(stack.fleet, sources)
    check_reached(snapshot)
    context = sources.kubernetes.cluster.context if sources.kubernetes else None
    return status(snapshot, stack.name, context, time.monotonic() - began)


def show(report: Status, out: Console) -> None:
    """Print one screen."""

    def line(text: str = "") -> None:
        out.print(printable(text), soft_wrap=True, markup=False)

    where = f"context {report.context}" if report.context else "cluster unknown"
    line(f"Status of {report.stack}  {report.fleet}  {report.region}  {where}  {report.at:%Y-%m-%d %H:%M:%S} UTC")
    line()
    _table(
        line,
        ("pool", "ready", "starting", "broken", "draining", "max", "GPUs", "in use"),
        [
            (p.pool, p.ready, p.starting, p.broken, p.draining, p.most, p.gpus_allocatable, p.gpus_allocated)
            for p in report.pools
        ],
    )
    line()
    _table(
        line,
        ("scale set", "phase", "assigned", "running", "idle", "starting", "failed", "max"),
        [
            (s.scale_set, s.phase, s.assigned, s.running, s.idle, s.starting, s.failed, s.most)
            for s in report.scale_sets
        ],
    )
    line()
    line(f"oldest waiting      {_waiting(report)}")
    if report.oldest_waiting and report.oldest_waiting.fix:
        line(f"  fix: {report.oldest_waiting.fix}")
    line(f"spot interruptions  {_shown(report.spot_interruptions)} in the events that the cluster keeps")
    line(f"nodes cost          {_cost(report)}")
    line(f"read                {_ages(report)}")
    for sentence in _unknown(report):
        line(f"  {sentence}")


def _unknown(report: Status) -> list[str]:
    """Return what is not known, once for each reason."""
    parts: dict[str, list[Datum]] = {}
    for datum in report.data:
        if datum.unknown:
            parts.setdefault(datum.unknown, []).append(datum)
    return [f"{', '.join(datum.part for datum in own)} unknown: {reason}" for reason, own in parts.items()]


def _waiting(report: Status) -> str:
    oldest = report.oldest_waiting
    if oldest is None:
        lacking = [datum.part for datum in report.data if datum.unknown and datum.part in _WAITING_PARTS]
        return "none" if report.waiting_known else f"unknown: nothing is seen to wait, without {', '.join(lacking)}"
    link = LINKS.get(oldest.link or "", "no link")
    since = "" if oldest.seconds is None else f" for {oldest.seconds:.0f} s"
    return f"{oldest.name}{since}: {oldest.verdict} at {link}: {oldest.evidence or ''}"


def _cost(report: Status) -> str:
    cost = report.cost
    if cost.usd_per_hour is None:
        return f"unknown: {', '.join(cost.missing)}"
    least = "at least " if cost.missing else ""
    lacking = f"; without {', '.join(cost.missing)}" if cost.missing else ""
    dated = f", prices of {cost.as_of} ({', '.join(cost.sources)})" if cost.as_of else ""
    return f"{least}{cost.usd_per_hour:.2f} USD an hour{dated}{lacking}"


def _ages(report: Status) -> str:
    """Return the age of each source: that of its oldest datum."""
    ages: dict[str, float] = {}
    for datum in report.data:
        known = datum.age_seconds if not datum.unknown else None
        if known is not None:
            ages[datum.source] = max(known, ages.get(datum.source, 0.0))
    sources = dict.fromkeys(datum.source for datum in report.data)
    said = (f"{source} {ages[source]:.0f} s ago" if source in ages else f"{source} unknown" for source in sources)
    return f"{', '.join(said)}; reading took {report.seconds:.1f} s"


def _table(line: Callable[[str], None], heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    shown = [tuple(map(_shown, row)) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(heads, *shown, strict=True)]
    for row in (tuple(heads), *shown):
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        line("  ".join(cells).rstrip())


def _shown(value: object) -> str:
    return "?" if value is None else str(value)
