"""Energy counters of a device, in joules; None where there is none to read, never 0."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from paddock.bench.measurement.statistics import total
from paddock.gpu.errors import GpuError
from paddock.gpu.inventory import Sampler

MIN_SECONDS = 2.0
"""Shortest interval that is measured: NVML's counter moves every 10 to 100 ms."""
IDLE_SECONDS = 5.0
"""Seconds of which the idle power is the median."""
_IDLE_EVERY = 0.1
_POWERCAP = Path("sys/class/powercap")


def counter(sampler: Sampler | None, uuids: Sequence[str], root: Path = Path("/")) -> Callable[[], float | None]:
    """Return a function that reads the joules so far: of these GPUs, or of the CPU without any."""
    if uuids and sampler is not None:
        return lambda: _gpu_joules(sampler, uuids)
    return lambda: _package_joules(root)


def spent(start: float | None, end: float | None, seconds: float) -> float | None:
    """Return the joules between two readings; None for a counter that went back, or an interval that is too short."""
    if start is None or end is None or seconds < MIN_SECONDS or end <= start:
        return None
    return end - start


def idle_watts(sampler: Sampler, uuids: Sequence[str]) -> float | None:
    """Return what these GPUs draw together while nothing of ours runs; None where the driver does not say.

    A program of somebody else's counts as idle too: what remains above it is ours.
    """
    readings = []
    for _ in range(round(IDLE_SECONDS / _IDLE_EVERY)):
        time.sleep(_IDLE_EVERY)
        try:
            draws = [gpu.power.draw for gpu in sampler.read().gpus if gpu.uuid in uuids]
        except GpuError:
            return None
        if not draws or (watts := total(draws)) is None:
            return None
        readings.append(watts)
    return statistics.median(readings)


def _gpu_joules(sampler: Sampler, uuids: Sequence[str]) -> float | None:
    try:
        gpus = {gpu.uuid: gpu.power.energy for gpu in sampler.read().gpus}
    except GpuError:
        return None
    return total([gpus.get(uuid) for uuid in uuids])


def _package_joules(root: Path) -> float | None:
    """Return the sum of the CPU packages' counters, which only root may read on most machines."""
    packages = sorted((root / _POWERCAP).glob("*-rapl:[0-9]"))
    try:
        return sum(int((package / "energy_uj").read_text()) for package in packages) / 1e6 if packages else None
    except (OSError, ValueError):
        return None
