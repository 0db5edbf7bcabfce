"""Comparison of two results: a regression is what noise does not explain.

The values compared are the medians of sessions, each a process of its own: where its memory lies, what its neighbours
do and how fast its CPU runs is one draw for all runs of a process, and on a shared machine that differs by 25 %
and more between processes of one build. The hypothesis of each metric is "the new build is at most `min_change` worse".
The old sessions are made worse by that, and an exact one-sided test asks whether the new ones are worse still; Holm's
correction over the metrics that gate, of all cells, holds `false_alarms` for the whole comparison. The others are
reported and not judged: of a benchmark's four the quick step varies least, and to judge the other three as well took
most of its power (benchmarks/gate.py).

Sessions of the two builds that were measured in turn are compared in pairs, by Wilcoxon's signed ranks: what the
machine does meanwhile meets both of a pair, and drops out. Where the two took turns run by run, a pair's change is the
median of those of its runs, which are a fraction of a second apart. Others are compared by the Mann-Whitney test, which
assumes independent sessions. Those that drift together weaken it; the margin covers that: in simulation, with no change
at all, a margin of 5 % and noise of up to 3 % (coefficient of variation) whose neighbours correlate by 0.5, the stated
1 % holds. A build that is slower by less than the margin passes by design.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from paddock.bench.baselines.ranks import decides, holm, lower_by_chance, samples_needed, slower_by_chance
from paddock.bench.baselines.result import MACHINE, SOFTWARE, BenchResult
from paddock.bench.errors import BenchInputError
from paddock.bench.report.model import Metric

Verdict = Literal["same", "better", "regression", "undecided", "reported"]
"""`undecided`: too few sessions for the stated rate. `reported`: the metric does not gate."""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one cell. `change` is the relative change of the medians, of pairs its median; below 0 is worse."""

    cell: str
    metric: str
    unit: str
    old: float
    new: float
    change: float
    probability: float
    sessions: tuple[int, int]
    paired: bool
    """The sessions of the two sides were measured in turn."""
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows, and what was left out. `needed` are the sessions on each side that the rate takes."""

    rows: tuple[Row, ...]
    false_alarms: float
    min_change: float
    needed: int
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    """Reasons not to trust the results of either side."""

    @property
    def judged(self) -> int:
        """Return the number of metrics that gate."""
        return len(self.rows) - self.count("reported")

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
    tests = [_test(before, after, name) for before, after in pairs for name in before.metrics if name in after.metrics]
    if not tests:
        raise BenchInputError("the results have no metric in common\n    expected: two results of one benchmark")
    tests.sort(key=lambda test: not test.gates)
    judged = [test for test in tests if test.gates]
    worse = [test.worse_by_chance(min_change) for test in judged]
    better = [test.swapped.worse_by_chance(min_change) for test in judged]
    flags = zip(judged, worse, holm(worse, false_alarms), holm(better, false_alarms), strict=True)
    rows = []
    for test, probability, is_worse, is_better in flags:
        changed: Verdict = "regression" if is_worse else "better" if is_better else "same"
        enough = decides(len(test.old), len(test.new), len(judged), false_alarms, pairs=test.paired)
        rows.append(test.row(probability, changed if enough else "undecided"))
    rows += [test.row(test.worse_by_chance(min_change), "reported") for test in tests if not test.gates]
    needed = samples_needed(len(judged), false_alarms, pairs=any(test.paired for test in judged))
    doubts = [
        f"{side} result, {result.label}: {doubt}"
        for side, results in (("old", [before for before, _ in pairs]), ("new", [after for _, after in pairs]))
        for result in results
        for doubt in result.doubts
    ]
    return Comparison(tuple(rows), false_alarms, min_change, needed, tuple(notes), tuple(dict.fromkeys(doubts)))


@dataclass(frozen=True, slots=True)
class _Test:
    """The sessions of one metric on both sides, in pairs where they were measured in turn."""

    cell: str
    metric: str
    unit: str
    old: Sequence[float]
    new: Sequence[float]
    higher_is_better: bool
    ratios: Sequence[float] | None
    """The new side's value by the old side's, of each pair of sessions; None where they were not measured in turn."""
    gates: bool

    @property
    def paired(self) -> bool:
        return self.ratios is not None

    @property
    def swapped(self) -> _Test:
        ratios = None if self.ratios is None else [1 / ratio for ratio in self.ratios]
        return replace(self, old=self.new, new=self.old, ratios=ratios)

    def worse_by_chance(self, margin: float) -> float:
        """Return the probability of new sessions at least this bad where they are worse by no more than the margin."""
        if self.ratios is not None:
            sign, still_same = (1, 1 - margin) if self.higher_is_better else (-1, 1 + margin)
            return lower_by_chance([sign * math.log(ratio / still_same) for ratio in self.ratios])
        if self.higher_is_better:
            return slower_by_chance([value * (1 - margin) for value in self.old], self.new)
        return slower_by_chance([1 / (value * (1 + margin)) for value in self.old], [1 / value for value in self.new])

    def row(self, probability: float, verdict: Verdict) -> Row:
        before, after = median(self.old), median(self.new)
        ratio = after / before if self.ratios is None else median(self.ratios)
        change = (ratio - 1) * (1 if self.higher_is_better else -1)
        sessions = (len(self.old), len(self.new))
        return Row(
            self.cell, self.metric, self.unit, before, after, change, probability, sessions, self.paired, verdict
        )


def _test(before: BenchResult, after: BenchResult, name: str) -> _Test:
    ours, theirs = before.metrics[name], after.metrics[name]
    if (ours.unit, ours.better) != (theirs.unit, theirs.better):
        raise BenchInputError(
            f"{before.label}: {name} is in {ours.unit} ({ours.better} is better) on one side and in {theirs.unit}"
            f" ({theirs.better} is better) on the other\n    expected: two results of one benchmark"
        )
    turns = _turns(before, after)
    ratios = [_ratio(ours, theirs, i, j, by_run=before.in_turn and after.in_turn) for i, j in turns] if turns else None
    gates = before.gates(name) if before.metrics[name].gates else after.gates(name)
    return _Test(before.label, name, ours.unit, ours.samples, theirs.samples, ours.better == "higher", ratios, gates)


def _ratio(old: Metric, new: Metric, session: int, other: int, *, by_run: bool) -> float:
    """Return the new session's value by that of its old neighbour: of their medians, or the median of their runs'."""
    runs = old.runs_by_session, new.runs_by_session
    if by_run and all(runs):
        before, after = runs[0][session], runs[1][other]
        if len(before) == len(after):
            return median(theirs / ours for ours, theirs in zip(before, after, strict=True))
    return new.samples[other] / old.samples[session]


def _turns(before: BenchResult, after: BenchResult) -> list[tuple[int, int]]:
    """Return the sessions of two builds that were measured in turn as pairs of neighbours; none where they were not."""
    times = before.sessions_at, after.sessions_at
    if len(times[0]) != len(times[1]) or not all(side.timed for side in (before, after)):
        return []
    in_order = sorted((at, side, index) for side in (0, 1) for index, at in enumerate(times[side]))
    turns = []
    for (_, side, index), (_, other, behind) in zip(in_order[::2], in_order[1::2], strict=True):
        if side == other:
            return []
        turns.append((index, behind) if side == 0 else (behind, index))
    return turns


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
                "\n    expected: two results of one kind of machine\n    fix: --across compares them anyway"
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
