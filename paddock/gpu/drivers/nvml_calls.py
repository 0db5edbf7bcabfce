"""The only place where nvidia-ml-py is called: its errors end here, as None, as a note, or as one of our exceptions."""

from __future__ import annotations

import ctypes
import struct
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paddock.gpu.drivers.base import Unavailable
from paddock.gpu.model import MigDevice, RecoveryAction, State

if TYPE_CHECKING:
    from paddock.gpu.drivers.nvml_batch import Round

NO_LIBRARY = 12

_ABSENT = frozenset({3, 13, 25, 26})
"""NotSupported, FunctionNotFound, ArgumentVersionMismatch, Deprecated: so it will be for this GPU and driver."""
_NOTHING = frozenset({6, 21})
"""NotFound and NoData: the answer is empty."""
_UNKNOWN_FIELD = _ABSENT | _NOTHING | {2}
_GONE = frozenset({1, 9, 12, 18})
"""Uninitialized, DriverNotLoaded, LibraryNotFound, LibRmVersionMismatch: there is no driver to ask any more."""
_NO_PERMISSION, _NO_FUNCTION, _LOST, _RESET_REQUIRED, _NOT_READY, _UNKNOWN = 4, 13, 15, 16, 27, 999
FIELDS = "nvmlDeviceGetFieldValues"
_LIBRARY = "libnvidia-ml.so.1"
_ELSEWHERE = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/run/opengl-driver/lib")
"""Where the library lies on WSL, in containers of some clouds and on NixOS, though the loader may not look there."""
_FIELD = struct.Struct("=IIqqIIQ")
"""nvmlFieldValue_t: field, scope, time stamp, latency, type and return code, value."""
WIDTHS = (0, 0xFFFFFFFF, *[0xFFFFFFFFFFFFFFFF] * 3, 0xFFFFFFFF, 0xFFFF)
"""The bits of the value that count, by its type: no field read here is a fraction or below zero."""


class Silent(Exception):
    """This GPU stopped answering."""

    def __init__(self, state: State, reason: str, recovery: RecoveryAction | None = None) -> None:
        super().__init__(reason)
        self.state = state
        self.reason = reason
        self.recovery = recovery


@dataclass(slots=True)
class Device:
    """A handle, what never changes about its GPU, and what this GPU was found not to answer."""

    index: int
    handle: Any
    facts: dict[str, Any] = field(default_factory=dict)
    """Of `Gpu`, by field; filled as it is read, so that a GPU lost half-way keeps what was said."""
    learnt: bool = False
    limits: tuple[float | None, ...] = ()
    """Power: least, most and default."""
    clocks: tuple[int | None, ...] = ()
    """The highest of the processors and of the memory."""
    pcie: tuple[int | None, ...] = ()
    """The link at its best: generation and width."""
    links: int = 0
    limit: float | None = None
    sram: int | None = None
    standing: dict[str, Any] = field(default_factory=dict)
    """Of `Gpu`, by field: what changes by somebody's hand, or in days, as it was at the last full reading."""
    parts: list[tuple[Any, MigDevice]] = field(default_factory=list)
    """MIG devices and their handles."""
    batches: dict[tuple[tuple[int, int], ...], Any] = field(default_factory=dict)
    """The arrays that fields are asked for with."""
    fields: dict[tuple[int, int], int | None] = field(default_factory=dict)
    """The last answer to every (field, scope)."""
    absent: set[Any] = field(default_factory=set)
    """Calls that this GPU was found not to answer."""
    round: Round | None = None
    """The calls of a sample, once they were made with care."""
    careful: bool = False
    """A round failed since the last full reading."""


def load() -> Any:
    """The pynvml module, loaded only where there is a library for it to load. Raises Unavailable."""
    if "pynvml" not in sys.modules and sys.platform != "win32":
        problem = ""
        for place in ("", *(f"{folder}/" for folder in _ELSEWHERE)):
            try:
                # glibc hands the library that is loaded already to whoever asks for it by this name.
                ctypes.CDLL(place + _LIBRARY)
                break
            except OSError as error:
                problem = problem or str(error)
        else:
            raise Unavailable(problem, NO_LIBRARY)
    import pynvml

    return pynvml


class Calls:
    """One reading's calls to the driver. `notes` holds what failed, by function and code: the GPUs it failed for."""

    def __init__(self, pynvml: Any) -> None:
        self.nvml = pynvml
        self.notes: dict[tuple[str, int], list[int]] = {}
        self._waited = False
        self._muted: list[tuple[str, int]] = []

    def system(self, name: str, *arguments: Any) -> Any:
        """Raises Unavailable with the driver's code."""
        try:
            return getattr(self.nvml, name)(*arguments)
        except self.nvml.NVMLError as error:
            raise self.unavailable(name, error.value) from None

    def about(self, name: str) -> Any:
        """What the driver says of itself; None where it does not."""
        try:
            return self.system(name)
        except Unavailable as error:
            self.notes[name, error.code or 0] = []
            return None

    def unavailable(self, name: str, code: int) -> Unavailable:
        return Unavailable(f"{name}: {self.text(code)}", code)

    def open(self, index: int) -> Any:
        """The handle of a GPU. Raises Silent where the driver gives none, Unavailable."""
        try:
            return self.nvml.nvmlDeviceGetHandleByIndex(index)
        except self.nvml.NVMLError as error:
            code = error.value
        if code == _NOT_READY and self._wait():
            return self.open(index)
        if code in _GONE:
            raise self.unavailable("nvmlDeviceGetHandleByIndex", code)
        raise self.silence(code)

    def ask(
        self,
        device: Device,
        name: str,
        *arguments: Any,
        quiet: bool = False,
        handle: Any = None,
        key: tuple[Any, ...] = (),
    ) -> Any:
        """The function's answer for the GPU (or for a part of it, by `handle`); None where there is none.

        That a GPU does not support a call is remembered by `key`, else by the function and its arguments.
        Raises Silent when the GPU is lost, Unavailable when the driver is.
        """
        key = key or (name, *arguments)
        if device.absent and key in device.absent:
            return None
        try:
            return getattr(self.nvml, name)(handle or device.handle, *arguments)
        except self.nvml.NVMLError as error:
            code = error.value
        except (AttributeError, self.nvml.NVMLLibraryMismatchError):
            code = _NO_FUNCTION
        except UnicodeDecodeError:
            code = _UNKNOWN
        if code == _NOT_READY and self._wait():
            return self.ask(device, name, *arguments, quiet=quiet, handle=handle, key=key)
        if code in _ABSENT and handle is None:
            device.absent.add(key)
        self._judge(device, name, code, quiet=quiet)
        return None

    def first(self, device: Device, *ways: tuple[Any, ...], handle: Any = None) -> Any:
        """The answer of the first function, with its arguments, that gives one; those before it are not asked again."""
        found = self.ask(device, *ways[0], quiet=True, handle=handle)
        if found is not None:
            return found
        for number, (name, *arguments) in enumerate(ways[1:], 1):
            found = self.ask(device, name, *arguments, quiet=True, handle=handle)
            if found is not None:
                self._muted.clear()
                if handle is None:
                    device.absent.update(ways[:number])
                return found
        for name, code in self._muted:
            self.note(device, name, code)
        self._muted.clear()
        return None

    def between(self, name: str, device: Device, other: Device, *arguments: Any) -> Any:
        """The function's answer about two GPUs; None where there is none, or where one of them is lost."""
        try:
            return self.ask(device, name, other.handle, *arguments, key=(name, other.index))
        except Silent:
            return None

    def fields(self, device: Device, wanted: tuple[tuple[int, int], ...]) -> None:
        """Asks for many (field, scope) pairs in one call; the answers are in `device.fields`.

        nvidia-ml-py's own function makes its array anew each time, which takes twenty times as long as the call.
        """
        known = device.fields
        if not wanted or FIELDS in device.absent:
            known.update(dict.fromkeys(wanted))
            return
        batch = device.batches.get(wanted)
        if batch is None:
            batch = device.batches[wanted] = (self.nvml.c_nvmlFieldValue_t * len(wanted))()
            for slot, pair in zip(batch, wanted, strict=True):
                slot.fieldId, slot.scopeId = pair
        try:
            code = self.nvml.nvmlLib.nvmlDeviceGetFieldValues(device.handle, len(wanted), ctypes.byref(batch))
        except AttributeError:
            code = _NO_FUNCTION
        if code:
            known.update(dict.fromkeys(wanted))
            if code in _ABSENT:
                device.absent.add(FIELDS)
            self._judge(device, FIELDS, code)
            return
        for pair, (_, _, _, _, kind, refused, value) in zip(wanted, _FIELD.iter_unpack(batch), strict=True):
            known[pair] = None if refused else value & WIDTHS[kind]
            if refused and refused not in _UNKNOWN_FIELD:
                self._judge(device, FIELDS, refused)

    def note(self, device: Device, name: str, code: int) -> None:
        found = self.notes.setdefault((name, code), [])
        if device.index not in found:
            found.append(device.index)

    def sentences(self) -> tuple[str, ...]:
        return tuple(self._sentence(name, code, gpus) for (name, code), gpus in self.notes.items())

    def text(self, code: int) -> str:
        """The driver library's own word for a code, and the code."""
        return f"{self.nvml.NVMLError(code)} ({code})"

    def silence(self, code: int) -> Silent:
        """Why a GPU of which not even a handle can be had does not answer."""
        if code == _LOST:
            return Silent("lost", "the driver has lost it: it fell off the bus or does not answer any more")
        if code == _RESET_REQUIRED:
            return Silent("unreadable", "it has to be reset before it answers again", "gpu-reset")
        if code == _NO_PERMISSION:
            return Silent("unreadable", "no permission to open it")
        return Silent("unreadable", f"the driver gives no access to it: {self.text(code)}")

    def _wait(self) -> bool:
        """Waits for a driver that is still starting, once a reading."""
        if self._waited:
            return False
        self._waited = True
        time.sleep(0.05)
        return True

    def _judge(self, device: Device, name: str, code: int, *, quiet: bool = False) -> None:
        if code in _ABSENT:
            return
        if code in (_LOST, _RESET_REQUIRED):
            raise self.silence(code)
        if code in _GONE:
            raise self.unavailable(name, code)
        if code in _NOTHING:
            return
        if quiet:
            self._muted.append((name, code))
        else:
            self.note(device, name, code)

    def _sentence(self, name: str, code: int, gpus: Iterable[int]) -> str:
        where = ", ".join(map(str, gpus))
        why = "no permission; root may read it" if code == _NO_PERMISSION else self.text(code)
        return f"{f'GPU {where}: ' if where else ''}{name} did not answer: {why}"
