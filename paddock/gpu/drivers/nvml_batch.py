"""Prepared calls of one GPU's sample: functions, arguments and result buffers are kept from sample to sample.

nvidia-ml-py looks up the function and creates arguments and result at every call, which takes longer than the call.
Errors are not handled here: where a batch does not succeed as before, the caller falls back to the checked calls.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from struct import Struct
from types import SimpleNamespace
from typing import Any

from paddock.gpu.drivers.nvml_calls import FIELDS, WIDTHS, Calls, NvmlDevice
from paddock.gpu.host.bounded import entering

_KIND, _VALUE = "24xII8x", "32xQ"
"""Parts of an nvmlFieldValue_t: type and return code, and value."""
_NO_ANSWER = SimpleNamespace(value=None)


class CallBatch:
    """Calls prepared after a checked reading of the GPU; a call that it does not support yields None.

    `field_ids` are those of that reading, `gpu_fields` its values by field of `Gpu`. Raises AttributeError where the
    driver or nvidia-ml-py lack a function.
    """

    def __init__(
        self,
        calls: Calls,
        device: NvmlDevice,
        field_ids: tuple[tuple[int, int], ...],
        gpu_fields: dict[str, Any],
        *,
        draw: bool,
    ) -> None:
        self.gpu_fields = gpu_fields
        nvml, number, mask = calls.nvml, ctypes.c_uint, ctypes.c_ulonglong
        self._device, self._library = device, nvml.nvmlLib
        self._calls: list[tuple[Callable[..., int], tuple[Any, ...]]] = []

        v2, thermal = nvml.nvmlMemory_v2, nvml.c_nvmlTemperature_v1_t(version=nvml.nvmlTemperature_v1)
        memory = self._first(
            (("nvmlDeviceGetMemoryInfo", v2), "nvmlDeviceGetMemoryInfo_v2", (), nvml.c_nvmlMemory_v2_t(version=v2)),
            (("nvmlDeviceGetMemoryInfo",), "nvmlDeviceGetMemoryInfo", (), nvml.c_nvmlMemory_t()),
        )
        celsius = self._first(
            (("nvmlDeviceGetTemperature", 0), "nvmlDeviceGetTemperature", (number(0),), number()),
            (("nvmlDeviceGetTemperatureV", 0), "nvmlDeviceGetTemperatureV", (), thermal),
        )
        if celsius is thermal:
            celsius = ctypes.c_int.from_buffer(thermal, type(thermal).temperature.offset)
        busy = self._first(_plain("nvmlDeviceGetUtilizationRates", nvml.c_nvmlUtilization_t()))
        reasons = self._first(
            _plain("nvmlDeviceGetCurrentClocksEventReasons", mask()),
            _plain("nvmlDeviceGetCurrentClocksThrottleReasons", mask()),
        )
        sm = self._first(_plain("nvmlDeviceGetClockInfo", number(), nvml.NVML_CLOCK_SM))
        memory_clock = self._first(_plain("nvmlDeviceGetClockInfo", number(), nvml.NVML_CLOCK_MEM))
        watt = self._first(_plain("nvmlDeviceGetPowerUsage", number())) if draw else _NO_ANSWER
        self._structures = tuple(None if structure is _NO_ANSWER else structure for structure in (memory, busy))
        self._numbers = celsius, reasons, sm, memory_clock, watt

        self.fields: Sequence[int | None] = (None,) * len(field_ids)
        self._batch = None if FIELDS in device.unsupported else device.batches[field_ids]
        self._kind, self._value = (Struct("=" + layout * len(field_ids)) for layout in (_KIND, _VALUE))
        if self._batch is not None:
            arguments = device.handle, len(field_ids), ctypes.byref(self._batch)
            self._calls.append((self._library.nvmlDeviceGetFieldValues, arguments))
            self._kinds = self._kind.unpack(self._batch)
            kinds = zip(self._kinds[0::2], self._kinds[1::2], strict=True)
            self._masks = [None if refused else WIDTHS[kind] for kind, refused in kinds]

    def execute(self) -> bool:
        """Run all calls. Return False where a call failed or the type or status of a field changed."""
        entering("a sample's calls")
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
        """Return memory and utilisation as structures, then temperature, throttle reasons, both clocks and power."""
        return (*self._structures, *[number.value for number in self._numbers])

    def _first(self, *variants: tuple[tuple[Any, ...], str, tuple[Any, ...], Any]) -> Any:
        """Add the first variant that the GPU is not known to lack, and return its result buffer.

        A variant is its key in `NvmlDevice.unsupported`, the C function, the arguments and the result buffer.
        """
        for key, name, arguments, answer in variants:
            if key not in self._device.unsupported:
                call = getattr(self._library, name), (self._device.handle, *arguments, ctypes.byref(answer))
                self._calls.append(call)
                return answer
        return _NO_ANSWER


def _plain(name: str, answer: Any, *numbers: int) -> tuple[tuple[Any, ...], str, tuple[Any, ...], Any]:
    return (name, *numbers), name, tuple(map(ctypes.c_uint, numbers)), answer
