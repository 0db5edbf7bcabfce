"""How long a GPU node takes before a job runs on it: published figures, by part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from paddock.catalog import _data

Part = Literal["node", "plugin", "pull", "assign"]


@dataclass(frozen=True, slots=True)
class Startup:
    """One part of a cold start, seconds. `image_gb` is the size that a pull was measured with, None for other parts."""

    key: Part
    os: Literal["al2023", "bottlerocket", "*"]
    low: float
    typical: float
    high: float
    image_gb: float | None
    what: str
    source: str

    def for_image(self, gigabytes: float) -> tuple[float, float, float]:
        """(low, typical, high) seconds; a pull in proportion to the size of the image."""
        scale = gigabytes / self.image_gb if self.image_gb else 1.0
        return self.low * scale, self.typical * scale, self.high * scale


@cache
def cold_start(os: Literal["al2023", "bottlerocket"]) -> tuple[Startup, ...]:
    """The parts of a cold start, in order: node, device plugin, image pull, assignment of the job."""
    return tuple(Startup(**row) for row in _data.rows("startup.json") if row["os"] in (os, "*"))
