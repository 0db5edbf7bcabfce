"""The work of `inv verify`, without Invoke: run the tests, keep the record, print, and say by the exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from paddock import process
from paddock.errors import printable
from paddock.fleet import load
from paddock.operate.cli.connect import Access, check_reached, connect, to_change
from paddock.operate.cli.progress import progress
from paddock.operate.snapshot.read import Sources, read
from paddock.operate.sources.kubernetes_jobs import Jobs
from paddock.operate.verify.canary import Canary
from paddock.operate.verify.report import Report, State, junit
from paddock.operate.verify.run import Verification
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, console, json_errors, write

_COLOURS: dict[State, str] = {"pass": "green", "fail": "bold red", "skip": "dim", "unknown": "magenta"}
INTERRUPTED = 130


@json_errors
def run(
    root: Path,
    stack: str,
    access: Access,
    *,
    canary: str = "",
    patience: float = 1800.0,
    junit_file: Path | None = None,
    json: JsonOutput = NO_JSON,
    poll: float = 1.0,
) -> int:
    """Prove that a GPU job can run; return 1 where a test fails, 130 after an interrupt, else 0.

    Raises FleetError, BadFlag, OutputError and NoCluster.
    """
    loaded = load(root, stack)
    sources = connect(loaded.fleet, access)
    cluster = to_change(loaded.fleet, sources)
    check_reached(read(loaded.fleet, Sources(sources.kubernetes), parts=("nodes",)))
    if canary and sources.github is None:
        raise BadFlag(
            "--canary without --github-key\n    expected: the App's key or a token\n    fix: --github-key FILE"
        )
    workflow = Canary.parse(canary, sources.github) if canary and sources.github else None
    with progress() as say, process.sigterm_as_interrupt():
        report = Verification(
            loaded.fleet,
            stack,
            cluster.context,
            lambda: read(loaded.fleet, sources),
            lambda namespace, label: Jobs(cluster, namespace, label),
            workflow,
            patience,
            say,
            poll=poll,
        ).verify()
    _keep(report)
    json.write(report.model_dump(mode="json", by_alias=True))
    if junit_file:
        write(junit_file, junit(report))
    if not json.replaces_text:
        show(report)
    return INTERRUPTED if report.interrupted else int(report.failed)


def show(report: Report) -> None:
    """Print a line a test, its fix and its parts below."""
    from rich.text import Text

    out = console()

    def line(*parts: str | tuple[str, str]) -> None:
        clean = (printable(p) if isinstance(p, str) else (printable(p[0]), p[1]) for p in parts)
        out.print(Text.assemble(*clean), soft_wrap=True)

    line(f"Verification of {report.stack}  {report.fleet}  context {report.context}  run {report.run}")
    line()
    for step in report.steps:
        line("  ", (f"{step.state.upper():7}", _COLOURS[step.state]), f"  {step.name}: {step.message}")
        if step.fix:
            line(f"           fix: {step.fix}")
        for part in step.phases:
            shown = part.note if part.seconds is None else f"{part.seconds:.0f} s of {part.budget_seconds:.0f} s"
            line(f"           {part.name:20} {shown}")
    line()
    for item in report.left_behind:
        line(("  left behind: ", "bold red"), item)
    how = "interrupted; " if report.interrupted else ""
    left = f"{len(report.left_behind)} things left behind" if report.left_behind else "nothing left behind"
    line(f"{how}{'failed' if report.failed else 'passed'} after {report.seconds:.0f} s; {left}")


def records(stack: str) -> Path:
    """Return the file with a line of JSON for each run of a stack."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(state, "paddock/verify", f"{stack}.jsonl")


def _keep(report: Report) -> None:
    path = records(report.stack)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(report.model_dump_json(by_alias=True) + "\n")
    except OSError as error:  # a record that cannot be kept fails no fleet
        console(sys.stderr).print(f"the record is not kept: {path}: {error.strerror}", markup=False)
