"""Results kept in a folder as references: of each machine, software and cell one, a file each.

The first that is kept stays until it is replaced on purpose. Would each result that is not a regression replace it, a
build slower by less than the margin every day would never fail.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from paddock.baselines import Baselines
from paddock.bench.baselines.result import MACHINE, SOFTWARE, BenchResult, joined, read
from paddock.console.output import OutputError


def keep(folder: Path, results: Sequence[BenchResult], *, replace: bool = False) -> list[Path]:
    """Write each result whole where there is none of its key, or in its place. Return what was written.

    Raises OutputError.
    """
    store, written = Baselines(folder), []
    for result in results:
        name = _name(result)
        try:
            written.append(store.keep(name, result.model_dump(by_alias=True), replace=replace))
        except OSError as error:
            raise OutputError(
                f"cannot write {store.path(name)}: {error.strerror}\n    fix: choose a folder that is yours"
            ) from None
    return [path for path in written if path]


def baseline(folder: Path, new: Sequence[BenchResult], *, across: bool = False) -> list[BenchResult]:
    """Return the kept results to compare with: for each cell that of the same machine and software, else the fastest.

    After a new driver or image the fastest before it is the reference, so that small losses do not add up. With
    `across` a result of another machine serves where there is none of the same.
    """
    kept = joined(result for path in Baselines(folder) for result in read(path))

    def rank(item: BenchResult, result: BenchResult) -> tuple[bool, bool, float]:
        return item.machine == result.machine, _software(item) == _software(result), _speed(item)

    chosen = []
    for result in new:
        fitting = [item for item in kept if item.cell == result.cell and (across or item.machine == result.machine)]
        chosen += [max(fitting, key=lambda item: rank(item, result))] if fitting else []
    return chosen


def path(folder: Path, result: BenchResult) -> Path:
    """Return the file of a result."""
    return Baselines(folder).path(_name(result))


def _name(result: BenchResult) -> str:
    """Return the name of a result: readable, and different for every key."""
    words = "-".join(str(result.key.get(name)) for name in (*MACHINE, "model", "dtype") if result.key.get(name))
    digest = hashlib.sha256(json.dumps(result.key, sort_keys=True).encode()).hexdigest()[:12]
    return f"{re.sub(r'[^A-Za-z0-9.]+', '_', words)[:80] or 'result'}-{digest}"


def _speed(result: BenchResult) -> float:
    """Return how fast a result is by the first metric that gates: more is faster."""
    name = next((name for name in result.metrics if result.gates(name)), "")
    if not name:
        return 0.0
    value = median(result.metrics[name].samples)
    return value if result.metrics[name].better == "higher" else 1 / value


def _software(result: BenchResult) -> tuple[object, ...]:
    return tuple(result.key.get(name) for name in SOFTWARE)
