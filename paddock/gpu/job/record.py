"""What the sampler has seen so far, as a file that is whole at every moment: it may be killed at any."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.gpu import document
from paddock.gpu.insights import Insight
from paddock.gpu.summary import GpuSummary, Slowed, Spread, Summary

NAME = "gpu-use.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Record:
    """`interval` is the seconds between samples, and `ended` the clock since boot at the last of them."""

    summary: Summary
    interval: float
    ended: float


def write(folder: Path, record: Record) -> None:
    """Raises OSError."""
    told = {"schema": SCHEMA, **document.data(record)}
    passing = folder / f".{NAME}"
    passing.write_text(json.dumps(told), encoding="utf-8")
    os.replace(passing, folder / NAME)


def read(folder: Path) -> Record | None:
    """None where there is none, or none that can be read: the job may write into the same folder."""
    try:
        told = json.loads((folder / NAME).read_text(encoding="utf-8"))
        if told.pop("schema") != SCHEMA:
            return None
        return Record(_summary(told["summary"]), float(told["interval"]), float(told["ended"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _summary(told: dict[str, Any]) -> Summary:
    gpus = tuple(_gpu(one) for one in told.pop("gpus"))
    insights = tuple(Insight(**one) for one in told.pop("insights"))
    return Summary(gpus=gpus, insights=insights, **told)


def _gpu(told: dict[str, Any]) -> GpuSummary:
    metrics = tuple(Spread(**one) for one in told.pop("metrics"))
    slowed = told.pop("slowed")
    return GpuSummary(
        metrics=metrics, slowed=None if slowed is None else tuple(Slowed(**one) for one in slowed), **told
    )
