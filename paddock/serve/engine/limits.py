"""Limits of a replica: its resource mode, its priority, and the memory that its model may take."""

from __future__ import annotations

import os
import threading

from paddock.gpu.host import resources
from paddock.models.errors import ModelError
from paddock.models.model import BITS
from paddock.models.shapes import cache_element
from paddock.modes import priority
from paddock.modes.admission import Demand, Room, admit
from paddock.modes.config import PRESETS, ResourceConfig
from paddock.modes.errors import ModeError
from paddock.modes.policy import Policy, of_mode
from paddock.serve.errors import ServeError, first_line, in_one_line
from paddock.serve.own.protocol import Spec
from paddock.serve.own.refusals import packing_refusal, serving_refusal
from paddock.serve.own.sizes import loaded_model


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
            except (ModeError, OSError) as error:  # no psutil, or the thread has ended
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
    """Check before a model loads that its rows can keep it, and that weights and cache of all rows fit.

    Raises ServeError with the numbers, or the name of what this engine lacks.

    `ranks` is the number of devices that share each weight, each with such a memory.
    """
    try:
        model = loaded_model(spec.shape, spec.source)
        if error := serving_refusal(model) or packing_refusal(model, spec.dtype):
            raise error
        if spec.layers:
            model = model.stage(*spec.layers)
        element = cache_element(spec.dtype, processor=spec.device == "cpu")
        demand = Demand(
            model.loaded_bytes(spec.dtype, ranks),
            -(-model.cache_bytes(spec.length, element, 1, ranks) // spec.length),
            spec.batch,
            spec.length,
            spec.dtype,
            {} if spec.source else {dtype: model.loaded_bytes(dtype, ranks) for dtype in BITS if dtype != spec.dtype},
        )
        admit(demand, room, config)
    except (ServeError, ModeError, ModelError) as refused:
        # In one line: the scheduler shows the last one of what Ray Serve reports.
        raise ServeError(in_one_line(refused)) from None


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
    machine = resources.memory_bytes()
    if machine is None:
        return Room(2**62, 2**62)
    return Room(machine, resources.available_bytes() or machine)
