"""The work of `inv doctor`, without Invoke: examine, print, and say by the exit code whether something fails."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddock import clock
from paddock.errors import printable
from paddock.fleet import load
from paddock.operate.cli.credential import credential
from paddock.operate.cli.progress import progress
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.examination import NO_CREDENTIALS, examine
from paddock.operate.doctor.report import WORST_FIRST, Report, Result, Status
from paddock.operate.sources.aws import AwsReader
from paddock.terminal import NO_JSON, JsonOutput, console, json_errors

_COLOURS: dict[Status, str] = {"pass": "green", "warn": "yellow", "fail": "bold red", "unknown": "magenta"}


@json_errors
def run(
    root: Path,
    stack: str,
    *,
    github_key: Path | None = None,
    strict: bool = False,
    json: JsonOutput = NO_JSON,
    clients: Callable[[str, str], Any] | None = None,
) -> int:
    """Examine what `pulumi up` of a stack would meet, print it, and return 1 where something fails, else 0.

    With `strict` a warning or an unknown fails, too. `clients` gives the boto3 client of a service in a region.
    Raises FleetError, BadFlag and OutputError.
    """
    loaded = load(root, stack)
    key = credential(github_key) if github_key else ""
    context = Context(root, loaded, clock.today(), AwsReader(loaded.fleet.region, clients), key)
    with progress(plain_lines=False) as say:
        report = examine(context, lambda done, total, waiting: say(f"{done} of {total} checks; waits for {waiting}"))
    json.write(report.model_dump(mode="json", by_alias=True))
    if not json.replaces_text:
        show(report)
    return int(report.failed or (strict and any(result.status != "pass" for result in report.results)))


def show(report: Report) -> None:
    """Print the report: a line a result, its fix below to be copied whole; one line for all without credentials."""
    from rich.text import Text

    out = console()

    def line(*parts: str | tuple[str, str]) -> None:
        clean = (printable(p) if isinstance(p, str) else (printable(p[0]), p[1]) for p in parts)
        out.print(Text.assemble(*clean), soft_wrap=True)

    account = f"account {report.account}" if report.account else "account unknown"
    line(f"Doctor of {report.stack}  {report.fleet}  {report.region}  {account}")
    area = ""
    unread = [result for result in report.results if result.message == NO_CREDENTIALS]
    for result in report.results:
        if result in unread:
            continue
        if result.area != area:
            area = result.area
            line()
            line((area, "bold"))
        line("  ", (f"{result.status.upper():7}", _COLOURS[result.status]), f"  {_text(result)}")
        if result.fix and result.status != "pass":
            line(f"           fix: {result.fix}")
    if unread:
        line()
        areas = ", ".join(dict.fromkeys(result.area for result in unread))
        line("  ", ("UNKNOWN", _COLOURS["unknown"]), f"  {len(unread)} checks of {areas}: {NO_CREDENTIALS}")
    counts = ", ".join(f"{report.counts[status]} {status.upper()}" for status in WORST_FIRST if report.counts[status])
    line()
    line(f"{counts}; {report.seconds:.1f} s, nothing was changed")


def _text(result: Result) -> str:
    return f"{result.subject}: {result.message}"
