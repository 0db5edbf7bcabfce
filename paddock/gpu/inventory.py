"""The GPUs of this machine, whoever made them, and in plain words why there are none."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from paddock.gpu.drivers.base import Reader, Reading, Unavailable
from paddock.gpu.drivers.diagnosis import explain, traces, without_gpus
from paddock.gpu.errors import GpuError
from paddock.gpu.host import machine as around
from paddock.gpu.model import Gpu, Inventory, Machine

_HOST_PIDS = (
    "This container has pids of its own, and whose pids the driver tells depends on its version: processes have no"
    " names here. Start the container with `--pid=host` (Kubernetes: `hostPID: true`) to see them."
)
_NOTHING = Reading("none", ())


@dataclass(frozen=True, slots=True)
class _Found:
    reading: Reading = _NOTHING
    reason: str | None = None
    notes: tuple[str, ...] = ()


def inventory(
    *,
    processes: bool = False,
    topology: bool = False,
    programs: bool = False,
    root: Path = Path("/"),
    reader: Reader | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Inventory:
    """Everything that is known of this machine's GPUs. Without any, `reason` says why; nothing is raised.

    `programs`: asks nvcc, nvidia-ctk and the Docker engine as well, which can take seconds. `root` is where /proc,
    /sys, /dev, /etc and the rest lie.
    """
    machine = around.machine(root, environ)
    try:
        if reader is None:
            found = _search(machine, root, environ, processes=processes, topology=topology)
        else:
            found = _Found(reader.read(processes=processes, topology=topology))
    except Unavailable as error:
        found = _Found(reason=explain(error, machine, traces(root)))
    reading, notes = found.reading, (*found.reading.notes, *found.notes)
    if processes and any(gpu.processes for gpu in reading.gpus) and not around.sees_host_processes(root):
        notes = (*notes, _HOST_PIDS)
    run = around.run if programs else None
    return Inventory(
        taken_at=_now(),
        machine=machine,
        backend=reading.backend,
        gpus=reading.gpus,
        pairs=reading.pairs,
        driver=reading.driver,
        toolkit=around.toolkit(root, environ, run),
        runtime=around.container_runtime(root, run),
        reason=found.reason,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class Sampler:
    """An inventory whose GPUs are read again and again."""

    first: Inventory
    _gpus: Callable[[], tuple[Gpu, ...]]
    _root: Path

    def read(self) -> Inventory:
        """The inventory now. Raises GpuError when there is no driver to ask any more."""
        try:
            gpus = self._gpus()
        except Unavailable as error:
            raise GpuError(explain(error, self.first.machine, traces(self._root))) from None
        return replace(self.first, taken_at=_now(), gpus=gpus)


def sampler(*, pcie: bool = False, root: Path = Path("/"), reader: Reader | None = None) -> Sampler:
    """Takes the inventory, to read of it again only what changes; the other fields stay as they are now.

    On NVIDIA the margin of the temperature is None, and so are the present PCIe link and its throughput unless `pcie`,
    which takes 40 ms a GPU. Raises nothing, as `inventory`.
    """
    first = inventory(root=root, reader=reader)
    return Sampler(first, _source(first, root, reader, pcie=pcie), root)


def _source(first: Inventory, root: Path, reader: Reader | None, *, pcie: bool) -> Callable[[], tuple[Gpu, ...]]:
    if reader is not None:
        return lambda: reader.read().gpus
    match first.backend:
        case "nvml":
            from paddock.gpu.drivers.nvml import NvmlSampler

            return NvmlSampler(pcie=pcie).gpus
        case "amd-sysfs" | "amdsmi":
            from paddock.gpu.drivers.amd import Amd

            return lambda: Amd(root).read().gpus
        case "apple":
            from paddock.gpu.drivers.apple import Apple

            return lambda: Apple().read().gpus
        case "none":
            return tuple


def _search(machine: Machine, root: Path, environ: Mapping[str, str], *, processes: bool, topology: bool) -> _Found:
    """The first maker whose GPUs answer; why NVIDIA's do not, where there are any."""
    if machine.system == "macos":
        from paddock.gpu.drivers.apple import Apple

        return _Found(Apple().read())
    from paddock.gpu.drivers.nvml import Nvml

    nvidia = _NOTHING
    try:
        nvidia = Nvml(root).read(processes=processes, topology=topology)
        if nvidia.gpus:
            return _Found(nvidia)
        seen = traces(root)
        why = without_gpus(machine, seen, environ.get("NVIDIA_VISIBLE_DEVICES"))
    except Unavailable as error:
        seen = traces(root)
        why = explain(error, machine, seen)
    from paddock.gpu.drivers.amd import Amd

    amd = Amd(root).read(processes=processes, topology=topology)
    if amd.gpus:
        return _Found(amd, notes=(why,) if seen else ())
    return _Found(replace(_NOTHING, driver=nvidia.driver), why)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
