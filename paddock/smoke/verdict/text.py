"""The verdict as lines for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from paddock.smoke.verdict.model import MachineVerdict, StageResult, amount


def line(result: StageResult) -> str:
    """Return one stage's result on one line."""
    where = (
        f"GPU {result.index}" if result.index is not None else {"cpu": "CPU", "all": "all"}.get(result.gpu or "", "")
    )
    took = f" ({result.seconds:.1f} s)" if result.seconds else ""
    return f"{result.status:<4}  {result.stage:<10} {where:<6} {result.evidence}{took}".rstrip()


def summary(report: MachineVerdict) -> Iterator[str]:
    """Yield the verdict, what to do, and the measurements with their limits."""
    rows = [(stage, item) for stage in report.stages for item in stage.measurements]
    if rows:
        yield ""
        yield f"{'measurement':<32} {'device':<7} {'value':>16} {'warn below':>11} {'fail below':>11}"
        for stage, item in rows:
            device = str(stage.index) if stage.index is not None else stage.gpu or ""
            limits = "".join(f" {'-' if limit is None else f'{limit:g}':>11}" for limit in (item.warn, item.fail))
            yield f"{item.name:<32} {device:<7} {amount(item):>16}{limits}"
    for note in report.notes:
        yield f"note: {note}"
    yield ""
    tested = f"tier {report.tier}, {report.machine}"
    yield f"{report.verdict} ({tested})" if report.complete else f"interrupted; {report.verdict} until then ({tested})"
    if report.no_gpu:
        yield f"not tested: no GPU ({report.no_gpu})"
        yield "  fix: --cpu tests this machine's CPU, which shows how the test works"
    if report.untested:
        yield f"not tested: {', '.join(_untested(report))}"
    if report.action != "none":
        yield f"action: {report.action}"
    for fix in dict.fromkeys(stage.fix for stage in report.stages if stage.fix and stage.status != "pass"):
        yield f"  fix: {fix}"


def _untested(report: MachineVerdict) -> list[str]:
    """Return the stages that could not run, each with how many devices lack it where not all do."""
    lacking = Counter(stage.stage for stage in report.untested)
    ran = Counter(stage.stage for stage in report.stages if stage.status != "skip")
    return [f"{name} ({count} of {count + ran[name]})" if ran[name] else name for name, count in lacking.items()]
