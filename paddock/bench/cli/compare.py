"""`bench.compare`: is a new result a regression?"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock import terminal
from paddock.bench.errors import BenchInputError
from paddock.errors import printable
from paddock.gpu.parameter import JSON, Flag, Parameters, parameter

if TYPE_CHECKING:
    from paddock.bench.baselines.result import BenchResult


@dataclass(frozen=True, kw_only=True)
class Compare(Parameters):
    """Parameters of `bench.compare`."""

    old: str = parameter(..., "the earlier result, or a folder of kept ones, of which the machine's own are chosen")
    new: str = parameter(..., "the result to judge")
    keep: bool = parameter(False, "keep the new result in the folder where it has none of its kind yet")
    replace: bool = parameter(False, "keep it in place of the one that is there, unless it is a regression")
    gate: bool = parameter(False, "end with 1 where a metric is worse, with 2 where the sessions are too few to say")
    across: bool = parameter(False, "compare results of different machines")
    false_alarms: float = parameter(0.01, "how often a build without a change may fail, over all metrics together")
    min_change: float = parameter(0.05, "how much worse is still the same: 0.05 is 5 %")
    json: str | None = parameter(None, JSON.help, flag=JSON)
    markdown: str | None = parameter(None, "also write it to this file as Markdown for a pull request")


FLAGS: Mapping[str, Flag] = {name: flag for name, _, flag in Compare.flags()}


def perform(values: Mapping[str, Any]) -> int:
    """Compare and return the exit code. Raises BenchInputError, OutputError."""
    from paddock.bench.baselines import report, store
    from paddock.bench.baselines.compare import compare
    from paddock.bench.baselines.result import read

    parameters = Compare.from_flags(values)
    _check(parameters)
    json = terminal.JsonOutput.parse(parameters.json)
    markdown = terminal.output_path("markdown", parameters.markdown)
    new, source = read(terminal.caller_path(parameters.new)), terminal.caller_path(parameters.old)
    keeps = parameters.keep or parameters.replace
    folder = source if source.is_dir() or (keeps and not source.exists()) else None
    if folder and not any(folder.glob("*.json")):
        sys.stderr.write(f"{folder}: no result is kept here yet, so there is nothing to compare with\n")
        if keeps:
            _keep(folder, new, parameters)
        return 0
    if keeps and not folder:
        flag = "--replace" if parameters.replace else "--keep"
        raise BenchInputError(f"{flag}: {parameters.old} is no folder\n    expected: the folder to keep the result in")
    old = store.baseline(folder, new, across=parameters.across) if folder else read(source)
    comparison = compare(
        old,
        new,
        false_alarms=parameters.false_alarms,
        min_change=parameters.min_change,
        across=parameters.across,
    )
    json.write(report.document(comparison))
    if not json.replaces_text:
        sys.stdout.writelines(f"{printable(line)}\n" for line in report.lines(comparison))
    if markdown:
        terminal.write(markdown, report.markdown(comparison))
    regressed, undecided = comparison.count("regression"), comparison.count("undecided")
    if folder and keeps and not regressed:
        _keep(folder, new, parameters)
    if not parameters.gate:
        return 0
    return 1 if regressed else 2 if undecided else 0


def _keep(folder: Path, new: Sequence[BenchResult], parameters: Compare) -> None:
    """Keep what can be trusted, and say what was kept and what was not."""
    from paddock.bench.baselines import store

    trusted = [result for result in new if not result.doubts]
    for result in new:
        if result.doubts:
            sys.stderr.write(f"not kept: {printable(result.label)}: {printable(result.doubts[0])}\n")
    written = store.keep(folder, trusted, replace=parameters.replace)
    for result in trusted:
        path = folder / store.file_name(result)
        there = f"not kept: {printable(result.label)}: {path} is there; --replace puts it in its place"
        sys.stderr.write(f"kept: {path}\n" if path in written else f"{there}\n")


def _check(parameters: Compare) -> None:
    if not 0 < parameters.false_alarms < 0.5:
        raise BenchInputError(
            f"--false-alarms {parameters.false_alarms:g} is no rate\n    expected: above 0, below 0.5"
        )
    if not 0 <= parameters.min_change < 1:
        raise BenchInputError(f"--min-change {parameters.min_change:g} is no part\n    expected: 0 to below 1")
