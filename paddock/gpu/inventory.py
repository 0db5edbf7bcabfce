"""Inventory of this machine's GPUs of any vendor, with the reason where there are none."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from paddock.gpu.drivers.base import DriverUnavailable, Reader, Reading
from paddock.gpu.drivers.diagnosis import explain, explain_no_gpus, find_traces
from paddock.gpu.errors import GpuError
from paddock.gpu.host import machine as host_machine
from paddock.gpu.model import Gpu, Inventory, Machine

_HOST_PIDS = (
    "This container has its own pids, and which pids the driver reports depends on its version: processes have no"
    " names here. Start the container with `--pid=host` (Kubernetes: `hostPID: true`) to see them."
)
_NOTHING = Reading("none", ())


@dataclass(frozen=True, slots=True)
class _SearchResult:
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
    """Return this machine's GPUs. Without any, `reason` says why; nothing is raised.

    `programs` runs nvcc, nvidia-ctk and the Docker client as well, which can take seconds. `root` holds /proc, /sys,
    /dev, /etc and the rest.
    """
    machine = host_machine.machine(root, environ)
    try:
        if reader is None:
            result = _search(machine, root, environ, processes=processes, topology=topology)
        else:
            result = _SearchResult(reader.read(processes=processes, topology=topology))
    except DriverUnavailable as error:
        result = _SearchResult(reason=explain(error, machine, find_traces(root)))
    reading, notes = result.reading, (*result.reading.notes, *result.notes)
    if processes and any(gpu.processes for gpu in reading.gpus) and not host_machine.sees_host_processes(root):
        notes = (*notes, _HOST_PIDS)
    run = host_machine.run if programs else None
    return Inventory(
        taken_at=_now(),
        machine=machine,
        backend=reading.backend,
        gpus=reading.gpus,
        pairs=reading.pairs,
        driver=reading.driver,
        toolkit=host_machine.toolkit(root, environ, run),
        runtime=host_machine.container_runtime(root, run),
        reason=result.reason,
        notes=notes,
    )


@dataclass(frozen=True, slots=True)
class Sampler:
    """Inventory whose GPUs are sampled repeatedly."""

    first: Inventory
    _gpus: Callable[[], tuple[Gpu, ...]]
    _root: Path

    def read(self) -> Inventory:
        """Return the current inventory. Raises GpuError when the driver is no longer available."""
        try:
            gpus = self._gpus()
        except DriverUnavailable as error:
            raise GpuError(explain(error, self.first.machine, find_traces(self._root))) from None
        return replace(self.first, taken_at=_now(), gpus=gpus)


def sampler(*, pcie: bool = False, root: Path = Path("/"), reader: Reader | None = None) -> Sampler:
    """Take the inventory, and return a sampler that reads only fast-changing fields again. Raises nothing.

    On NVIDIA the temperature margin is None in samples, and so are the current PCIe link and its throughput unless
    `pcie`, which takes 40 ms per GPU.
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


def _search(
    machine: Machine, root: Path, environ: Mapping[str, str], *, processes: bool, topology: bool
) -> _SearchResult:
    """Return the GPUs of the first vendor that has any, and the reason why NVIDIA's are missing."""
    if machine.system == "macos":
        from paddock.gpu.drivers.apple import Apple

        return _SearchResult(Apple().read())
    from paddock.gpu.drivers.nvml import Nvml

    nvidia = _NOTHING
    try:
        nvidia = Nvml(root).read(processes=processes, topology=topology)
        if nvidia.gpus:
            return _SearchResult(nvidia)
        nvidia_traces = find_traces(root)
        reason = explain_no_gpus(machine, nvidia_traces, environ.get("NVIDIA_VISIBLE_DEVICES"))
    except DriverUnavailable as error:
        nvidia_traces = find_traces(root)
        reason = explain(error, machine, nvidia_traces)
    from paddock.gpu.drivers.amd import Amd

    amd = Amd(root).read(processes=processes, topology=topology)
    if amd.gpus:
        return _SearchResult(amd, notes=(reason,) if nvidia_traces else ())
    return _SearchResult(replace(_NOTHING, driver=nvidia.driver), reason)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
