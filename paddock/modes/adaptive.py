"""Adaptive throttling: give way while others use the GPU, and come back slowly.

The part of the time that requests may take is halved at each reading that shows others' load, and grows by a tenth at
each that shows none (additive increase, multiplicative decrease: Chiu and Jain, Computer Networks 17, 1989).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from paddock.gpu.errors import GpuError
from paddock.gpu.model import Gpu, Inventory
from paddock.modes.config import ResourceConfig
from paddock.modes.policy import Adaptive

_BACK = 0.1


@dataclass(frozen=True, slots=True)
class ForeignLoad:
    """Others' use of a GPU: their part of its time, and their programs that compute."""

    part: float = 0.0
    pids: tuple[int, ...] = ()


def foreign_load(gpu: Gpu, own_pids: Collection[int], own_part: float) -> ForeignLoad:
    """Return others' use of a GPU. `own_part` is the part of the time in which requests of this process ran.

    Programs that only draw, such as a desktop, count by the time they take and not by being there.
    """
    busy = 0.0 if gpu.utilisation.gpu is None else gpu.utilisation.gpu / 100
    others = (item.pid for item in gpu.processes or () if item.kind != "graphics" and item.pid not in own_pids)
    return ForeignLoad(max(0.0, busy - own_part), tuple(others))


@dataclass(slots=True)
class Throttle:
    """Factor on the compute limit, 1 without others' load. `adapt` is called at each reading."""

    settings: Adaptive
    factor: float = 1.0
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def adapt(self, load: ForeignLoad) -> float:
        """Return the new factor."""
        with self._lock:
            if load.part >= self.settings.foreign_load or load.pids:
                self.factor /= 2
            else:
                self.factor = min(1.0, self.factor + _BACK)
            self.factor = max(self.factor, self.settings.least_compute)
            return self.factor

    def apply(self, config: ResourceConfig) -> ResourceConfig:
        """Return the limits with the compute that is left; unchanged without auto-throttling."""
        if not (self.settings.enabled and config.enable_auto_throttle) or self.factor >= 1:
            return config
        least = min(self.settings.least_compute, config.max_compute_usage_percent)
        compute = max(config.max_compute_usage_percent * self.factor, least)
        return config.model_copy(update={"max_compute_usage_percent": compute})


@contextmanager
def adapting(
    throttle: Throttle,
    read: Callable[[], Inventory],
    uuid: str,
    own: Callable[[], tuple[Collection[int], float]],
    interval: float = 1.0,
) -> Iterator[None]:
    """Read the GPU every `interval` seconds inside the block; once the driver is lost, the factor stays.

    `own` returns the pids of this process and the part of the time since its last call in which requests ran.
    """
    end = threading.Event()

    def work() -> None:
        while not end.wait(interval):
            try:
                gpu = read().gpu(uuid)
            except GpuError:
                return
            if gpu is not None:
                throttle.adapt(foreign_load(gpu, *own()))

    thread = threading.Thread(target=work, daemon=True)  # a driver that hangs must not keep this process
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join(2 * interval)
