"""Container images and wheels of machine-learning frameworks, and what each was built with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from paddock.catalog import _data


@dataclass(frozen=True, slots=True)
class Build:
    """A framework's programs for one maker's GPUs: just one of `cuda`, `rocm` and `metal` says whose.

    The compute-capability range is that of the programs inside, None where no source names it.
    """

    framework: str
    version: str
    cuda: str | None
    rocm: str | None
    min_compute_capability: str | None
    max_compute_capability: str | None
    source: str
    metal: bool = False

    def runs_on(self, compute_capability: str) -> bool:
        """Return whether the range holds it; a range that no source names holds everything."""
        has = _data.version(compute_capability)
        low, high = self.min_compute_capability, self.max_compute_capability
        return (low is None or has >= _data.version(low)) and (high is None or has <= _data.version(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(Build):
    """`image` is its name with a tag that does not move."""

    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheels(Build):
    """`packages` for pip, from `index`; None is the index that pip is set up for."""

    packages: tuple[str, ...]
    index: str | None


@cache
def images() -> tuple[Image, ...]:
    """Every image, of each framework the newest first."""
    return tuple(Image(**row) for row in _data.rows("ml_images.json", "images"))


@cache
def wheels() -> tuple[Wheels, ...]:
    """Every set of wheels, of each framework the newest first."""
    rows = _data.rows("ml_images.json", "wheels")
    return tuple(Wheels(**row | {"packages": tuple(row["packages"])}) for row in rows)
