"""What the sampler has seen so far, as a file that is whole at every moment: it may be killed at any."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.gpu import serialization
from paddock.gpu.job_hooks import files
from paddock.gpu.monitoring.insights import Insight
from paddock.gpu.monitoring.summary import GpuSummary, Slowed, Spread, Summary

if TYPE_CHECKING:
    from pydantic import TypeAdapter

NAME = "gpu-use.json"
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Record:
    """`interval` is the seconds between samples, and `ended` the clock since boot at the last of them."""

    summary: Summary
    interval: float
    ended: float
    schema: int = SCHEMA


def write(folder: Path, record: Record) -> None:
    """Raises OSError. The job may have taken the folder away with all that lay there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    passing = folder / f".{NAME}"
    passing.write_text(json.dumps(serialization.data(record)), encoding="utf-8")
    os.replace(passing, folder / NAME)


def read(folder: Path) -> Record | None:
    """None where there is none, or none that can be read: the job may write into the same folder."""
    try:
        found = _adapter().validate_json(files.read(folder / NAME))
    except (OSError, ValueError):
        return None
    return found if found.schema == SCHEMA else None


@cache
def _adapter() -> TypeAdapter[Record]:
    return serialization.strictly(Record, (Record, Summary, GpuSummary, Spread, Slowed, Insight))
