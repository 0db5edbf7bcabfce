"""What a time of samples is worth a word about: each with its evidence, by the limits of `limits`."""

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
    """`gpu` is a UUID; None is about several."""

    id: str
    severity: Literal["info", "warning"]
    text: str
    gpu: str | None = None


@dataclass
class Seen:
    """What was seen of one GPU. Times are seconds in which it was so; `busy` is per cent times seconds, and `told` is
    when the reasons of its clocks were known."""

    first: Gpu
    last: Gpu = field(init=False)
    seconds: float = 0.0
    known: float = 0.0
    busy: float = 0.0
    idle: float = 0.0
    pressed: float = 0.0
    fullest: float = 0.0
    told: float = 0.0
    throttled: defaultdict[Throttle, float] = field(default_factory=lambda: defaultdict(float))
    lost_at: float | None = None
    lost_why: str | None = None
    back_at: float | None = None
    links: list[tuple[NvLink, ...]] = field(default_factory=list)
    """Before and after."""

    def __post_init__(self) -> None:
        self.last = self.first

    @property
    def utilisation(self) -> float | None:
        return self.busy / self.known if self.known else None

    def share(self, *reasons: Throttle) -> float:
        return max((self.throttled[reason] for reason in reasons), default=0.0) / self.seconds if self.seconds else 0.0


def insights(seen: Sequence[Seen], job: Sequence[str] = ()) -> tuple[Insight, ...]:
    """Warnings first."""
    found = [insight for one in seen for rule in (_lost, _throttling, _idle, _memory, _errors) for insight in rule(one)]
    found += _imbalance(seen, job)
    return tuple(sorted(found, key=lambda insight: insight.severity != "warning"))


def _of(seen: Seen, id: str, severity: Literal["info", "warning"], text: str) -> Insight:
    return Insight(id, severity, f"GPU {seen.first.index} {text}", seen.first.uuid)


def _lost(seen: Seen) -> Iterator[Insight]:
    if seen.lost_at is not None:
        came = seen.back_at is not None and seen.back_at > seen.lost_at
        back = f", and came back after {seen.back_at:.0f} s" if came else ""
        yield _of(seen, "lost", "warning", f"did not answer from {seen.lost_at:.0f} s on{back}: {seen.lost_why}")


def _throttling(seen: Seen) -> Iterator[Insight]:
    hot, capped = seen.share(*_HOT), seen.share("software-power-cap")
    degrees = f" (now {seen.last.temperature.gpu} °C)" if seen.last.temperature.gpu is not None else ""
    if hot > thresholds.THROTTLED.value:
        text = f"was slowed down by heat {_percent(hot)} of the time{degrees}: look at fans and airflow"
        yield _of(seen, "thermal-throttling", "warning", text)
    elif seen.share("hardware-slowdown") > thresholds.THROTTLED.value and not seen.share("hardware-power-brake"):
        text = f"was slowed down by its hardware {_percent(seen.share('hardware-slowdown'))} of the time"
        yield _of(seen, "hardware-slowdown", "warning", text)
    braked = seen.share("hardware-power-brake")
    if braked > thresholds.BRAKED.value:
        text = f"had its power brake pulled {_percent(braked)} of the time: look at the machine's power supply"
        yield _of(seen, "power-brake", "warning", text)
    if capped >= thresholds.POWER_CAPPED.value:
        limit = f" of {seen.last.power.limit:.0f} W" if seen.last.power.limit else ""
        text = f"ran at its power limit{limit} {_percent(capped)} of the time, which is usual under full load"
        yield _of(seen, "power-limit", "info", text)


def _idle(seen: Seen) -> Iterator[Insight]:
    share = seen.idle / seen.known if seen.known else 0.0
    if share >= thresholds.IDLE.value:
        yield _of(seen, "idle", "info", f"was idle {_percent(share)} of the time")


def _memory(seen: Seen) -> Iterator[Insight]:
    if seen.pressed > 0:
        full, share = _percent(thresholds.MEMORY_PRESSURE.value), _percent(seen.pressed / seen.seconds)
        text = f"had its memory more than {full} full {share} of the time, at most {_percent(seen.fullest)}"
        yield _of(seen, "memory-pressure", "warning", text)


def _errors(seen: Seen) -> Iterator[Insight]:
    """Counters that grew."""
    grown = _grown(seen.first.ecc.uncorrected, seen.last.ecc.uncorrected)
    if grown:
        yield _of(seen, "ecc", "warning", f"had {grown} uncorrectable memory errors: its results are not to be trusted")
    pcie = seen.last.pcie
    replays = _grown(seen.first.pcie.replays, pcie.replays)
    allowed = thresholds.replays_per_minute(pcie.max_generation or 0, pcie.max_width or 0)
    minutes = max(1.0, seen.seconds / 60)
    if replays and allowed is not None and replays > allowed * minutes:
        text = f"repeated {replays} PCIe packets, more than {allowed} a minute: its link is bad"
        yield _of(seen, "pcie-replays", "warning", text)
    if len(seen.links) == 2:
        before, after = ({link.link: link for link in links} for links in seen.links)
        down = [
            number for number, link in after.items() if not link.active and number in before and before[number].active
        ]
        errors = sum(_grown(before[number].errors, link.errors) for number, link in after.items() if number in before)
        if down:
            yield _of(seen, "nvlink-down", "warning", f"lost NVLinks {', '.join(map(str, down))}")
        if errors:
            yield _of(seen, "nvlink-errors", "warning", f"had {errors} errors on its NVLinks")


def _imbalance(seen: Sequence[Seen], job: Sequence[str]) -> Iterator[Insight]:
    """Between the GPUs of a job, or between all that worked."""
    means = {
        one.first.index: mean
        for one in seen
        if (mean := one.utilisation) is not None and (one.first.uuid in job if job else mean >= thresholds.BUSY.value)
    }
    if len(means) < 2:
        return
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    if means[high] - means[low] >= thresholds.IMBALANCE.value:
        text = f"GPU {low} worked {means[low]:.0f} % and GPU {high} {means[high]:.0f} %: the load is uneven"
        yield Insight("imbalance", "warning", text)


def _grown(before: int | None, after: int | None) -> int:
    return max(0, after - before) if before is not None and after is not None else 0


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
