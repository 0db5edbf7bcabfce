"""Limits of a replica: its resource mode, its priority, and the memory that its model may take."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from functools import partial

from paddock.bench.engine.protocol import Spec
from paddock.bench.engine.shapes import BITS, cache_element
from paddock.bench.errors import BenchError
from paddock.bench.measurement import environment
from paddock.bench.modes import priority
from paddock.bench.modes.admission import Demand, DoesNotFit, Room, admit
from paddock.bench.modes.config import PRESETS, ResourceConfig
from paddock.bench.modes.policy import Policy, of_mode
from paddock.serve.errors import ServeError, first_line
from paddock.serve.placement.memory import Layers, stage_weights


def resource_mode(text: str) -> Policy:
    """Return the mode of that name, or the policy of that JSON text. An empty text is aggressive: a server's."""
    for name in PRESETS:
        if text == name:
            return of_mode(name)
    return Policy.model_validate_json(text) if text else of_mode("aggressive")


class Priority:
    """Priority of the thread that computes, and of those that it starts, as the mode of the moment has it.

    Made in that thread before it computes: threads of the engine are those that come after it.
    """

    def __init__(self) -> None:
        self._thread, self._others = threading.get_native_id(), _threads()
        self._applied: tuple[int, ...] = ()
        self.refused: tuple[str, ...] = ()

    def follow(self, config: ResourceConfig) -> None:
        """Apply a mode's nice and I/O priority where they have changed; `refused` is what the system denied."""
        priorities = (config.process_priority, config.io_priority_class, config.io_priority_level)
        if priorities == self._applied:
            return
        self._applied, refused = priorities, dict[str, None]()
        for thread in sorted({self._thread} | (_threads() - self._others)):
            try:
                settings = priority.apply(config, pid=thread)
            except (BenchError, OSError) as error:  # no psutil, or the thread has ended
                refused[first_line(error)] = None
                continue
            refused |= {f"{item.name} {item.value}: {item.reason}": None for item in settings if not item.applied}
        self.refused = tuple(refused)


def _threads() -> frozenset[int]:
    """Return the threads of this process; none on a system without /proc, where only the first one is changed."""
    try:
        return frozenset(map(int, os.listdir("/proc/self/task")))
    except OSError:
        return frozenset()


def admit_model(spec: Spec, config: ResourceConfig, room: Room, ranks: int = 1) -> None:
    """Check before a model loads that its weights and the cache of all rows fit. Raises ServeError with the numbers.

    `ranks` is the number of devices that share each weight, each with such a memory.
    """
    shape = spec.shape
    weights = partial(shape.loaded_bytes, tp=ranks)
    if spec.layers:
        start, end = spec.layers
        layers = Layers(end - start, spec.reads_tokens, spec.gives_tokens)
        weights = partial(stage_weights, shape, layers=layers)
        shape = replace(shape, layers=layers.count)
    demand = Demand(
        weights(spec.dtype),
        shape.cache_bytes(cache_element(spec.dtype, processor=spec.device == "cpu"), ranks),
        spec.batch,
        spec.length,
        spec.dtype,
        {} if spec.source else {dtype: weights(dtype) for dtype in BITS if dtype != spec.dtype},
    )
    try:
        admit(demand, room, config)
    except DoesNotFit as error:
        # In one line: the scheduler shows the last one of what Ray Serve reports.
        raise ServeError("; ".join(line.strip() for line in str(error).splitlines())) from None


def memory(device: str) -> Room:
    """Return the memory of a device, or the machine's for a processor. Unknown memory refuses nothing."""
    import torch

    kind = torch.device(device).type
    if kind == "cuda":
        free, total = torch.cuda.mem_get_info()
        return Room(total, free)
    if kind == "mps":
        total = torch.mps.recommended_max_memory()
        return Room(total, max(0, total - torch.mps.driver_allocated_memory()))
    machine = environment.memory_bytes()
    if machine is None:
        return Room(2**62, 2**62)
    return Room(machine, environment.available_bytes() or machine)
