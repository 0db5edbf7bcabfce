"""Statistics of samples: percentiles with confidence intervals, and no percentile without enough samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

PERCENTS = (50.0, 90.0, 95.0, 99.0)
TAIL_SAMPLES = 5
"""Samples beyond a percentile without which it is not reported: p99 needs 500."""
INTERVAL_SAMPLES = 6
"""Samples without which a median has no interval of 95 %: the least and the largest of n bound it in 1 - 2^(1-n)."""
_NORMAL_95 = 1.96
"""Standard deviations on each side that hold 95 % of a normal distribution."""


@dataclass(frozen=True, slots=True)
class Percentile:
    """A percentile in the unit of its samples; `low` and `high` bound its 95 % confidence interval.

    They are None below 6 samples, which bound no median: all of five lie on one side of it in 6 of 100 cases.
    """

    percent: float
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """Samples in numbers, in their own unit. A percentile that the samples are too few for is absent."""

    unit: str
    count: int
    mean: float
    median: float
    minimum: float
    maximum: float
    deviation: float
    """Standard deviation; 0 for one sample."""
    percentiles: tuple[Percentile, ...]

    def percentile(self, percent: float) -> Percentile | None:
        """Return the percentile, or None where the samples are too few for it."""
        return next((item for item in self.percentiles if item.percent == percent), None)


def summarise(samples: Sequence[float], unit: str = "") -> Summary:
    """Return the summary of samples. Raises ValueError for none."""
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    candidates = (percentile(ordered, percent) for percent in PERCENTS)
    return Summary(
        unit=unit, count=len(ordered), mean=statistics.fmean(ordered), median=statistics.median(ordered),
        minimum=ordered[0], maximum=ordered[-1], deviation=statistics.stdev(ordered) if len(ordered) > 1 else 0.0,
        percentiles=tuple(item for item in candidates if item is not None),
    )  # fmt: skip


def spread(samples: Sequence[float], most: int = 400) -> list[float]:
    """Return some of the samples in their order, from the least to the largest: enough to draw their distribution."""
    ordered, last = sorted(samples), len(samples) - 1
    count = min(len(ordered), most)
    return [ordered[round(number * last / max(1, count - 1))] for number in range(count)]


def percentile(ordered: Sequence[float], percent: float) -> Percentile | None:
    """Return a percentile of ordered samples, or None where they are too few.

    It is interpolated linearly between the two nearest ranks. The interval is that of order statistics: the ranks
    ``n p ± 1.96 sqrt(n p (1 - p))`` of the binomial distribution (Conover, Practical Nonparametric Statistics, §3.2);
    below 6 samples there is none.
    """
    count, part = len(ordered), percent / 100
    if percent != 50 and count * min(part, 1 - part) < TAIL_SAMPLES - 1e-9:
        return None
    value = _interpolate(ordered, part)
    if count < INTERVAL_SAMPLES:
        return Percentile(percent, value, None, None)
    spread = _NORMAL_95 * math.sqrt(count * part * (1 - part))
    low = ordered[max(0, math.floor(count * part - spread))]
    high = ordered[min(count - 1, math.ceil(count * part + spread))]
    return Percentile(percent, value, low, high)


def _interpolate(ordered: Sequence[float], part: float) -> float:
    position = (len(ordered) - 1) * part
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def figure(value: float | None) -> str:
    """Return a number with the digits that matter."""
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def total(values: Sequence[float | None]) -> float | None:
    """Return the sum; None where a value is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
