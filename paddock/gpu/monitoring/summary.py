"""What the samples of a time say together: each metric's spread, the energy, and what is worth a word.

A value counts for as long as it stood, which is until the next sample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from paddock.gpu.errors import GpuError
from paddock.gpu.health import thresholds
from paddock.gpu.model import Gpu, Inventory, Throttle
from paddock.gpu.monitoring.insights import Insight, Seen, insights
from paddock.gpu.monitoring.sampling import SCHEMA, Metric, Sample

EnergySource = Literal["counter", "integrated"]


@dataclass(frozen=True, slots=True)
class Spread:
    metric: str
    unit: str
    mean: float
    median: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class Slowed:
    """`share` of the time, 0 to 1, in which the clocks were held down for this reason."""

    reason: Throttle
    share: float


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """`energy` is joule; integrated is the power drawn at each sample times the time between them."""

    index: int
    uuid: str | None
    name: str | None
    metrics: tuple[Spread, ...]
    energy: float | None
    energy_source: EnergySource | None
    memory_total: int | None = None
    """MiB."""
    idle: float | None = None
    """Share of the time, 0 to 1, in which next to no kernel ran."""
    slowed: tuple[Slowed, ...] | None = None
    """None where the driver never told."""

    def metric(self, name: str) -> Spread | None:
        return next((spread for spread in self.metrics if spread.metric == name), None)


@dataclass(frozen=True, slots=True)
class Summary:
    """`ended` says why it ended before its time."""

    started_at: str | None
    seconds: float
    samples: int
    missed: int
    gpus: tuple[GpuSummary, ...]
    insights: tuple[Insight, ...]
    ended: str | None = None
    schema: int = SCHEMA


class Weights:
    """How long each value stood. To one decimal, so that values are few, however long it goes on."""

    def __init__(self) -> None:
        self._seconds: defaultdict[float, float] = defaultdict(float)

    def add(self, value: float, seconds: float) -> None:
        self._seconds[round(value, 1)] += seconds

    def spread(self, metric: Metric) -> Spread | None:
        """None where no value was ever known."""
        if not self._seconds:
            return None
        total = sum(self._seconds.values())
        weights = self._seconds if total else dict.fromkeys(self._seconds, 1.0)
        total = total or len(weights)
        values = sorted(weights)
        mean = sum(value * weights[value] for value in values) / total
        half, most = (_reached(values, weights, share * total) for share in (0.5, 0.95))
        return Spread(metric.name, metric.unit, round(mean, 3), half, most, values[-1])


def _reached(values: Sequence[float], weights: dict[float, float], wanted: float) -> float:
    """The value below or at which the GPU was for `wanted` seconds."""
    sofar = 0.0
    for value in values:
        sofar += weights[value]
        if sofar >= wanted * (1 - 1e-9) and sofar > 0:
            return value
    return values[-1]


@dataclass
class _Watched:
    """One GPU's part of the collector."""

    seen: Seen
    weights: list[Weights]
    last: Gpu
    counted: float | None = 0.0
    integrated: float = 0.0
    known_power: bool = False
    gone: bool = field(default=False)


class Collector:
    """Takes samples one by one; keeps none of them."""

    def __init__(self, metrics: Sequence[Metric], job: Sequence[str] = ()) -> None:
        self._metrics, self._job = metrics, job
        self._gpus: dict[str, _Watched] = {}
        self._first: Sample | None = None
        self._last: Sample | None = None
        self._count = self._missed = 0

    def add(self, sample: Sample) -> None:
        seconds = sample.at - self._last.at if self._last else 0.0
        self._first = self._first or sample
        self._last = sample
        self._count += 1
        self._missed += sample.missed
        for gpu in sample.gpus:
            key = gpu.uuid or f"index {gpu.index}"
            watched = self._gpus.get(key)
            if watched is None:
                watched = self._gpus[key] = _Watched(Seen(gpu), [Weights() for _ in self._metrics], gpu)
            self._stood(watched, seconds)
            self._now(watched, gpu, seconds, sample.at)

    def links(self, inventory: Inventory) -> None:
        """NVLinks with their errors; the first time as they were, after that as they are."""
        for gpu in inventory.gpus:
            key = gpu.uuid or f"index {gpu.index}"
            watched = self._gpus.get(key)
            if watched is None:
                watched = self._gpus[key] = _Watched(Seen(gpu), [Weights() for _ in self._metrics], gpu)
            watched.seen.links = [*watched.seen.links[:1], gpu.nvlinks]

    def summary(self, ended: str | None = None) -> Summary:
        seconds = self._last.at - self._first.at if self._first and self._last else 0.0
        watched = sorted(self._gpus.values(), key=lambda one: one.last.index)
        return Summary(
            self._first.taken_at if self._first else None,
            round(seconds, 3),
            self._count,
            self._missed,
            tuple(self._about(one) for one in watched),
            insights([one.seen for one in watched], self._job),
            ended,
        )

    def _stood(self, watched: _Watched, seconds: float) -> None:
        """What was so at the last sample has been so until now."""
        gpu, seen = watched.last, watched.seen
        if gpu.state != "ok":
            return
        for metric, weights in zip(self._metrics, watched.weights, strict=True):
            value = metric.of(gpu)
            if value is not None:
                weights.add(value, seconds)
        seen.seconds += seconds
        if gpu.throttle is not None:
            seen.told += seconds
            for reason in gpu.throttle:
                seen.throttled[reason] += seconds
        busy = gpu.utilisation.gpu
        if busy is not None:
            seen.known += seconds
            seen.busy += busy * seconds
            if busy < thresholds.IDLE_BELOW.value:
                seen.idle += seconds
        if gpu.memory and gpu.memory.total:
            full = 1 - gpu.memory.free / gpu.memory.total
            seen.fullest = max(seen.fullest, full)
            if full > thresholds.MEMORY_PRESSURE.value:
                seen.pressed += seconds

    def _now(self, watched: _Watched, gpu: Gpu, seconds: float, at: float) -> None:
        before, seen = watched.last, watched.seen
        if gpu.state != "ok" and before.state == "ok":
            seen.lost_at, seen.lost_why = at, gpu.reason
        if gpu.state == "ok":
            if before.state != "ok":
                seen.back_at = at
            seen.last = gpu
            if before.state == "ok" and seconds:
                self._energy(watched, before, gpu, seconds)
        watched.last = gpu

    def _energy(self, watched: _Watched, before: Gpu, gpu: Gpu, seconds: float) -> None:
        start, end = before.power.energy, gpu.power.energy
        if start is None or end is None or end < start or watched.counted is None:
            watched.counted = None
        else:
            watched.counted += end - start
        if before.power.draw is not None and gpu.power.draw is not None:
            watched.known_power = True
            watched.integrated += (before.power.draw + gpu.power.draw) / 2 * seconds

    def _about(self, watched: _Watched) -> GpuSummary:
        if watched.last.state == "ok":
            for metric, weights in zip(self._metrics, watched.weights, strict=True):
                value = metric.of(watched.last)
                if value is not None:
                    weights.add(value, 0.0)
        spreads = _known(weights.spread(metric) for metric, weights in zip(self._metrics, watched.weights, strict=True))
        counted = watched.counted if watched.seen.seconds else None
        energy = counted if counted is not None else watched.integrated if watched.known_power else None
        source: EnergySource | None = None if energy is None else "integrated" if counted is None else "counter"
        gpu, seen = watched.seen.first, watched.seen
        return GpuSummary(
            gpu.index,
            gpu.uuid,
            gpu.name,
            spreads,
            None if energy is None else round(energy, 3),
            source,
            seen.last.memory.total if seen.last.memory else None,
            round(seen.idle / seen.known, 4) if seen.known else None,
            tuple(Slowed(reason, round(held / seen.told, 4)) for reason, held in sorted(seen.throttled.items()) if held)
            if seen.told
            else None,
        )


def watch(
    samples: Iterable[Sample],
    metrics: Sequence[Metric],
    *,
    show: Callable[[Sample], None] | None = None,
    look: Callable[[], Inventory] | None = None,
    job: Sequence[str] = (),
) -> Summary:
    """Takes the samples to their end, to Ctrl-C or to the driver's, and says what they show.

    `look` reads the inventory with its topology, before and after, for the errors of NVLinks; `job` names the GPUs
    that work together, by default all that were busy.
    """
    collector = Collector(metrics, job)
    ended = None
    try:
        if look:
            collector.links(look())
        for sample in samples:
            collector.add(sample)
            if show:
                show(sample)
    except KeyboardInterrupt:
        ended = "interrupted"
    except GpuError as error:
        ended = str(error)
    if look and ended in {None, "interrupted"}:
        collector.links(look())
    return collector.summary(ended)


def _known(spreads: Iterable[Spread | None]) -> tuple[Spread, ...]:
    return tuple(spread for spread in spreads if spread)
