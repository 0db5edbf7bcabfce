"""`bench.compare`: is a new result a regression?"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.bench.errors import BenchInputError
from paddock.console import output
from paddock.console.command import command
from paddock.console.output import caller_path
from paddock.console.parameters import Parameters, parameter
from paddock.console.report import Report
from paddock.errors import printable

if TYPE_CHECKING:
    from paddock.bench.baselines.compare import Comparison
    from paddock.bench.baselines.result import BenchResult


@dataclass(frozen=True, kw_only=True)
class Compare(Parameters):
    """Parameters of `bench.compare`."""

    old: str = parameter(..., "the earlier result, or a folder of kept ones, of which the machine's own are chosen")
    new: str = parameter(..., "the result to judge")
    keep: bool = parameter(False, "keep the new result, where the folder has none for the same measurement yet")
    replace: bool = parameter(False, "keep it in place of the one that is there, unless it is a regression")
    gate: bool = parameter(False, "end with 1 where a metric is worse, with 2 where the sessions are too few to say")
    across: bool = parameter(False, "compare results of different machines")
    false_alarms: float = parameter(
        0.01, "how often a build without a change may fail, over all metrics together", gt=0
    )
    min_change: float = parameter(0.05, "largest change for the worse that is ignored: 0.05 is 5 %", ge=0)
    markdown: Path | None = parameter(None, "also write it to this file as Markdown for a pull request", writes=True)


@dataclass(frozen=True, kw_only=True)
class Compared(Report):
    """A comparison, and what was kept of the new result."""

    SCHEMA = 1
    comparison: Comparison
    kept: tuple[str, ...]
    gate: bool

    def text(self) -> Iterator[str]:
        from paddock.bench.baselines import report

        return report.lines(self.comparison)

    def notes(self) -> Iterator[str]:
        yield from self.kept

    def document(self) -> dict[str, Any]:
        from paddock.bench.baselines import report

        return report.document(self.comparison)

    @property
    def exit_code(self) -> int:
        if not self.gate:
            return 0
        return 1 if self.comparison.count("regression") else 2 if self.comparison.count("undecided") else 0


@command()
def compare(parameters: Compare) -> Compared | int:
    """Compare two results, and keep the new one where that is wanted. Raises BenchInputError, OutputError."""
    from paddock.bench.baselines import compare as comparisons
    from paddock.bench.baselines import report, store
    from paddock.bench.baselines.result import read

    _check(parameters)
    new, source = read(caller_path(parameters.new)), caller_path(parameters.old)
    keeps = parameters.keep or parameters.replace
    folder = source if source.is_dir() or (keeps and not source.exists()) else None
    if folder and not any(folder.glob("*.json")):
        lines = [f"{folder}: no result is kept here yet, so there is nothing to compare with"]
        lines += _keep(folder, new, parameters) if keeps else []
        sys.stderr.writelines(f"{printable(line)}\n" for line in lines)
        return 0
    if keeps and not folder:
        flag = "--replace" if parameters.replace else "--keep"
        raise BenchInputError(
            f"{flag}: {parameters.old} is not a folder\n    expected: the folder to keep the result in"
        )
    old = store.baseline(folder, new, across=parameters.across) if folder else read(source)
    comparison = comparisons.compare(
        old, new, false_alarms=parameters.false_alarms, min_change=parameters.min_change, across=parameters.across
    )
    if parameters.markdown:
        output.write(parameters.markdown, report.markdown(comparison))
    kept = _keep(folder, new, parameters) if folder and keeps and not comparison.count("regression") else ()
    return Compared(comparison=comparison, kept=tuple(kept), gate=parameters.gate)


def _keep(folder: Path, new: Sequence[BenchResult], parameters: Compare) -> Iterator[str]:
    """Keep what can be trusted, and yield what was kept and what was not."""
    from paddock.bench.baselines import store

    trusted = [result for result in new if not result.doubts]
    yield from (f"not kept: {result.label}: {result.doubts[0]}" for result in new if result.doubts)
    written = store.keep(folder, trusted, replace=parameters.replace)
    for result in trusted:
        path = store.path(folder, result)
        there = f"not kept: {result.label}: {path} is there; --replace takes the new one"
        yield f"kept: {path}" if path in written else there


def _check(parameters: Compare) -> None:
    if parameters.false_alarms >= 0.5:
        raise BenchInputError(f"--false-alarms is {parameters.false_alarms:g}\n    expected: above 0, below 0.5")
    if parameters.min_change >= 1:
        raise BenchInputError(f"--min-change is {parameters.min_change:g}\n    expected: 0 to below 1")
