"""Clocks, temperature, power and foreign programs of the GPUs while a benchmark runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise

from paddock.gpu.errors import GpuError
from paddock.gpu.inventory import Sampler
from paddock.gpu.model import Gpu, Inventory
from paddock.gpu.monitoring import watching as background

EVERY = 1.0
"""Seconds between samples."""
POWER_EVERY = 0.1
"""Seconds between readings of the power, whose sum is held against the energy counter."""
PROGRAMS_EVERY = 5.0
"""Seconds between looks at the programs on the GPUs: the driver is started again for each."""
SLOWED = ("hardware-slowdown", "hardware-thermal", "software-thermal", "hardware-power-brake", "software-power-cap")
"""Reasons for low clocks that make a result no measure of the GPU."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One GPU at one second since the run began; None is what the driver does not say."""

    at_s: float
    uuid: str
    sm_mhz: int | None
    memory_mhz: int | None
    celsius: int | None
    watts: float | None
    throttle: tuple[str, ...]


@dataclass(slots=True)
class Watched:
    """Everything that was seen so far."""

    samples: list[Sample] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Foreign programs with their GPUs."""
    power: list[tuple[float, float]] = field(default_factory=list)
    """Monotonic times, and the watts of all GPUs together."""

    def joules(self, start: float, end: float) -> float | None:
        """Return the energy between two monotonic times as the sum of power readings; None where they are too few.

        A reading holds half of the time to the one before and half of that to the one after it.
        """
        inside = [(at, watts) for at, watts in self.power if start <= at <= end]
        if len(inside) < 2 or inside[-1][0] - inside[0][0] < (end - start) / 2:
            return None
        sum_ = sum((after - before) * (a + b) / 2 for (before, a), (after, b) in pairwise(inside))
        return sum_ / (inside[-1][0] - inside[0][0]) * (end - start)


@contextmanager
def watching(
    sampler: Sampler | None,
    uuids: Sequence[str],
    programs: Callable[[], Inventory] | None = None,
    *,
    parts: Collection[str] = (),
) -> Iterator[Watched]:
    """Watch these GPUs until the block ends.

    `programs` reads them with the processes on them, where their pids are those of this system. Of a GPU that is
    divided only the programs on `parts` count, by UUID.
    """
    watched = Watched()
    if sampler is None or not uuids:
        yield watched
        return
    start = sampled = time.monotonic()

    def sample() -> None:
        nonlocal sampled
        gpus = [gpu for gpu in sampler.read().gpus if gpu.uuid in uuids]
        now = time.monotonic()
        watts = [gpu.power.draw for gpu in gpus if gpu.power.draw is not None]
        if len(watts) == len(set(uuids)):
            watched.power.append((now, sum(watts)))
        if now - sampled >= EVERY:
            sampled = now
            watched.samples += [
                Sample(round(now - start, 1), gpu.uuid or "", gpu.clocks.sm, gpu.clocks.memory, gpu.temperature.gpu,
                       gpu.power.draw, tuple(gpu.throttle or ()))
                for gpu in gpus
            ]  # fmt: skip

    def look() -> None:
        if programs is not None:
            with suppress(GpuError):
                watched.others.extend(foreign(programs().gpus, uuids, own_pids(), parts))

    with background.watching((POWER_EVERY, sample), *([(PROGRAMS_EVERY, look)] if programs else [])):
        yield watched


def foreign(
    gpus: Sequence[Gpu], uuids: Sequence[str], own: Collection[int], parts: Collection[str] = ()
) -> Iterator[str]:
    """Yield the programs that compute on these GPUs, or these parts of them, and are not our own."""
    for gpu in gpus:
        for process in (gpu.processes or ()) if gpu.uuid in uuids else ():
            if process.kind != "graphics" and process.pid not in own and (not parts or process.mig_uuid in parts):
                name = f" ({process.name})" if process.name else ""
                yield f"GPU {gpu.index}: process {process.pid}{name}"


def own_pids() -> set[int]:
    """Return this process and all that it started."""
    import psutil

    this = psutil.Process()
    return {this.pid, *(child.pid for child in this.children(recursive=True))}
