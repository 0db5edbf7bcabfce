"""Clocks, temperature, power and foreign programs of the GPUs while a benchmark runs, once a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from paddock.gpu.errors import GpuError
from paddock.gpu.inventory import Sampler
from paddock.gpu.model import Gpu

EVERY = 1.0
"""Seconds between samples."""
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


@contextmanager
def watching(sampler: Sampler | None, uuids: Sequence[str]) -> Iterator[list[Sample]]:
    """Sample these GPUs until the block ends."""
    samples: list[Sample] = []
    end, start = threading.Event(), time.monotonic()

    def work() -> None:
        while sampler is not None and not end.wait(EVERY):
            try:
                gpus = sampler.read().gpus
            except GpuError:
                return
            now = time.monotonic() - start
            samples.extend(_sample(now, gpu) for gpu in gpus if gpu.uuid in uuids)

    thread = threading.Thread(target=work, daemon=True)
    if uuids:
        thread.start()
    try:
        yield samples
    finally:
        end.set()
        if uuids:
            thread.join(EVERY * 2)


def _sample(at: float, gpu: Gpu) -> Sample:
    return Sample(
        round(at, 1),
        gpu.uuid or "",
        gpu.clocks.sm,
        gpu.clocks.memory,
        gpu.temperature.gpu,
        gpu.power.draw,
        tuple(gpu.throttle or ()),
    )
