"""Jobs of a worker process, and the events with which it answers, one line of JSON for each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from paddock.models.shapes import Shape


@dataclass(frozen=True, slots=True)
class Job:
    """One model in one dtype, to be measured in every batch and prompt length."""

    shape: Shape
    dtype: str
    device: str
    batches: tuple[int, ...]
    prompts: tuple[int, ...]
    new: int
    runs: int
    warm_up: int
    engine: str
    source: str = ""
    seed: int = 0
    memory_fraction: float = 1.0
    uuids: tuple[str, ...] = ()
    mode: str = ""
    """Name of the resource mode; empty for none."""
    policy: Mapping[str, Any] | None = None
    """Limits of the mode, as the fields of a policy."""
    application: str = ""
    user: str = ""
    in_turn: int | None = None
    """Port at which it meets the benchmark with which it takes turns."""
    threads: int | None = None
    cache: str = ""
    """Type of the numbers in the cache; empty for the engine's own."""

    @property
    def length(self) -> int:
        return max(self.prompts) + self.new


def to_json(jobs: list[Job]) -> str:
    return json.dumps([asdict(job) for job in jobs])


def from_json(text: str) -> list[Job]:
    jobs = []
    for values in json.loads(text):
        values["shape"] = Shape(**values["shape"])
        for name in ("batches", "prompts", "uuids"):
            values[name] = tuple(values[name])
        jobs.append(Job(**values))
    return jobs
