"""Insights into a series of samples, each with its evidence, by the limits of `paddock.gpu.health.thresholds`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paddock.gpu.health import thresholds
from paddock.gpu.model import Gpu, NvLink, Throttle

_HOT: tuple[Throttle, ...] = ("hardware-thermal", "software-thermal")


@dataclass(frozen=True, slots=True)
class Insight:
    """A remark on the sampled time: `gpu` is a UUID; None concerns several."""

    id: str
    severity: Literal["info", "warning"]
    text: str
    gpu: str | None = None


@dataclass
class GpuObservation:
    """Totals over the samples of one GPU, in seconds; `busy` is per cent times seconds.

    `utilisation_seconds` and `throttle_seconds` count only the time for which the driver reported these.
    """

    first: Gpu
    last: Gpu = field(init=False)
    seconds: float = 0.0
    utilisation_seconds: float = 0.0
    busy: float = 0.0
    idle: float = 0.0
    memory_pressure: float = 0.0
    peak_memory: float = 0.0
    throttle_seconds: float = 0.0
    throttled: defaultdict[Throttle, float] = field(default_factory=lambda: defaultdict(float))
    lost_at: float | None = None
    lost_why: str | None = None
    back_at: float | None = None
    links: list[tuple[NvLink, ...]] = field(default_factory=list)
    """The links before the first sample and after the last."""

    def __post_init__(self) -> None:
        self.last = self.first

    @property
    def utilisation(self) -> float | None:
        return self.busy / self.utilisation_seconds if self.utilisation_seconds else None

    def share(self, *reasons: Throttle) -> float:
        return max((self.throttled[reason] for reason in reasons), default=0.0) / self.seconds if self.seconds else 0.0


def insights(observations: Sequence[GpuObservation], job: Sequence[str] = ()) -> tuple[Insight, ...]:
    """Return the insights, warnings first."""
    rules = (_lost, _throttling, _idle, _memory, _new_errors)
    results = [insight for gpu in observations for rule in rules for insight in rule(gpu)]
    results += _imbalance(observations, job)
    return tuple(sorted(results, key=lambda insight: insight.severity != "warning"))


def _insight(gpu: GpuObservation, id: str, severity: Literal["info", "warning"], text: str) -> Insight:
    return Insight(id, severity, f"GPU {gpu.first.index} {text}", gpu.first.uuid)


def _lost(gpu: GpuObservation) -> Iterator[Insight]:
    if gpu.lost_at is not None:
        returned = gpu.back_at is not None and gpu.back_at > gpu.lost_at
        back = f", and came back after {gpu.back_at:.0f} s" if returned else ""
        yield _insight(gpu, "lost", "warning", f"did not answer from {gpu.lost_at:.0f} s on{back}: {gpu.lost_why}")


def _throttling(gpu: GpuObservation) -> Iterator[Insight]:
    hot, capped = gpu.share(*_HOT), gpu.share("software-power-cap")
    slowed, braked = gpu.share("hardware-slowdown"), gpu.share("hardware-power-brake")
    degrees = f" (now {gpu.last.temperature.gpu} °C)" if gpu.last.temperature.gpu is not None else ""
    if hot > thresholds.THROTTLED.value:
        text = f"was slowed down by heat {_percent(hot)} of the time{degrees}: look at fans and airflow"
        yield _insight(gpu, "thermal-throttling", "warning", text)
    elif slowed > thresholds.THROTTLED.value and not braked:
        text = f"was slowed down by its hardware {_percent(slowed)} of the time"
        yield _insight(gpu, "hardware-slowdown", "warning", text)
    if braked > thresholds.BRAKED.value:
        text = f"had its power brake pulled {_percent(braked)} of the time: look at the machine's power supply"
        yield _insight(gpu, "power-brake", "warning", text)
    if capped >= thresholds.POWER_CAPPED.value:
        limit = f" of {gpu.last.power.limit:.0f} W" if gpu.last.power.limit else ""
        text = f"ran at its power limit{limit} {_percent(capped)} of the time, which is usual under full load"
        yield _insight(gpu, "power-limit", "info", text)


def _idle(gpu: GpuObservation) -> Iterator[Insight]:
    share = gpu.idle / gpu.utilisation_seconds if gpu.utilisation_seconds else 0.0
    if share >= thresholds.IDLE.value:
        yield _insight(gpu, "idle", "info", f"was idle {_percent(share)} of the time")


def _memory(gpu: GpuObservation) -> Iterator[Insight]:
    if gpu.memory_pressure > 0:
        full, share = _percent(thresholds.MEMORY_PRESSURE.value), _percent(gpu.memory_pressure / gpu.seconds)
        text = f"had its memory more than {full} full {share} of the time, at most {_percent(gpu.peak_memory)}"
        yield _insight(gpu, "memory-pressure", "warning", text)


def _new_errors(gpu: GpuObservation) -> Iterator[Insight]:
    """Check the counters that increased."""
    uncorrected = _increase(gpu.first.ecc.uncorrected, gpu.last.ecc.uncorrected)
    if uncorrected:
        text = f"had {uncorrected} uncorrectable memory errors: its results are not to be trusted"
        yield _insight(gpu, "ecc", "warning", text)
    pcie = gpu.last.pcie
    replays = _increase(gpu.first.pcie.replays, pcie.replays)
    allowed = thresholds.replays_per_minute(pcie.max_generation or 0, pcie.max_width or 0)
    minutes = max(1.0, gpu.seconds / 60)
    if replays and allowed is not None and replays > allowed * minutes:
        text = f"repeated {replays} PCIe packets, more than {allowed} a minute: its link is bad"
        yield _insight(gpu, "pcie-replays", "warning", text)
    if len(gpu.links) == 2:
        before, after = ({link.link: link for link in links} for links in gpu.links)
        down = [
            number for number, link in after.items() if not link.active and number in before and before[number].active
        ]
        errors = sum(
            _increase(before[number].errors, link.errors) for number, link in after.items() if number in before
        )
        if down:
            yield _insight(gpu, "nvlink-down", "warning", f"lost NVLinks {', '.join(map(str, down))}")
        if errors:
            yield _insight(gpu, "nvlink-errors", "warning", f"had {errors} errors on its NVLinks")


def _imbalance(observations: Sequence[GpuObservation], job: Sequence[str]) -> Iterator[Insight]:
    """Compare the GPUs of a job, by default all that were busy."""
    means = {
        gpu.first.index: mean
        for gpu in observations
        if (mean := gpu.utilisation) is not None and (gpu.first.uuid in job if job else mean >= thresholds.BUSY.value)
    }
    if len(means) < 2:
        return
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    if means[high] - means[low] >= thresholds.IMBALANCE.value:
        text = f"GPU {low} worked {means[low]:.0f} % and GPU {high} {means[high]:.0f} %: the load is uneven"
        yield Insight("imbalance", "warning", text)


def _increase(before: int | None, after: int | None) -> int:
    return max(0, after - before) if before is not None and after is not None else 0


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
