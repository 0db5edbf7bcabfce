"""NVIDIA GPUs, read through NVML.

NVML is started once per process and stopped when it ends: starting takes longer than reading. Constant facts are read
once per UUID. Processes, topology and PCIe throughput are read only on request, since they are slow.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from pathlib import Path
from typing import Any

from paddock.gpu.drivers import nvml_device
from paddock.gpu.drivers.base import DriverUnavailable, Reading
from paddock.gpu.drivers.nvml_calls import Calls, DeviceUnavailable, NvmlDevice, load
from paddock.gpu.drivers.nvml_processes import Names, names, read_mig, read_processes
from paddock.gpu.drivers.nvml_topology import read_pairs
from paddock.gpu.host.bounded import entering
from paddock.gpu.model import Driver, Gpu

_session: Session | None = None
_lock = threading.RLock()
_CLOSE_SECONDS = 1.0


def session() -> Session:
    """Return the session of this process. Raises DriverUnavailable."""
    global _session
    with _lock:
        if _session is None:
            _session = Session(load())
        return _session


def close() -> None:
    """Stop NVML; the next reading starts it again. A call that hangs in another thread keeps it started."""
    global _session
    if not _lock.acquire(timeout=_CLOSE_SECONDS):
        return
    try:
        if _session is not None:
            with contextlib.suppress(_session.nvml.NVMLError):
                _session.nvml.nvmlShutdown()
            _session = None
    finally:
        _lock.release()


def _after_fork() -> None:
    """Let a child start NVML for itself. It must not stop what it inherits: that ends in a segmentation fault."""
    global _session, _lock
    _session, _lock = None, threading.RLock()


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Nvml:
    """Reader of this machine's NVIDIA driver. `root` holds /proc and /sys."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def read(self, *, processes: bool = False, topology: bool = False) -> Reading:
        with _lock:
            try:
                return session().read(self._root, processes=processes, topology=topology)
            except DriverUnavailable:
                close()  # a session that lost its driver never regains it
                raise
            finally:
                entering("")


class NvmlSampler:
    """Samples of the GPUs present at the start, in which only fast-changing fields are read again.

    The temperature margin is None, and so is the current PCIe link unless `pcie`, which adds the throughput too and
    blocks the driver for 40 ms per GPU.
    """

    def __init__(self, *, pcie: bool = False) -> None:
        self._pcie = pcie
        self._session: Session | None = None

    def gpus(self) -> tuple[Gpu, ...]:
        with _lock:
            try:
                current = session()
                if current is not self._session:
                    current.read(Path("/"))
                    self._session = current
                return current.sample(pcie=self._pcie)
            except DriverUnavailable:
                close()
                raise


class Session:
    """One initialisation of NVML. Raises DriverUnavailable."""

    def __init__(self, pynvml: Any) -> None:
        self.nvml = pynvml
        self._devices: dict[int, NvmlDevice] = {}
        self._count = 0
        self._driver: Driver | None = None
        Calls(pynvml).system("nvmlInit")

    def read(self, root: Path, *, processes: bool = False, topology: bool = False) -> Reading:
        calls = Calls(self.nvml)
        self._count = calls.system("nvmlDeviceGetCount")
        process_names = names(root) if processes else None
        gpus = [self._gpu(calls, index, process_names, topology=topology) for index in range(self._count)]
        answering = [(self._devices[gpu.index], gpu) for gpu in gpus if gpu.state == "ok"]
        gpu_pairs = read_pairs(calls, answering, root) if topology else ()
        return Reading("nvml", tuple(gpus), gpu_pairs, self._driver_info(calls), calls.sentences())

    def sample(self, *, pcie: bool) -> tuple[Gpu, ...]:
        """Return the GPUs of the last reading with their current values."""
        calls = Calls(self.nvml)
        return tuple(self._sampled(calls, index, pcie=pcie) for index in range(self._count))

    def _gpu(self, calls: Calls, index: int, process_names: Names | None, *, topology: bool) -> Gpu:
        try:
            device = self._open(calls, index)
            nvml_device.read_slow(calls, device, topology=topology)
            link = nvml_device.read_link(calls, device, throughput=False)
            margin = calls.query(device, "nvmlDeviceGetMarginTemperature")
            return nvml_device.read_sample(
                calls, device, link, margin, read_processes(calls, device, process_names) if process_names else None
            )
        except DeviceUnavailable as error:
            return self._unavailable_gpu(index, error)

    def _sampled(self, calls: Calls, index: int, *, pcie: bool) -> Gpu:
        device = self._devices.get(index)
        try:
            if device is None or not device.slow_fields:
                device = self._open(calls, index)
                nvml_device.read_slow(calls, device, topology=False)
                return nvml_device.read_sample(
                    calls,
                    device,
                    nvml_device.read_link(calls, device, throughput=True) if pcie else nvml_device.NO_LINK,
                )
            link = nvml_device.read_link(calls, device, throughput=True) if pcie else nvml_device.NO_LINK
            if gpu := nvml_device.resample(device, link):
                return gpu
            calls.fields(device, nvml_device.CHANGING)
            mig_enabled = device.slow_fields["mig"] and device.slow_fields["mig"].enabled
            if mig_enabled:
                device.slow_fields["mig"] = read_mig(calls, device)
            gpu = nvml_device.read_sample(calls, device, link)
            if not mig_enabled:
                nvml_device.cache_calls(calls, device, gpu)
            return gpu
        except DeviceUnavailable as error:
            return self._unavailable_gpu(index, error)

    def _unavailable_gpu(self, index: int, error: DeviceUnavailable) -> Gpu:
        facts: dict[str, Any] = {"uuid": None, "name": None}
        if device := self._devices.get(index):
            facts |= device.facts
            device.slow_fields = {}
        return Gpu(
            index, vendor="nvidia", state=error.state, reason=error.reason, recovery_action=error.recovery, **facts
        )

    def _open(self, calls: Calls, index: int) -> NvmlDevice:
        """Return the device at an index, reusing the previous object where it is still the same GPU."""
        device = NvmlDevice(index, calls.open(index))
        previous = self._devices.get(index)
        uuid = nvml_device.text(calls.query(device, "nvmlDeviceGetUUID"))
        if previous is not None and previous.static_read and uuid and previous.facts["uuid"] == uuid:
            previous.handle = device.handle
            return previous
        self._devices[index] = device
        if not uuid:
            raise DeviceUnavailable("unreadable", "the driver does not report its UUID, so it cannot be identified")
        device.facts["uuid"] = uuid
        nvml_device.read_static(calls, device)
        return device

    def _driver_info(self, calls: Calls) -> Driver | None:
        if self._driver is None and (version := nvml_device.text(calls.system_or_none("nvmlSystemGetDriverVersion"))):
            cuda = calls.system_or_none("nvmlSystemGetCudaDriverVersion_v2")
            cuda_version = None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
            self._driver = Driver(
                version, cuda_version, nvml_device.text(calls.system_or_none("nvmlSystemGetNVMLVersion"))
            )
        return self._driver
