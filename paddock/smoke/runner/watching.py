"""Clocks of GPUs while stages work them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from paddock.gpu.inventory import Sampler
from paddock.gpu.model import Gpu
from paddock.gpu.monitoring import watching as background
from paddock.smoke.stages.measured import Watched

_EVERY = 0.5
"""Seconds between two samples."""


class Watch:
    """Samples of all GPUs since the watch began."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, Mapping[str, Gpu]]] = []

    def add(self, gpus: tuple[Gpu, ...]) -> None:
        self._samples.append((time.monotonic(), {gpu.uuid: gpu for gpu in gpus if gpu.uuid}))

    def since(self, start: float, uuid: str) -> Watched:
        """Return what was seen of a GPU since a time of the monotonic clock."""
        return Watched.of([gpus[uuid] for at, gpus in list(self._samples) if at >= start and uuid in gpus])


@contextmanager
def watching(sampler: Sampler | None) -> Iterator[Watch]:
    """Sample until the block ends; without a sampler, or once the driver is lost, nothing is seen."""
    watch = Watch()
    with background.watching(*([(_EVERY, lambda: watch.add(sampler.read().gpus))] if sampler else [])):
        yield watch
