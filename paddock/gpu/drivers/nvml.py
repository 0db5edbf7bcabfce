"""NVIDIA GPUs by NVML.

NVML is started once a process and stopped when it ends: starting takes longer than reading. What never changes is
read once a UUID. Processes, topology and PCIe throughput are read only when asked for, since they are slow.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from pathlib import Path
from typing import Any

from paddock.gpu.drivers.base import Reading, Unavailable
from paddock.gpu.drivers.nvml_calls import Calls, Device, Silent, load
from paddock.gpu.drivers.nvml_device import CHANGING, NO_LINK, again, learn, link_now, now, remember, stand, text
from paddock.gpu.drivers.nvml_processes import Names, mig, names, running_on
from paddock.gpu.drivers.nvml_topology import pairs
from paddock.gpu.model import Driver, Gpu

_session: Session | None = None
_inherited = False
"""This process is the child of one that had started NVML, and holds its open files."""
_lock = threading.RLock()


def session() -> Session:
    """The process's own. Raises Unavailable."""
    global _session, _inherited
    with _lock:
        if _session is None:
            pynvml = load()
            if _inherited:
                with contextlib.suppress(pynvml.NVMLError):
                    pynvml.nvmlShutdown()
                _inherited = False
            _session = Session(pynvml)
        return _session


def close() -> None:
    """Stops NVML; the next reading starts it again."""
    global _session
    with _lock:
        if _session is not None:
            with contextlib.suppress(_session.nvml.NVMLError):
                _session.nvml.nvmlShutdown()
            _session = None


def _after_fork() -> None:
    global _session, _inherited, _lock
    _inherited, _session, _lock = _inherited or _session is not None, None, threading.RLock()


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Nvml:
    """The reader of this machine's NVIDIA driver. `root` is where /proc and /sys lie."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root

    def read(self, *, processes: bool = False, topology: bool = False) -> Reading:
        with _lock:
            try:
                return session().read(self._root, processes=processes, topology=topology)
            except Unavailable:
                close()  # a driver that went away does not come back to the session that lost it
                raise


class NvmlSampler:
    """The GPUs that were there when it was made, with what changes from one second to the next read again.

    The other fields are as they were then. None are the margin of the temperature and, unless `pcie`, the present PCIe
    link; with it, the driver is held up for 40 ms a GPU, and what is sent and received is told too.
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
            except Unavailable:
                close()
                raise


class Session:
    """One start of NVML. Raises Unavailable."""

    def __init__(self, pynvml: Any) -> None:
        self.nvml = pynvml
        self._devices: dict[int, Device] = {}
        self._count = 0
        self._driver: Driver | None = None
        Calls(pynvml).system("nvmlInit")

    def read(self, root: Path, *, processes: bool = False, topology: bool = False) -> Reading:
        calls = Calls(self.nvml)
        self._count = calls.system("nvmlDeviceGetCount")
        who = names(root) if processes else None
        gpus = [self._gpu(calls, index, who, topology=topology) for index in range(self._count)]
        answering = [(self._devices[gpu.index], gpu) for gpu in gpus if gpu.state == "ok"]
        among = pairs(calls, answering, root) if topology else ()
        return Reading("nvml", tuple(gpus), among, self._about(calls), calls.sentences())

    def sample(self, *, pcie: bool) -> tuple[Gpu, ...]:
        """The GPUs of the last reading, now."""
        calls = Calls(self.nvml)
        return tuple(self._sampled(calls, index, pcie=pcie) for index in range(self._count))

    def _gpu(self, calls: Calls, index: int, who: Names | None, *, topology: bool) -> Gpu:
        try:
            device = self._open(calls, index)
            stand(calls, device, topology=topology)
            link = link_now(calls, device, throughput=False)
            margin = calls.ask(device, "nvmlDeviceGetMarginTemperature")
            return now(calls, device, link, margin, running_on(calls, device, who) if who else None)
        except Silent as silent:
            return self._silent(index, silent)

    def _sampled(self, calls: Calls, index: int, *, pcie: bool) -> Gpu:
        device = self._devices.get(index)
        try:
            if device is None or not device.standing:
                device = self._open(calls, index)
                stand(calls, device, topology=False)
                return now(calls, device, link_now(calls, device, throughput=True) if pcie else NO_LINK)
            link = link_now(calls, device, throughput=True) if pcie else NO_LINK
            if gpu := again(device, link):
                return gpu
            calls.fields(device, CHANGING)
            divided = device.standing["mig"] and device.standing["mig"].enabled
            if divided:
                device.standing["mig"] = mig(calls, device)
            gpu = now(calls, device, link)
            if not divided:
                remember(calls, device, gpu)
            return gpu
        except Silent as silent:
            return self._silent(index, silent)

    def _silent(self, index: int, silent: Silent) -> Gpu:
        facts: dict[str, Any] = {"uuid": None, "name": None}
        if known := self._devices.get(index):
            facts |= known.facts
            known.standing = {}
        return Gpu(
            index, vendor="nvidia", state=silent.state, reason=silent.reason, recovery_action=silent.recovery, **facts
        )

    def _open(self, calls: Calls, index: int) -> Device:
        """The device at an index: the one known already, where the GPU there is still the same."""
        device = Device(index, calls.open(index))
        known = self._devices.get(index)
        uuid = text(calls.ask(device, "nvmlDeviceGetUUID"))
        if known is not None and known.learnt and uuid and known.facts["uuid"] == uuid:
            known.handle = device.handle
            return known
        self._devices[index] = device
        if not uuid:
            raise Silent("unreadable", "the driver does not tell its UUID, so nothing can be given to it for certain")
        device.facts["uuid"] = uuid
        learn(calls, device)
        return device

    def _about(self, calls: Calls) -> Driver | None:
        if self._driver is None and (version := text(calls.about("nvmlSystemGetDriverVersion"))):
            cuda = calls.about("nvmlSystemGetCudaDriverVersion_v2")
            speaks = None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
            self._driver = Driver(version, speaks, text(calls.about("nvmlSystemGetNVMLVersion")))
        return self._driver
