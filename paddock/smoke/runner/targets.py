"""Devices under test: GPUs, the parts into which MIG divides one, or the CPU."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paddock.gpu.catalog_match import catalog_entry
from paddock.gpu.health.rules import required_lanes
from paddock.gpu.host.visibility import TORCH_DEVICE, showing
from paddock.gpu.model import Gpu, Inventory, MigDevice
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.verdict.model import SmokeDevice


@dataclass(frozen=True, slots=True)
class Target:
    """A device under test: a whole GPU, or a part of one."""

    gpu: Gpu
    device: SmokeDevice
    part: bool = False

    @property
    def kind(self) -> str:
        return TORCH_DEVICE[self.gpu.vendor]

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a program that sees this device alone."""
        return showing(environ, self.gpu.vendor, (self.device.uuid,))


def processor() -> SmokeDevice:
    return SmokeDevice("cpu", platform.processor() or platform.machine())


def targets(machine: Inventory, names: Sequence[str] = (), fraction: float = 1.0) -> tuple[Target, ...]:
    """Return the devices of these indexes or UUIDs, by default all; a GPU that MIG divides is its parts.

    `fraction` is the part of each GPU that the machine was given: no limits are known for less than a whole.
    Raises SmokeInputError.
    """
    every = tuple(target for gpu in machine.gpus for target in _of(gpu, machine, fraction))
    if not names:
        return every
    chosen: list[Target] = []
    for name in names:
        matches = [target for target in every if name == str(target.gpu.index) or _has(target, name)]
        gpus = {target.gpu.index for target in matches}
        if len(gpus) != 1:
            indexes = ", ".join(str(gpu.index) for gpu in machine.gpus) or "none: this machine has no GPU"
            problem = f"fits {len(gpus)} GPUs" if gpus else "is not a GPU of this machine"
            raise SmokeInputError(f"--gpus: {name} {problem}\n    expected: an index or UUID; there are {indexes}")
        chosen += matches
    return tuple(dict.fromkeys(chosen))


def _has(target: Target, beginning: str) -> bool:
    return any(uuid.startswith(beginning) for uuid in (target.device.uuid, target.gpu.uuid or ""))


def _of(gpu: Gpu, machine: Inventory, fraction: float) -> tuple[Target, ...]:
    if gpu.mig and gpu.mig.enabled and gpu.mig.devices and gpu.state == "ok":
        return tuple(Target(gpu, _part(gpu, part), part=True) for part in gpu.mig.devices)
    return (Target(gpu, _whole(gpu, machine, fraction)),)


def _part(gpu: Gpu, part: MigDevice) -> SmokeDevice:
    return SmokeDevice(part.uuid, f"{gpu.name or 'unnamed'} {part.profile}", gpu.index)


def _whole(gpu: Gpu, machine: Inventory, fraction: float) -> SmokeDevice:
    uuid, name = gpu.uuid or f"gpu-{gpu.index}", gpu.name or "unnamed"
    model = catalog_entry(gpu) if fraction == 1 else None
    if model is None:
        return SmokeDevice(uuid, name, gpu.index)
    lanes = max(required_lanes(gpu, machine) or 0, gpu.pcie.width or 0)
    return SmokeDevice(uuid, name, gpu.index, model.key, gpu.pcie.max_generation, lanes or None)
