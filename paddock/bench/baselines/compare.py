"""Comparison of two results: a regression is what noise does not explain.

The values compared are the medians of sessions, each a process of its own: where its memory lies, what its neighbours
do and how fast its processor runs is one draw for all runs of a process, and on a shared machine that differs by 25 %
and more between processes of one build. The hypothesis of each metric is "the new build is at most `min_change` worse".
The old sessions are made worse by that, and the exact one-sided Mann-Whitney test asks whether the new ones are worse
still; Holm's correction over all metrics of all cells holds `false_alarms` for the whole comparison.

The test assumes independent sessions. Those that drift together weaken it; the margin covers that: in simulation, with
no change at all, a margin of 5 % and noise of up to 3 % (coefficient of variation) whose neighbours correlate by 0.5,
the stated 1 % holds. A build that is slower by less than the margin passes by design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from paddock.bench.baselines.ranks import decides, holm, samples_needed, slower_by_chance
from paddock.bench.baselines.result import MACHINE, SOFTWARE, BenchResult, Metric
from paddock.bench.errors import BenchInputError

Verdict = Literal["same", "better", "regression", "undecided"]
"""`undecided`: too few sessions for the stated rate."""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one cell. `change` is the relative change of the medians; below 0 is worse."""

    cell: str
    metric: str
    unit: str
    old: float
    new: float
    change: float
    probability: float
    sessions: tuple[int, int]
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows, and what was left out. `needed` are the sessions on each side that the rate takes."""

    rows: tuple[Row, ...]
    false_alarms: float
    min_change: float
    needed: int
    notes: tuple[str, ...] = ()

    def count(self, verdict: Verdict) -> int:
        return sum(row.verdict == verdict for row in self.rows)


def compare(
    old: Sequence[BenchResult],
    new: Sequence[BenchResult],
    *,
    false_alarms: float = 0.01,
    min_change: float = 0.05,
    across: bool = False,
) -> Comparison:
    """Compare the cells that both have. Raises BenchInputError where they have none, or are of different machines."""
    pairs, notes = _pairs(old, new, across=across)
    metrics = [
        (before, name, before.metrics[name], after.metrics[name])
        for before, after in pairs
        for name in before.metrics
        if name in after.metrics
    ]
    if not metrics:
        raise BenchInputError("the results have no metric in common\n    expected: two results of one benchmark")
    for before, name, ours, theirs in metrics:
        if (ours.unit, ours.better) != (theirs.unit, theirs.better):
            raise BenchInputError(
                f"{before.label}: {name} is in {ours.unit} ({ours.better} is better) on one side and in {theirs.unit}"
                f" ({theirs.better} is better) on the other\n    expected: two results of one benchmark"
            )
    worse = [slower_by_chance(*_sides(ours, theirs, min_change)) for _, _, ours, theirs in metrics]
    better = [slower_by_chance(*_sides(theirs, ours, min_change)) for _, _, ours, theirs in metrics]
    flags = zip(metrics, worse, holm(worse, false_alarms), holm(better, false_alarms), strict=True)
    rows = []
    for (before, name, ours, theirs), probability, is_worse, is_better in flags:
        enough = decides(len(ours.samples), len(theirs.samples), len(metrics), false_alarms)
        changed: Verdict = "regression" if is_worse else "better" if is_better else "same"
        rows.append(_row(before.label, name, ours, theirs, probability, changed if enough else "undecided"))
    return Comparison(tuple(rows), false_alarms, min_change, samples_needed(len(metrics), false_alarms), tuple(notes))


def _pairs(
    old: Sequence[BenchResult], new: Sequence[BenchResult], *, across: bool
) -> tuple[list[tuple[BenchResult, BenchResult]], list[str]]:
    before, notes = _by_cell(old), []
    pairs = []
    for cell, after in _by_cell(new).items():
        if cell not in before:
            notes.append(f"only in the new result: {after.label}")
            continue
        pairs.append((before.pop(cell), after))
    notes += [f"only in the old result: {result.label}" for result in before.values()]
    if not pairs:
        raise BenchInputError(
            "the results have no cell in common\n    expected: the same model, dtype, batch and lengths on both sides"
            + "".join(f"\n    {note}" for note in notes)
        )
    for first, second in pairs:
        different = _changed(first, second, MACHINE)
        if different and not across:
            raise BenchInputError(
                f"{first.label}: the machines differ: {', '.join(different)}"
                "\n    expected: two results of one kind of machine\n    fix: --across compares them all the same"
            )
        notes += [f"changed: {text}" for text in (*different, *_changed(first, second, SOFTWARE))]
    return pairs, list(dict.fromkeys(notes))


def _changed(first: BenchResult, second: BenchResult, names: Sequence[str]) -> list[str]:
    pairs = ((name, first.key.get(name), second.key.get(name)) for name in names)
    return [f"{name} {old} -> {new}" for name, old, new in pairs if old != new]


def _by_cell(results: Sequence[BenchResult]) -> dict[object, BenchResult]:
    cells: dict[object, BenchResult] = {}
    for result in results:
        if result.cell in cells:
            raise BenchInputError(
                f"{result.label}: results of one side are of different machines or software"
                "\n    expected: files of one build on one machine\n    fix: keep the others in a folder of their own"
            )
        cells[result.cell] = result
    return cells


def _sides(old: Metric, new: Metric, margin: float) -> tuple[list[float], list[float]]:
    """Return the samples so that higher is better, the old ones worse by the margin."""
    if old.better == "higher":
        return [value * (1 - margin) for value in old.samples], list(new.samples)
    return [-value * (1 + margin) for value in old.samples], [-value for value in new.samples]


def _row(cell: str, name: str, old: Metric, new: Metric, probability: float, verdict: Verdict) -> Row:
    before, after = median(old.samples), median(new.samples)
    change = (after / before - 1) * (1 if old.better == "higher" else -1)
    sessions = (len(old.samples), len(new.samples))
    return Row(cell, name, old.unit, before, after, change, probability, sessions, verdict)
