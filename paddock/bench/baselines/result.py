"""A result of the benchmark as a document: what was measured where, and each run's median."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from paddock.bench.errors import BenchInputError
from paddock.bench.report.model import Metric, Part
from paddock.validation import described

MACHINE = ("instance", "machine", "gpu")
"""Keys that name the machine: results of different ones are compared only when the user says so."""
SOFTWARE = ("driver", "image", "ami")
"""Keys that name what may change between two results of one machine."""


class BenchResult(Part):
    """One cell: a model in one configuration on one machine. Further keys are kept and not read."""

    schema_version: Literal[1] = Field(1, alias="schema")
    key: dict[str, str | int | float | bool | None]
    metrics: dict[str, Metric]
    sessions_at: tuple[float, ...] = ()
    """Unix time at which each session began to measure."""
    in_turn: bool = False
    """Each run was measured in turn with one of the other build."""
    doubts: tuple[str, ...] = ()
    """Reasons not to trust it, also those of the whole file: a run that was interrupted, or jobs that failed."""

    def joined(self, other: BenchResult) -> BenchResult:
        """Return this result with the sessions of another of the same cell."""
        metrics = dict(self.metrics)
        for name, theirs in other.metrics.items():
            if name in metrics:
                ours = metrics[name]
                update = {"runs": (*ours.runs, *theirs.runs), "sessions": (*ours.samples, *theirs.samples)}
                metrics[name] = ours.model_copy(update=update)
        return self.model_copy(
            update={
                "metrics": metrics,
                "sessions_at": (*self.sessions_at, *other.sessions_at),
                "in_turn": self.in_turn and other.in_turn,
                "doubts": tuple(dict.fromkeys((*self.doubts, *other.doubts))),
            }
        )

    def gates(self, metric: str) -> bool:
        """Return whether a comparison may fail by a metric."""
        return self.metrics[metric].gates or not any(other.gates for other in self.metrics.values())

    @property
    def timed(self) -> bool:
        """Return whether every session of every metric has its time."""
        return {len(metric.sessions) for metric in self.metrics.values()} == {len(self.sessions_at)}

    @property
    def machine(self) -> tuple[str, ...]:
        return tuple(str(self.key.get(name)) for name in MACHINE)

    @property
    def cell(self) -> tuple[tuple[str, str], ...]:
        """Everything in the key that is neither machine nor software."""
        return tuple(sorted((name, str(v)) for name, v in self.key.items() if name not in (*MACHINE, *SOFTWARE)))

    @property
    def label(self) -> str:
        """The cell in one line."""
        return " ".join(f"{name}={value}" for name, value in self.cell if value != "None") or "all"


def read(path: Path) -> list[BenchResult]:
    """Read the results of a file, or of all `.json` files of a folder: one for each key, with the sessions of all.

    Raises BenchInputError.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise BenchInputError(f"{path}: no results in this folder\n    expected: files ending in .json")
    return joined(result for file in files for result in _read_file(file))


def joined(results: Iterable[BenchResult]) -> list[BenchResult]:
    """Return one result for each key, with the sessions of all that have it."""
    by_key: dict[str, BenchResult] = {}
    for result in results:
        key = json.dumps(result.key, sort_keys=True)
        by_key[key] = by_key[key].joined(result) if key in by_key else result
    return list(by_key.values())


def _read_file(path: Path) -> list[BenchResult]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BenchInputError(
            f"{path}: cannot be read: {error.strerror}\n    expected: what `bench --json` writes"
        ) from None
    except ValueError as error:
        raise BenchInputError(f"{path}: not JSON: {error}\n    expected: what `bench --json` writes") from None
    several = document.get("results") if isinstance(document, dict) else None
    if not isinstance(several, list):
        return [_parse(path, document)]
    doubts = tuple(_doubts(document))
    parsed = (_parse(path, part) for part in several)
    return [result.model_copy(update={"doubts": (*result.doubts, *doubts)}) for result in parsed]


def _doubts(document: dict[str, object]) -> Iterator[str]:
    """Yield the reasons not to trust any result of a file."""
    if document.get("complete") is False:
        yield "it was interrupted"
    problems = document.get("problems")
    if isinstance(problems, list) and problems:
        yield f"{len(problems)} of its jobs could not be measured"


def _parse(path: Path, document: object) -> BenchResult:
    try:
        return BenchResult.model_validate(document)
    except ValidationError as error:
        raise BenchInputError(described(error, BenchResult, path, json=True)) from None
