"""The work of `inv cost`, without Invoke: read the bill, compare it with the plan, print it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from paddock import clock
from paddock.errors import printable
from paddock.fleet import load
from paddock.operate.cost import bill, usage
from paddock.operate.cost.compute import cost
from paddock.operate.cost.report import Cost, Line, Pool
from paddock.operate.cost.waste import lost_hours
from paddock.operate.sources import interruptions
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.prometheus import PrometheusReader, check_url
from paddock.operate.sources.unavailable import Unavailable
from paddock.plan import fit
from paddock.plan.cost.estimate import estimate
from paddock.plan.cost.rightsizing import right_size
from paddock.plan.engine.program import plan_graph
from paddock.plan.serving.fit import served_fits
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, console, json_errors

MOST_DAYS = 365
"""Cost Explorer keeps the days of 14 months."""
_WORKFLOWS = 10
_Row = Sequence[str]


@json_errors
def run(
    root: Path,
    stack: str,
    *,
    days: int = 7,
    prometheus: str = "",
    json: JsonOutput = NO_JSON,
    clients: Callable[[str, str], Any] | None = None,
) -> int:
    """Print what a fleet cost in whole days until today; return 1 where the bill could not be read, else 0.

    `clients` gives the boto3 client of a service in a region. Raises FleetError, BadFlag and OutputError.
    """
    if not 1 <= days <= MOST_DAYS:
        raise BadFlag(f"--days {days}\n    expected: 1 to {MOST_DAYS}\n    fix: leave it out for a week")
    if prometheus and (problem := check_url(prometheus)):
        shown = "" if "credential" in problem else f" {printable(prometheus)}"
        raise BadFlag(
            f"--prometheus{shown}: {problem}\n    expected: an address such as http://localhost:9090"
            "\n    fix: kubectl port-forward to the service, and http://localhost:9090"
        )
    loaded = load(root, stack)
    fleet, end = loaded.fleet, clock.today()
    start = end - timedelta(days=days)
    planned = estimate(fleet, plan_graph(loaded), fit.fit(fleet), served_fits(fleet), today=end)
    owns = fleet.owns_nodes and fleet.holds("cluster")
    report = cost(
        loaded,
        planned,
        right_size(fleet),
        bill.read(AwsReader(fleet.region, clients), fleet, start, end) if owns else None,
        usage.read(PrometheusReader(prometheus), end, days) if prometheus else None,
        _lost(loaded.name, start, end),
        start,
        end,
    )
    json.write(report.model_dump(mode="json", by_alias=True))
    if not json.replaces_text:
        if report.bill.failed and not prometheus:
            # All that is left is the plan's estimate, which `plan` shows.
            text = f"{report.bill.unknown}\n    fix: {report.bill.fix}"
            console(sys.stderr).print(printable(text), soft_wrap=True, markup=False, highlight=False)
        else:
            show(report)
    return int(report.bill.failed)


def _lost(stack: str, start: date, end: date) -> float | str:
    """Return the GPU-hours of interrupted jobs that this machine's record has, or why they are not known."""
    try:
        return lost_hours(interruptions.read(stack), start, end)
    except Unavailable as error:
        return str(error)


def show(report: Cost) -> None:
    """Print the report as text."""
    out = console()
    for line in _lines(report):
        out.print(printable(line), soft_wrap=True, markup=False, highlight=False)


def _lines(report: Cost) -> Iterator[str]:
    period = f"{report.start} until {report.end}, {report.days} days"
    yield f"Cost of {report.stack}  {report.fleet}  {report.region}  {period}"
    yield ""
    yield from _bill(report)
    yield ""
    yield from _table(
        ("USD", "estimate", "actual", "ratio", "node-hours", "USD a node-hour", "estimate"),
        [*map(_pool, report.pools), _line(report.rest), _line(report.total)],
    )
    yield ""
    yield "Changes with the largest effect on these days"
    for change in report.changes:
        yield f"  {change.usd:.2f} USD  {change.pool}: {change.message}"
        yield f"           edit: {change.edit}"
        yield f"           from: {change.basis}"
    if not report.changes:
        yield "  none is known"
    yield ""
    yield "Waste"
    shown = ""
    for waste in report.waste:
        least = "at least " if waste.at_least else ""
        amount = "unknown" if waste.gpu_hours is None else f"{least}{waste.gpu_hours:.2f} GPU-hours"
        money = "" if waste.usd is None else f", {waste.usd:.2f} USD"
        yield f"  {waste.kind}: {amount}{money}  ({waste.meaning})" + (f": {waste.unknown}" if waste.unknown else "")
        if waste.needs != shown and (shown := waste.needs):
            yield f"           known with: {waste.needs}"
    yield from _use(report)
    yield ""
    for note in report.notes:
        yield f"note: {note}"


def _bill(report: Cost) -> Iterator[str]:
    bill = report.bill
    if bill.usd is None:
        yield f"bill: unknown: {bill.unknown}"
    else:
        changing = ", days may still change" if bill.estimated else ""
        yield f"bill: {bill.usd:.2f} USD, {bill.metric}{changing}  ({bill.source})"
        if bill.unknown:
            yield f"  pools: unknown: {bill.unknown}"
    if bill.fix:
        yield f"  fix: {bill.fix}"
    if bill.requests:
        requests = "1 request" if bill.requests == 1 else f"{bill.requests} requests"
        yield f"  {requests} to Cost Explorer, for which AWS charges {bill.requests_usd:.2f} USD"


def _use(report: Cost) -> Iterator[str]:
    yield ""
    if report.metrics is None:
        yield "GPU use and workflows: unknown: no Prometheus was asked; known with: --prometheus URL"
        return
    if report.metrics.hours is None:
        yield f"Prometheus: unknown: {report.metrics.unknown}"
    else:
        yield f"Prometheus has samples of {report.metrics.hours:.1f} of {report.days * 24} hours"
    for gpu in report.utilisation:
        yield f"  {gpu.gpu}: {gpu.percent:.1f} % used on average, by DCGM"
    yield from _jobs(report)
    rows = [
        (row.repository, row.workflow, f"{row.hours:.2f}", f"{row.share:.0%}", _number(row.usd))
        for row in report.workflows[:_WORKFLOWS]
    ]
    if rows:
        yield from _table(("repository", "workflow", "hours", "share", "USD"), rows)
    else:
        yield "  workflows: unknown: Prometheus has no times of jobs in the period"


def _jobs(report: Cost) -> Iterator[str]:
    """Yield GPUs by repository and workflow, or why they are not known."""
    if report.jobs_unknown:
        yield f"  GPUs by repository: unknown: {report.jobs_unknown}"
    if report.jobs:
        rows = [
            (
                row.repository,
                row.workflow,
                f"{row.gpu_hours:.2f}",
                "?" if row.gpu_percent is None else f"{row.gpu_percent:.1f} %",
                _number(row.idle_gpu_hours),
                _number(row.usd),
            )
            for row in report.jobs[:_WORKFLOWS]
        ]
        yield from _table(("repository", "workflow", "GPU-hours", "used", "idle", "USD"), rows)
        yield ""


def _pool(pool: Pool) -> _Row:
    hours = "?" if pool.node_hours is None else f"{pool.node_hours:.1f}"
    return (*_line(pool), hours, _number(pool.actual_node_hour, 4), _number(pool.estimate_node_hour, 4))


def _line(line: Line) -> _Row:
    return line.name, _number(line.estimate_usd), _number(line.actual_usd), _number(line.ratio)


def _number(value: float | None, digits: int = 2) -> str:
    return "?" if value is None else f"{value:.{digits}f}"


def _table(head: _Row, rows: Sequence[_Row]) -> Iterator[str]:
    padded = [[*row, *[""] * (len(head) - len(row))] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in padded) for column in range(len(head))]
    for row in padded:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
