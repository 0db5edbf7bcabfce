"""Limits of a replica's server: its mode's parts of memory, CPU and GPU, its priority, and others' load."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

from paddock.gpu.host import resources
from paddock.gpu.model import Gpu
from paddock.modes import priority
from paddock.modes.adaptive import Throttle, adapting
from paddock.modes.admission import Room
from paddock.modes.cap import capped
from paddock.modes.config import ResourceConfig
from paddock.modes.effects import Effects, effects, means
from paddock.modes.errors import ModeError
from paddock.modes.policy import of_mode, of_text
from paddock.serve.errors import ServeError, first_line
from paddock.serve.placement.device import Device
from paddock.serve.placement.memory import MIB
from paddock.serve.placement.plan import Group, mib_up
from paddock.serve.placement.request import Policy as PlacementPolicy
from paddock.serve.replica.program import Program


class Limited:
    """Limits that hold inside the block. `notes` say what an engine, the driver or the system does not let hold."""

    def __init__(
        self, policy: PlacementPolicy, engine: str, devices: Sequence[Device], *, rehearsal: bool = False
    ) -> None:
        self._policy = of_text(policy.mode) or of_mode("aggressive")
        self._current = self._policy.current()
        self._devices = () if rehearsal else tuple(devices)
        backend = "cpu" if rehearsal else devices[0].backend
        gpu = _gpu(self._devices)
        self.effects: Effects = effects(
            self._policy, engine, backend, resources.usable_cpus(), means(gpu) if gpu else None
        )
        self._notes = list(self.effects.notes)
        self._refused: tuple[str, ...] = ()
        self._applied: tuple[object, ...] = ()
        self._throttle: Throttle | None = None
        self._program: Program | None = None
        self._held = ExitStack()

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what does not hold, and why."""
        return (*self._notes, *self._refused)

    def throttle(self) -> float | None:
        """Return the factor that others' load leaves; None where it is not watched."""
        return self._throttle.factor if self._throttle else None

    def __enter__(self) -> Limited:
        uuids = [device.uuid for device in self._devices if device.uuid]
        for uuid in uuids:
            if self.effects.cap:
                applied = self._held.enter_context(capped(uuid, self.effects.cap))
                if not applied.applied:
                    self._notes.append(f"the GPU is not capped: {applied.reason}")
                    of_compute = self.effects.cap != self._policy.gpu
                    self.effects = replace(self.effects, paced=self.effects.paced or of_compute)
        if uuids and self._policy.adaptive.enabled:
            from paddock.gpu.inventory import inventory

            self._throttle = Throttle(self._policy.adaptive)
            self._held.enter_context(
                adapting(self._throttle, lambda: inventory(processes=True), uuids[0], lambda: (self._pids(), 1.0))
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def follow(self, program: Program) -> None:
        """Give a program, and what it has started, the priority of the mode of the moment, where that has changed."""
        config = self._current()
        wanted = (program.pid, config.process_priority, config.io_priority_class, config.io_priority_level)
        self._program = program
        if wanted == self._applied:
            return
        self._applied, refused = wanted, dict[str, None]()
        for thread in self._threads():
            refused |= dict.fromkeys(_prioritised(config, thread))
        self._refused = tuple(refused)

    def _pids(self) -> list[int]:
        """Return the program's processes."""
        if self._program is None:
            return []
        try:
            import psutil

            guard = psutil.Process(self._program.pid)
            return [guard.pid, *(child.pid for child in guard.children(recursive=True))]
        except Exception:  # no psutil, or it has just ended
            return [self._program.pid]

    def _threads(self) -> list[int]:
        """Return the threads of its processes: on Linux each has a priority of its own."""
        found: list[int] = []
        for pid in self._pids():
            try:
                found += map(int, os.listdir(f"/proc/{pid}/task"))
            except OSError:
                found.append(pid)
        return found


def _prioritised(config: ResourceConfig, thread: int) -> list[str]:
    try:
        settings = priority.apply(config, pid=thread)
    except (ModeError, OSError) as error:
        return [first_line(error)]
    except Exception:  # psutil's NoSuchProcess: the thread has ended
        return []
    return [f"{item.name} {item.value}: {item.reason}" for item in settings if not item.applied]


def _gpu(devices: Sequence[Device]) -> Gpu | None:
    """Return the first of the devices as its driver shows it now; None for what is not a whole GPU of NVIDIA's."""
    device = devices[0] if devices else None
    if device is None or device.backend != "cuda" or device.part is not None or not device.uuid:
        return None
    from paddock.gpu.inventory import inventory

    return inventory().gpu(device.uuid)


def check_room(group: Group) -> None:
    """Check by what is free now that a plan still fits. Unknown memory refuses nothing. Raises ServeError."""
    for placed in group.devices:
        room = _room(placed.device)
        if room is None or placed.memory.needed <= room.free:
            continue
        raise ServeError(
            f"{placed.device.label} has {room.free // MIB} MiB free now, and the model needs "
            f"{mib_up(placed.memory.needed)} MiB; fix: end what else uses its memory, or unload and load it again"
        )


def _room(device: Device) -> Room | None:
    if device.backend == "cpu":
        total = resources.memory_bytes()
        return Room(total, resources.available_bytes() or total) if total else None
    if device.backend == "metal" or device.part is not None or not device.uuid:
        return None
    from paddock.gpu.inventory import inventory

    gpu = inventory().gpu(device.uuid)
    if gpu is None or gpu.memory is None or gpu.memory.free is None:
        return None
    return Room(gpu.memory.total * MIB, gpu.memory.free * MIB)
