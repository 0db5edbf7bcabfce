"""Samples of the GPUs at a constant interval."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paddock.console.parameters import one_of
from paddock.gpu import inventory
from paddock.gpu.drivers.base import Reader
from paddock.gpu.errors import GpuInputError, NoGpu
from paddock.gpu.host.bounded import in_thread
from paddock.gpu.model import SCHEMA, Gpu

LEAST_INTERVAL = 0.1
"""Seconds: the driver itself samples no faster."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A sampled value; `slow` ones occupy the driver for 40 ms per GPU."""

    name: str
    unit: str
    of: Callable[[Gpu], float | None]
    slow: bool = False


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            Metric("utilisation", "%", lambda gpu: gpu.utilisation.gpu),
            Metric("memory_activity", "%", lambda gpu: gpu.utilisation.memory),
            Metric("memory", "MiB", lambda gpu: gpu.memory.used if gpu.memory else None),
            Metric("temperature", "°C", lambda gpu: gpu.temperature.gpu),
            Metric("memory_temperature", "°C", lambda gpu: gpu.temperature.memory),
            Metric("power", "W", lambda gpu: gpu.power.draw),
            Metric("sm_clock", "MHz", lambda gpu: gpu.clocks.sm),
            Metric("memory_clock", "MHz", lambda gpu: gpu.clocks.memory),
            Metric("pcie_sent", "MB/s", lambda gpu: gpu.pcie.sent, slow=True),
            Metric("pcie_received", "MB/s", lambda gpu: gpu.pcie.received, slow=True),
        )
    }
)
_ALIASES = {"utilization": "utilisation"}
"""Spelling of the older connector."""
DEFAULT = ("utilisation", "memory", "temperature", "power", "sm_clock")


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading: `at` is seconds since the first sample; `missed` counts the intervals skipped before it."""

    at: float
    taken_at: str
    gpus: tuple[Gpu, ...]
    missed: int = 0


def select_metrics(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return the metrics of these names, by default the usual five. Raises GpuInputError."""
    chosen = [_ALIASES.get(name, name) for name in names or DEFAULT]
    for name in chosen:
        if name not in METRICS:
            hint = f"expected: {one_of(name, METRICS)}\n    fix: --metrics {','.join(DEFAULT)}"
            raise GpuInputError(f"unknown metric {name!r}\n    {hint}")
    return tuple(METRICS[name] for name in dict.fromkeys(chosen))


def monitor(
    interval: float = 1.0,
    duration: float | None = None,
    metrics: Sequence[str] = (),
    reader: Reader | None = None,
    *,
    root: Path = Path("/"),
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Sample]:
    """Yield a sample now and every `interval` seconds, up to `duration`; a late sample does not shift later ones.

    Raises GpuInputError and NoGpu at once, and GpuError between samples when the driver fails.
    """
    if not (math.isfinite(interval) and interval >= LEAST_INTERVAL):
        raise GpuInputError(
            f"an interval of {interval:g} s is too short or not a time\n    expected: {LEAST_INTERVAL:g} or more"
            "\n    fix: --interval 1"
        )
    if duration is not None and not (math.isfinite(duration) and duration >= 0):
        raise GpuInputError(
            f"a duration of {duration:g} s is not a time\n    expected: 0 or more\n    fix: --duration 60"
        )
    pcie = any(metric.slow for metric in select_metrics(metrics))
    sampler = in_thread(lambda: inventory.sampler(pcie=pcie, root=root, reader=reader))
    if not sampler.first.gpus:
        raise NoGpu(sampler.first.reason or "there is no GPU")
    return _samples(sampler, interval, duration, clock, sleep)


def _samples(
    sampler: inventory.Sampler,
    interval: float,
    duration: float | None,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[Sample]:
    start, beat, missed = clock(), 0, 0
    while duration is None or beat * interval <= duration + 1e-9:
        wait = start + beat * interval - clock()
        if wait > 0:
            sleep(wait)
        at = clock() - start
        current = in_thread(sampler.read)
        yield Sample(at, current.taken_at, current.gpus, missed)
        due = max(beat + 1, math.ceil((clock() - start) / interval - 1e-9))
        missed, beat = due - beat - 1, due


def record(sample: Sample, metrics: Iterable[Metric]) -> dict[str, Any]:
    """Return a sample as one line of JSON."""
    return {
        "schema": SCHEMA,
        "taken_at": sample.taken_at,
        "at": round(sample.at, 3),
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "state": gpu.state,
                **{metric.name: metric.of(gpu) for metric in metrics},
                "throttle": None if gpu.throttle is None else list(gpu.throttle),
            }
            for gpu in sample.gpus
        ],
    }
