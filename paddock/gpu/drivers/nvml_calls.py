"""Calls to nvidia-ml-py. Its errors end here: as None, as a note, or as one of Paddock's exceptions."""

from __future__ import annotations

import ctypes
import struct
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from paddock.gpu.drivers.base import DriverUnavailable
from paddock.gpu.host.bounded import entering
from paddock.gpu.model import MigDevice, RecoveryAction, State

NO_LIBRARY = 12

_UNSUPPORTED = frozenset({3, 13, 25, 26})
"""NotSupported, FunctionNotFound, ArgumentVersionMismatch, Deprecated: permanent for this GPU and driver."""
_NO_DATA = frozenset({6, 21})
"""NotFound and NoData: an empty result."""
_UNKNOWN_FIELD = _UNSUPPORTED | _NO_DATA | {2}
_NO_DRIVER = frozenset({1, 9, 12, 18})
"""Uninitialized, DriverNotLoaded, LibraryNotFound, LibRmVersionMismatch: the driver is no longer there."""
_NO_PERMISSION, _NO_FUNCTION, _LOST, _RESET_REQUIRED, _NOT_READY, _UNKNOWN = 4, 13, 15, 16, 27, 999
FIELDS = "nvmlDeviceGetFieldValues"
_LIBRARY = "libnvidia-ml.so.1"
_ELSEWHERE = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib")
"""Folders of the library on WSL, in containers of some clouds and on NixOS, which the loader may not search."""
_FIELD = struct.Struct("=IIqqIIQ")
"""nvmlFieldValue_t: field, scope, time stamp, latency, type and return code, value."""
WIDTHS = (0, 0xFFFFFFFF, *[0xFFFFFFFFFFFFFFFF] * 3, 0xFFFFFFFF, 0xFFFF)
"""Significant bits of the value, by its type: no field read here is fractional or negative."""


class DeviceUnavailable(Exception):
    """Raised when one GPU stopped answering."""

    def __init__(self, state: State, reason: str, recovery: RecoveryAction | None = None) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
        self.recovery = recovery


class PreparedCalls(Protocol):
    """The calls of one GPU's sample, of which `paddock.gpu.drivers.nvml_batch` makes batches."""

    gpu_fields: dict[str, Any]
    fields: Sequence[int | None]

    def execute(self) -> bool: ...

    def answers(self) -> tuple[Any, ...]: ...


@dataclass(slots=True)
class NvmlDevice:
    """Handle of a GPU with its cached facts and the calls that it does not support."""

    index: int
    handle: Any
    facts: dict[str, Any] = field(default_factory=dict)
    """Constant facts by field of `Gpu`; filled one by one, so that a GPU lost half-way keeps those already read."""
    static_read: bool = False
    limits: tuple[float | None, ...] = ()
    """Power limits: minimum, maximum and default."""
    clocks: tuple[int | None, ...] = ()
    """Maximum clocks of the SMs and of the memory."""
    pcie: tuple[int | None, ...] = ()
    """Maximum generation and width of the link."""
    links: int = 0
    limit: float | None = None
    sram: int | None = None
    slow_fields: dict[str, Any] = field(default_factory=dict)
    """Slow-changing facts by field of `Gpu`, such as settings and error counts, as of the last full reading."""
    parts: list[tuple[Any, MigDevice]] = field(default_factory=list)
    """MIG devices and their handles."""
    batches: dict[tuple[tuple[int, int], ...], Any] = field(default_factory=dict)
    """Request arrays by the fields they ask for."""
    fields: dict[tuple[int, int], int | None] = field(default_factory=dict)
    """The last value of every (field, scope)."""
    unsupported: set[Any] = field(default_factory=set)
    """Keys of the calls that this GPU does not support."""
    failed: set[Any] = field(default_factory=set)
    """Functions and (field, scope) pairs that failed since the last full reading began."""
    batch: PreparedCalls | None = None
    """The prepared calls of a sample, after a first checked one."""
    batch_failed: bool = False
    """A batch failed since the last full reading."""


def load() -> Any:
    """Import pynvml where there is a library for it to load. Raises DriverUnavailable."""
    if "pynvml" not in sys.modules and sys.platform != "win32":
        problem = ""
        for place in ("", *(f"{folder}/" for folder in _ELSEWHERE)):
            try:
                # glibc returns an already loaded library to every later caller of this name.
                ctypes.CDLL(place + _LIBRARY)
                break
            except OSError as error:
                problem = problem or str(error)
        else:
            raise DriverUnavailable(problem, NO_LIBRARY)
    import pynvml

    return pynvml


class Calls:
    """Calls of one reading. `notes` holds the failures: by function and code, the indexes of the GPUs."""

    def __init__(self, pynvml: Any) -> None:
        self.nvml = pynvml
        self.notes: dict[tuple[str, int], list[int]] = {}
        self._waited = False
        self._muted: list[tuple[str, int]] = []

    def system(self, name: str, *arguments: Any) -> Any:
        """Call a function of the whole driver. Raises DriverUnavailable with the driver's code."""
        entering(name)
        try:
            return getattr(self.nvml, name)(*arguments)
        except self.nvml.NVMLError as error:
            raise self.unavailable(name, error.value) from None

    def system_or_none(self, name: str) -> Any:
        """Call a function of the whole driver; None and a note where it fails."""
        try:
            return self.system(name)
        except DriverUnavailable as error:
            self.notes[name, error.code or 0] = []
            return None

    def unavailable(self, name: str, code: int) -> DriverUnavailable:
        return DriverUnavailable(f"{name}: {self.text(code)}", code)

    def open(self, index: int) -> Any:
        """Return the handle of a GPU. Raises DeviceUnavailable and DriverUnavailable."""
        entering("nvmlDeviceGetHandleByIndex")
        try:
            return self.nvml.nvmlDeviceGetHandleByIndex(index)
        except self.nvml.NVMLError as error:
            code = error.value
        if code == _NOT_READY and self._wait():
            return self.open(index)
        if code in _NO_DRIVER:
            raise self.unavailable("nvmlDeviceGetHandleByIndex", code)
        raise self.device_unavailable(code)

    def query(
        self,
        device: NvmlDevice,
        name: str,
        *arguments: Any,
        quiet: bool = False,
        handle: Any = None,
        key: tuple[Any, ...] = (),
    ) -> Any:
        """Call a function for the GPU, or for a part of it by `handle`; None where there is no answer.

        An unsupported call is remembered by `key`, by default the function and its arguments.
        Raises DeviceUnavailable when the GPU is lost, DriverUnavailable when the driver is.
        """
        key = key or (name, *arguments)
        if device.unsupported and key in device.unsupported:
            return None
        entering(name)
        try:
            return getattr(self.nvml, name)(handle or device.handle, *arguments)
        except self.nvml.NVMLError as error:
            code = error.value
        except (AttributeError, self.nvml.NVMLLibraryMismatchError):
            code = _NO_FUNCTION
        except UnicodeDecodeError:
            code = _UNKNOWN
        if code == _NOT_READY and self._wait():
            return self.query(device, name, *arguments, quiet=quiet, handle=handle, key=key)
        if code in _UNSUPPORTED and handle is None:
            device.unsupported.add(key)
        self._handle_error(device, name, code, quiet=quiet)
        return None

    def first(self, device: NvmlDevice, *variants: tuple[Any, ...], handle: Any = None) -> Any:
        """Return the first variant's answer that is not None; the variants before it are not called again."""
        answer = self.query(device, *variants[0], quiet=True, handle=handle)
        if answer is not None:
            return answer
        for number, (name, *arguments) in enumerate(variants[1:], 1):
            answer = self.query(device, name, *arguments, quiet=True, handle=handle)
            if answer is not None:
                self._muted.clear()
                if handle is None:
                    device.unsupported.update(variants[:number])
                return answer
        for name, code in self._muted:
            self.note(device, name, code)
        self._muted.clear()
        return None

    def between(self, name: str, device: NvmlDevice, other: NvmlDevice, *arguments: Any) -> Any:
        """Call a function about two GPUs; None where there is no answer, or one of them is lost."""
        try:
            return self.query(device, name, other.handle, *arguments, key=(name, other.index))
        except DeviceUnavailable:
            return None

    def fields(self, device: NvmlDevice, field_ids: tuple[tuple[int, int], ...]) -> None:
        """Read many (field, scope) pairs in one call into `device.fields`.

        nvidia-ml-py's own function creates its array each time, which takes twenty times as long as the call.
        """
        values = device.fields
        if not field_ids or FIELDS in device.unsupported:
            values.update(dict.fromkeys(field_ids))
            return
        batch = device.batches.get(field_ids)
        if batch is None:
            batch = device.batches[field_ids] = (self.nvml.c_nvmlFieldValue_t * len(field_ids))()
            for slot, pair in zip(batch, field_ids, strict=True):
                slot.fieldId, slot.scopeId = pair
        entering(FIELDS)
        try:
            code = self.nvml.nvmlLib.nvmlDeviceGetFieldValues(device.handle, len(field_ids), ctypes.byref(batch))
        except AttributeError:
            code = _NO_FUNCTION
        if code:
            values.update(dict.fromkeys(field_ids))
            if code in _UNSUPPORTED:
                device.unsupported.add(FIELDS)
            else:
                device.failed.update(field_ids)
            self._handle_error(device, FIELDS, code)
            return
        for pair, (_, _, _, _, kind, refused, value) in zip(field_ids, _FIELD.iter_unpack(batch), strict=True):
            values[pair] = None if refused else value & WIDTHS[kind]
            if refused and refused not in _UNKNOWN_FIELD:
                device.failed.add(pair)
                self._handle_error(device, FIELDS, refused)

    def note(self, device: NvmlDevice, name: str, code: int) -> None:
        device.failed.add(name)
        indexes = self.notes.setdefault((name, code), [])
        if device.index not in indexes:
            indexes.append(device.index)

    def sentences(self) -> tuple[str, ...]:
        return tuple(self._sentence(name, code, gpus) for (name, code), gpus in self.notes.items())

    def text(self, code: int) -> str:
        """Return the driver library's description of a code, and the code."""
        return f"{self.nvml.NVMLError(code)} ({code})"

    def device_unavailable(self, code: int) -> DeviceUnavailable:
        """Return the error for a GPU that does not answer with this code."""
        if code == _LOST:
            return DeviceUnavailable("lost", "the driver has lost it: it fell off the bus or stopped answering")
        if code == _RESET_REQUIRED:
            return DeviceUnavailable("unreadable", "it has to be reset before it answers again", "gpu-reset")
        if code == _NO_PERMISSION:
            return DeviceUnavailable("unreadable", "no permission to open it")
        return DeviceUnavailable("unreadable", f"the driver gives no access to it: {self.text(code)}")

    def _wait(self) -> bool:
        """Wait for a driver that is still starting; once per reading."""
        if self._waited:
            return False
        self._waited = True
        time.sleep(0.05)
        return True

    def _handle_error(self, device: NvmlDevice, name: str, code: int, *, quiet: bool = False) -> None:
        if code in _UNSUPPORTED:
            return
        if code in (_LOST, _RESET_REQUIRED):
            raise self.device_unavailable(code)
        if code in _NO_DRIVER:
            raise self.unavailable(name, code)
        if code in _NO_DATA:
            return
        if quiet:
            self._muted.append((name, code))
        else:
            self.note(device, name, code)

    def _sentence(self, name: str, code: int, gpus: Iterable[int]) -> str:
        where = ", ".join(map(str, gpus))
        why = "no permission; root may read it" if code == _NO_PERMISSION else self.text(code)
        return f"{f'GPU {where}: ' if where else ''}{name} did not answer: {why}"
