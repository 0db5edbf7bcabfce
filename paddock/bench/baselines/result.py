"""A result of the benchmark as a document: what was measured where, and each run's median."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddock.bench.errors import BenchInputError
from paddock.errors import Problem
from paddock.validation import problems

MACHINE = ("instance", "machine", "gpu")
"""Keys that name the machine: results of different ones are compared only when the user says so."""
SOFTWARE = ("driver", "image", "ami")
"""Keys that name what may change between two results of one machine."""

Value = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Document(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Metric(_Document):
    """One metric: `runs` are the medians of each run, in `unit`."""

    unit: str
    better: Literal["higher", "lower"]
    runs: tuple[Value, ...] = Field(min_length=1)


class BenchResult(_Document):
    """One cell: a model in one configuration on one machine. Further keys are kept and not read."""

    schema_version: Literal[1] = Field(1, alias="schema")
    key: dict[str, str | int | float | bool | None]
    metrics: dict[str, Metric]

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
    """Read a result, a list of them in `results`, or all `.json` files of a folder. Raises BenchInputError."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise BenchInputError(f"{path}: there is no result in this folder\n    expected: files ending in .json")
    return [result for file in files for result in _read_file(file)]


def _read_file(path: Path) -> list[BenchResult]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BenchInputError(
            f"{path}: cannot be read: {error.strerror}\n    expected: what `bench --json` writes"
        ) from None
    except ValueError as error:
        raise BenchInputError(f"{path}: this is no JSON: {error}\n    expected: what `bench --json` writes") from None
    several = document.get("results") if isinstance(document, dict) else None
    return [_parse(path, part) for part in (several if isinstance(several, list) else [document])]


def _parse(path: Path, document: object) -> BenchResult:
    try:
        return BenchResult.model_validate(document)
    except ValidationError as error:
        described = problems(error.errors(include_url=False), BenchResult, json=True)
        lines = (str(Problem(item.key, item.message, item.expected, item.fix, str(path))) for item in described)
        raise BenchInputError("\n".join(lines)) from None
