"""Results kept in a folder: of each machine, software and cell the newest, a file each."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

from paddock import files
from paddock.bench.baselines.result import MACHINE, SOFTWARE, BenchResult, joined, read
from paddock.terminal import OutputError


def keep(folder: Path, results: Sequence[BenchResult]) -> list[Path]:
    """Write each result whole, in place of an older one of the same key. Raises OutputError."""
    written = []
    for result in results:
        path = folder / file_name(result)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            files.write(path, json.dumps(result.model_dump(by_alias=True), indent=2) + "\n")
        except OSError as error:
            raise OutputError(
                f"cannot write {path}: {error.strerror}\n    fix: choose a folder that is yours"
            ) from None
        written.append(path)
    return written


def baseline(folder: Path, new: Sequence[BenchResult], *, across: bool = False) -> list[BenchResult]:
    """Return the kept results to compare with: for each cell that of the same machine and software, else the newest.

    With `across` a result of another machine serves where there is none of the same.
    """
    files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
    kept = list(enumerate(joined(result for path in files for result in read(path))))

    def rank(item: tuple[int, BenchResult], result: BenchResult) -> tuple[bool, bool, int]:
        return item[1].machine == result.machine, _software(item[1]) == _software(result), item[0]

    chosen = []
    for result in new:
        fitting = [
            item for item in kept if item[1].cell == result.cell and (across or item[1].machine == result.machine)
        ]
        chosen += [max(fitting, key=lambda item: rank(item, result))[1]] if fitting else []
    return chosen


def file_name(result: BenchResult) -> str:
    """Return the name of a result's file: readable, and different for every key."""
    words = "-".join(str(result.key.get(name)) for name in (*MACHINE, "model", "dtype") if result.key.get(name))
    digest = hashlib.sha256(json.dumps(result.key, sort_keys=True).encode()).hexdigest()[:12]
    return f"{re.sub(r'[^A-Za-z0-9.]+', '_', words)[:80] or 'result'}-{digest}.json"


def _software(result: BenchResult) -> tuple[object, ...]:
    return tuple(result.key.get(name) for name in SOFTWARE)
