"""Variables under which a process sees one device: by its UUID, since CUDA numbers GPUs otherwise than their driver."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from paddock.gpu.host.visibility import visibility_variables
from paddock.gpu.model import Vendor
from paddock.serve.placement.device import Backend, Device

_VENDORS: Mapping[Backend, Vendor] = MappingProxyType({"cuda": "nvidia", "rocm": "amd"})


def device_variables(device: Device) -> dict[str, str]:
    """Return the variables that show that GPU, or part of one, and no other; none for what is no GPU of a driver.

    Devices of a file have no UUID: they are a rehearsal on the processor.
    """
    vendor = _VENDORS.get(device.backend)
    if vendor is None or device.uuid is None:
        return {}
    variables = visibility_variables(vendor, [device.uuid])
    return {name: value or "" for name, value in variables.items()}
