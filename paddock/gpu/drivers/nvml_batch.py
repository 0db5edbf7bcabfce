"""The calls of one GPU that are made again and again, each kept with its arguments and the place of its answer.

nvidia-ml-py looks up the function and makes arguments and answer anew at every call, which takes longer than the call.
No error is judged here: where a round does not answer as the one before, the GPU has to be asked with care.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from struct import Struct
from types import SimpleNamespace
from typing import Any

from paddock.gpu.drivers.nvml_calls import FIELDS, WIDTHS, Calls, Device

_KIND, _VALUE = "24xII8x", "32xQ"
"""Of an nvmlFieldValue_t, the type and the return code, and the value."""
_NO_ANSWER = SimpleNamespace(value=None)


class Round:
    """Where the answers of a GPU go that has just been asked with care; None is what it was found not to answer.

    `wanted` are the fields that it was asked for then, `known` is what was said of it, by field of `Gpu`. Raises
    AttributeError where the driver or nvidia-ml-py lack a function.
    """

    def __init__(
        self, calls: Calls, device: Device, wanted: tuple[tuple[int, int], ...], known: dict[str, Any], *, draw: bool
    ) -> None:
        self.known = known
        nvml, number, mask = calls.nvml, ctypes.c_uint, ctypes.c_ulonglong
        self._device, self._library = device, nvml.nvmlLib
        self._calls: list[tuple[Callable[..., int], tuple[Any, ...]]] = []

        v2, hot = nvml.nvmlMemory_v2, nvml.c_nvmlTemperature_v1_t(version=nvml.nvmlTemperature_v1)
        memory = self._first(
            (("nvmlDeviceGetMemoryInfo", v2), "nvmlDeviceGetMemoryInfo_v2", (), nvml.c_nvmlMemory_v2_t(version=v2)),
            (("nvmlDeviceGetMemoryInfo",), "nvmlDeviceGetMemoryInfo", (), nvml.c_nvmlMemory_t()),
        )
        celsius = self._first(
            (("nvmlDeviceGetTemperature", 0), "nvmlDeviceGetTemperature", (number(0),), number()),
            (("nvmlDeviceGetTemperatureV", 0), "nvmlDeviceGetTemperatureV", (), hot),
        )
        if celsius is hot:
            celsius = ctypes.c_int.from_buffer(hot, type(hot).temperature.offset)
        busy = self._first(_plain("nvmlDeviceGetUtilizationRates", nvml.c_nvmlUtilization_t()))
        reasons = self._first(
            _plain("nvmlDeviceGetCurrentClocksEventReasons", mask()),
            _plain("nvmlDeviceGetCurrentClocksThrottleReasons", mask()),
        )
        sm = self._first(_plain("nvmlDeviceGetClockInfo", number(), nvml.NVML_CLOCK_SM))
        memory_clock = self._first(_plain("nvmlDeviceGetClockInfo", number(), nvml.NVML_CLOCK_MEM))
        watt = self._first(_plain("nvmlDeviceGetPowerUsage", number())) if draw else _NO_ANSWER
        self._structures = tuple(None if one is _NO_ANSWER else one for one in (memory, busy))
        self._numbers = celsius, reasons, sm, memory_clock, watt

        self.fields: Sequence[int | None] = (None,) * len(wanted)
        self._batch = None if FIELDS in device.absent else device.batches[wanted]
        self._kind, self._value = (Struct("=" + one * len(wanted)) for one in (_KIND, _VALUE))
        if self._batch is not None:
            arguments = device.handle, len(wanted), ctypes.byref(self._batch)
            self._calls.append((self._library.nvmlDeviceGetFieldValues, arguments))
            self._kinds = self._kind.unpack(self._batch)
            kinds = zip(self._kinds[0::2], self._kinds[1::2], strict=True)
            self._masks = [None if refused else WIDTHS[kind] for kind, refused in kinds]

    def made(self) -> bool:
        """Asks anew. False: a call failed, or a field was answered or refused otherwise than before."""
        for function, arguments in self._calls:
            if function(*arguments):
                return False
        if self._batch is not None:
            if self._kind.unpack(self._batch) != self._kinds:
                return False
            values = zip(self._value.unpack(self._batch), self._masks, strict=True)
            self.fields = [None if mask is None else value & mask for value, mask in values]
        return True

    def answers(self) -> tuple[Any, ...]:
        """Memory and utilisation as the driver's structures; temperature, clocks' reasons, both clocks and power."""
        return (*self._structures, *[number.value for number in self._numbers])

    def _first(self, *ways: tuple[tuple[Any, ...], str, tuple[Any, ...], Any]) -> Any:
        """Keeps the first of the calls that the GPU is not known to lack, and returns where its answer will be.

        A way is what the lack of it is known by, the function in C, its arguments, and the place of its answer.
        """
        for known, name, arguments, answer in ways:
            if known not in self._device.absent:
                made = getattr(self._library, name), (self._device.handle, *arguments, ctypes.byref(answer))
                self._calls.append(made)
                return answer
        return _NO_ANSWER


def _plain(name: str, answer: Any, *numbers: int) -> tuple[tuple[Any, ...], str, tuple[Any, ...], Any]:
    return (name, *numbers), name, tuple(map(ctypes.c_uint, numbers)), answer
