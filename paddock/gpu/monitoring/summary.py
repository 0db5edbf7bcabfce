"""Summary of a series of samples: the spread of each metric, the energy and the insights.

A value is weighted by the time until the next sample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from paddock.gpu.errors import GpuError
from paddock.gpu.health import thresholds
from paddock.gpu.model import SCHEMA, Gpu, Inventory, Throttle
from paddock.gpu.monitoring.insights import GpuObservation, Insight, insights
from paddock.gpu.monitoring.sampling import Metric, Sample

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
    """Share of the time, 0 to 1, in which the clocks were lowered for this reason."""

    reason: Throttle
    share: float


@dataclass(frozen=True, slots=True)
class GpuSummary:
    """Summary of one GPU: `energy` is in joules; integrated means power at each sample times the time to the next."""

    index: int
    uuid: str | None
    name: str | None
    metrics: tuple[Spread, ...]
    energy: float | None
    energy_source: EnergySource | None
    memory_total: int | None = None
    """MiB."""
    idle: float | None = None
    """Share of the time, 0 to 1, in which almost no kernel ran."""
    slowed: tuple[Slowed, ...] | None = None
    """None where the driver never reported it."""

    def metric(self, name: str) -> Spread | None:
        return next((spread for spread in self.metrics if spread.metric == name), None)


@dataclass(frozen=True, slots=True)
class Summary:
    """Summary of all GPUs: `ended` is the reason of an early end."""

    started_at: str | None
    seconds: float
    samples: int
    missed: int
    gpus: tuple[GpuSummary, ...]
    insights: tuple[Insight, ...]
    ended: str | None = None
    schema: int = SCHEMA


class Weights:
    """Seconds by value. Values are rounded to one decimal, so that memory stays bounded over any time."""

    def __init__(self) -> None:
        self._seconds: defaultdict[float, float] = defaultdict(float)

    def add(self, value: float, seconds: float) -> None:
        self._seconds[round(value, 1)] += seconds

    def spread(self, metric: Metric) -> Spread | None:
        """Return None where no value was ever known."""
        if not self._seconds:
            return None
        total = sum(self._seconds.values())
        weights = self._seconds if total else dict.fromkeys(self._seconds, 1.0)
        total = total or len(weights)
        values = sorted(weights)
        mean = sum(value * weights[value] for value in values) / total
        half, most = (_quantile(values, weights, share * total) for share in (0.5, 0.95))
        return Spread(metric.name, metric.unit, round(mean, 3), half, most, values[-1])


def _quantile(values: Sequence[float], weights: dict[float, float], target: float) -> float:
    """Return the value at or below which the GPU was for `target` seconds."""
    total = 0.0
    for value in values:
        total += weights[value]
        if total >= target * (1 - 1e-9) and total > 0:
            return value
    return values[-1]


@dataclass
class _TrackedGpu:
    """State of the collector for one GPU."""

    observed: GpuObservation
    weights: list[Weights]
    last: Gpu
    counted: float | None = 0.0
    integrated: float = 0.0
    known_power: bool = False


class Collector:
    """Accumulates samples one by one and keeps none of them."""

    def __init__(self, metrics: Sequence[Metric], job: Sequence[str] = ()) -> None:
        self._metrics, self._job = metrics, job
        self._gpus: dict[str, _TrackedGpu] = {}
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
            tracked = self._tracked(gpu)
            self._add_interval(tracked, seconds)
            self._update(tracked, gpu, seconds, sample.at)

    def links(self, inventory: Inventory) -> None:
        """Record NVLinks with their errors: the first call sets the start, later ones the end."""
        for gpu in inventory.gpus:
            tracked = self._tracked(gpu)
            tracked.observed.links = [*tracked.observed.links[:1], gpu.nvlinks]

    def summary(self, ended: str | None = None) -> Summary:
        seconds = self._last.at - self._first.at if self._first and self._last else 0.0
        gpus = sorted(self._gpus.values(), key=lambda tracked: tracked.last.index)
        return Summary(
            self._first.taken_at if self._first else None,
            round(seconds, 3),
            self._count,
            self._missed,
            tuple(self._gpu_summary(tracked) for tracked in gpus),
            insights([tracked.observed for tracked in gpus], self._job),
            ended,
        )

    def _tracked(self, gpu: Gpu) -> _TrackedGpu:
        key = gpu.uuid or f"index {gpu.index}"
        if key not in self._gpus:
            self._gpus[key] = _TrackedGpu(GpuObservation(gpu), [Weights() for _ in self._metrics], gpu)
        return self._gpus[key]

    def _add_interval(self, tracked: _TrackedGpu, seconds: float) -> None:
        """Count the last sample's values for the time since then."""
        gpu, observed = tracked.last, tracked.observed
        if gpu.state != "ok":
            return
        for metric, weights in zip(self._metrics, tracked.weights, strict=True):
            value = metric.of(gpu)
            if value is not None:
                weights.add(value, seconds)
        observed.seconds += seconds
        if gpu.throttle is not None:
            observed.throttle_seconds += seconds
            for reason in gpu.throttle:
                observed.throttled[reason] += seconds
        busy = gpu.utilisation.gpu
        if busy is not None:
            observed.utilisation_seconds += seconds
            observed.busy += busy * seconds
            if busy < thresholds.IDLE_BELOW.value:
                observed.idle += seconds
        if gpu.memory and gpu.memory.total:
            full = 1 - gpu.memory.free / gpu.memory.total
            observed.peak_memory = max(observed.peak_memory, full)
            if full > thresholds.MEMORY_PRESSURE.value:
                observed.memory_pressure += seconds

    def _update(self, tracked: _TrackedGpu, gpu: Gpu, seconds: float, at: float) -> None:
        before, observed = tracked.last, tracked.observed
        if gpu.state != "ok" and before.state == "ok":
            observed.lost_at, observed.lost_why = at, gpu.reason
        if gpu.state == "ok":
            if before.state != "ok":
                observed.back_at = at
            observed.last = gpu
            if before.state == "ok" and seconds:
                self._energy(tracked, before, gpu, seconds)
        tracked.last = gpu

    def _energy(self, tracked: _TrackedGpu, before: Gpu, gpu: Gpu, seconds: float) -> None:
        start, end = before.power.energy, gpu.power.energy
        if start is None or end is None or end < start or tracked.counted is None:
            tracked.counted = None
        else:
            tracked.counted += end - start
        if before.power.draw is not None and gpu.power.draw is not None:
            tracked.known_power = True
            tracked.integrated += (before.power.draw + gpu.power.draw) / 2 * seconds

    def _gpu_summary(self, tracked: _TrackedGpu) -> GpuSummary:
        if tracked.last.state == "ok":
            for metric, weights in zip(self._metrics, tracked.weights, strict=True):
                value = metric.of(tracked.last)
                if value is not None:
                    weights.add(value, 0.0)
        all_spreads = (weights.spread(metric) for metric, weights in zip(self._metrics, tracked.weights, strict=True))
        spreads = tuple(spread for spread in all_spreads if spread)
        counted = tracked.counted if tracked.observed.seconds else None
        energy = counted if counted is not None else tracked.integrated if tracked.known_power else None
        source: EnergySource | None = None if energy is None else "integrated" if counted is None else "counter"
        gpu, observed = tracked.observed.first, tracked.observed
        return GpuSummary(
            gpu.index,
            gpu.uuid,
            gpu.name,
            spreads,
            None if energy is None else round(energy, 3),
            source,
            observed.last.memory.total if observed.last.memory else None,
            round(observed.idle / observed.utilisation_seconds, 4) if observed.utilisation_seconds else None,
            tuple(
                Slowed(reason, round(held / observed.throttle_seconds, 4))
                for reason, held in sorted(observed.throttled.items())
                if held
            )
            if observed.throttle_seconds
            else None,
        )


def watch(
    samples: Iterable[Sample],
    metrics: Sequence[Metric],
    *,
    show: Callable[[Sample], None] | None = None,
    read_inventory: Callable[[], Inventory] | None = None,
    job: Sequence[str] = (),
) -> Summary:
    """Summarise samples until they end, Ctrl-C is pressed or the driver fails.

    `read_inventory` reads the inventory with its topology, before and after, for the errors of NVLinks; `job` names
    the GPUs that work together, by default all that were busy.
    """
    collector = Collector(metrics, job)
    ended = None
    try:
        if read_inventory:
            collector.links(read_inventory())
        for sample in samples:
            collector.add(sample)
            if show:
                show(sample)
    except KeyboardInterrupt:
        ended = "interrupted"
    except GpuError as error:
        ended = str(error)
    if read_inventory and ended in {None, "interrupted"}:
        collector.links(read_inventory())
    return collector.summary(ended)
