"""The sampler's record: a file that is complete at every moment, since the sampler may be killed at any."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.files import write as write_file
from paddock.gpu import serialization
from paddock.gpu.job_hooks import files
from paddock.gpu.monitoring.insights import Insight
from paddock.gpu.monitoring.summary import GpuSummary, Slowed, Spread, Summary

if TYPE_CHECKING:
    from pydantic import TypeAdapter

NAME = "gpu-use.json"
SCHEMA = 1
"""Version of the file's format."""


@dataclass(frozen=True, slots=True)
class Record:
    """GPU use so far: `interval` is the seconds between samples, `ended` the clock since boot at the last one."""

    summary: Summary
    interval: float
    ended: float
    schema: int = SCHEMA


def write(folder: Path, record: Record) -> None:
    """Replace the record, and the folder if the job has removed it. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(folder / NAME, json.dumps(serialization.data(record)), sync=False)


def read(folder: Path) -> Record | None:
    """Return None for a missing or invalid record: the job may write to the same folder."""
    try:
        record = _adapter().validate_json(files.read(folder / NAME))
    except (OSError, ValueError):
        return None
    return record if record.schema == SCHEMA else None


@cache
def _adapter() -> TypeAdapter[Record]:
    return serialization.strictly(Record, (Record, Summary, GpuSummary, Spread, Slowed, Insight))
