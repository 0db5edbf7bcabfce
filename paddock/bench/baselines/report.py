"""A comparison as text, as Markdown for a pull request, and as a document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from paddock.bench.baselines.compare import Comparison

_WORDS = {
    "same": "same",
    "better": "better",
    "regression": "**regression**",
    "undecided": "undecided",
    "reported": "not judged",
}


def headline(comparison: Comparison) -> str:
    """Return the outcome in one sentence."""
    if count := comparison.count("regression"):
        return f"{count} of {comparison.judged} metrics are worse by more than {comparison.min_change:.0%}"
    if count := comparison.count("undecided"):
        return f"{count} of {comparison.judged} metrics have too few sessions: {_needed(comparison)}"
    return f"none of {comparison.judged} metrics is worse by more than {comparison.min_change:.0%}"


def lines(comparison: Comparison) -> Iterator[str]:
    """Yield the lines for a terminal."""
    for row in comparison.rows:
        old, new = row.sessions
        sessions = f"{old} pairs of sessions" if row.paired else f"{old} and {new} sessions"
        yield (
            f"{_WORDS[row.verdict].strip('*'):10}  {row.change:+7.1%}  {row.metric:24}"
            f"  {row.old:.4g} -> {row.new:.4g} {row.unit}  ({sessions})  {row.cell}"
        )
    yield from comparison.notes
    yield from (f"doubt about the {doubt}" for doubt in comparison.doubts)
    yield headline(comparison)
    yield _rate(comparison)


def markdown(comparison: Comparison) -> str:
    """Return the comparison for a pull request."""
    rows = "".join(
        f"| {_WORDS[row.verdict]} | {_escaped(row.cell)} | {_escaped(row.metric)} | {row.old:.4g} {_escaped(row.unit)} "
        f"| {row.new:.4g} | {row.change:+.1%} | {row.sessions[0]}, {row.sessions[1]} |\n"
        for row in comparison.rows
    )
    notes = "".join(f"- {_escaped(note)}\n" for note in comparison.notes)
    notes += "".join(f"- doubt about the {_escaped(doubt)}\n" for doubt in comparison.doubts)
    return (
        f"### Benchmark: {headline(comparison)}\n\n| | cell | metric | old | new | change | sessions |\n"
        f"|---|---|---|---|---|---|---|\n{rows}\n{notes}\n{_rate(comparison)}\n"
    )


def document(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as `--json` writes it."""
    failed = comparison.count("regression") > 0
    return {"schema": 1, "verdict": "regression" if failed else "pass", **asdict(comparison)}


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'").replace("@", "@\u200b")


def _rate(comparison: Comparison) -> str:
    return (
        f"False alarms: at most {comparison.false_alarms:g} of comparisons without a change, over all judged metrics "
        f"({_tests(comparison)} with Holm's correction; {_needed(comparison)})."
    )


def _tests(comparison: Comparison) -> str:
    kinds = {row.paired for row in comparison.rows if row.verdict != "reported"}
    names = {True: "signed ranks of sessions in turn", False: "Mann-Whitney tests"}
    return f"exact {' and '.join(names[kind] for kind in sorted(kinds, reverse=True))}"


def _needed(comparison: Comparison) -> str:
    return f"{comparison.needed} on each side are needed, as bench --sessions {comparison.needed} makes them"
