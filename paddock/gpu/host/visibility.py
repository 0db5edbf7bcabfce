"""Visibility variables (NVIDIA_, CUDA_, ROCR_ and HIP_VISIBLE_DEVICES): reading and writing them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from paddock.gpu.model import Gpu, Inventory, Vendor

_BY_RUNTIME = "NVIDIA_VISIBLE_DEVICES"
_BY_CUDA = "CUDA_VISIBLE_DEVICES"
_BY_ROCR = "ROCR_VISIBLE_DEVICES"
_BY_HIP = "HIP_VISIBLE_DEVICES"
_NOTHING = {"none", "void", "nodevfiles", "-1"}

TORCH_DEVICE: Mapping[Vendor, str] = {"nvidia": "cuda", "amd": "cuda", "apple": "mps"}
"""torch's name for the devices of a vendor: ROCm answers to CUDA's."""

_Numbered = Mapping[int, Gpu]
"""GPUs by their number in the variable."""


@dataclass(frozen=True, slots=True)
class Visible:
    """UUIDs of GPUs, including all their parts, and of MIG parts. `notes` has a sentence for each variable applied."""

    uuids: frozenset[str]
    notes: tuple[str, ...] = ()

    def shows(self, uuid: str, gpu: str) -> bool:
        """Return True for a visible device, by its UUID and that of the GPU it is or belongs to."""
        return uuid in self.uuids or gpu in self.uuids


def visible(inventory: Inventory, environ: Mapping[str, str] = os.environ) -> Visible | None:
    """Return the devices that all variables allow; None where none of them restricts anything.

    In a container NVIDIA_VISIBLE_DEVICES is ignored: the runtime has applied it, and its indexes were the host's.
    """
    result: Visible | None = None
    nvidia = {gpu.index: gpu for gpu in inventory.gpus if gpu.vendor == "nvidia"}
    amd = {gpu.index: gpu for gpu in inventory.gpus if gpu.vendor == "amd"}
    readings: list[tuple[str, _Numbered, Callable[[str, _Numbered], _Selection | None]]] = []
    if nvidia and not inventory.machine.container:
        readings.append((_BY_RUNTIME, nvidia, _runtime))
    if nvidia:
        readings.append((_BY_CUDA, nvidia, _cuda))
    if amd:
        readings.append((_BY_ROCR, amd, _cuda))
        # HIP numbers the GPUs that ROCR allows, in ROCR's order; HIP_VISIBLE_DEVICES wins over CUDA's variable.
        remaining = _remaining_after(amd, environ.get(_BY_ROCR))
        readings.append((_BY_HIP if _BY_HIP in environ else _BY_CUDA, remaining, _cuda))
    for name, gpus, read in readings:
        value = environ.get(name)
        selection = None if value is None else read(value.strip(), gpus)
        if selection is None:
            continue
        uuids = frozenset(selection.uuids)
        sentence = f"{name}={value} leaves {count_gpus(len(selection.uuids))}{selection.caveat}."
        if name == _BY_CUDA and selection.indexed and _mixed(gpus) and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
            sentence += " Its numbers are taken in the order of the bus; CUDA's own is the fastest first."
        before = result.notes if result else ()
        result = Visible(_intersection(result, uuids, inventory) if result else uuids, (*before, sentence))
    return result


@dataclass(frozen=True, slots=True)
class _Selection:
    uuids: tuple[str, ...]
    indexed: bool = False
    caveat: str = ""


def visibility_variables(vendor: Vendor | None, uuids: Sequence[str]) -> dict[str, str | None]:
    """Return the variables that show those devices and no others; None is a variable to remove.

    Without UUIDs they hide every GPU; the vendor may then be None.
    """
    listed = ",".join(uuids)
    match vendor:
        case "nvidia" | None:
            return {
                "CUDA_VISIBLE_DEVICES": listed or "-1",
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                "NVIDIA_VISIBLE_DEVICES": listed or "void",
            }
        case "amd":
            # HIP renumbers the GPUs that ROCR allows; its other variables would renumber them a second time.
            numbers = ",".join(map(str, range(len(uuids))))
            return {
                "ROCR_VISIBLE_DEVICES": listed or "-1",
                "HIP_VISIBLE_DEVICES": numbers or "-1",
                "CUDA_VISIBLE_DEVICES": None,
                "GPU_DEVICE_ORDINAL": None,
            }
        case "apple":
            return {}


def showing(environ: Mapping[str, str], vendor: Vendor | None, uuids: Sequence[str]) -> dict[str, str]:
    """Return the environment of a program that sees those devices and no others; without UUIDs it sees no GPU."""
    changes = visibility_variables(vendor, uuids)
    kept = {name: value for name, value in environ.items() if name not in changes}
    return kept | {name: value for name, value in changes.items() if value is not None}


def _runtime(value: str, gpus: _Numbered) -> _Selection | None:
    """Interpret the value as nvidia-container-toolkit does; a path or an empty value restricts nothing."""
    if value == "" or value.startswith("/") or value.lower() == "all":
        return None
    if value.lower() in _NOTHING:
        return _Selection(())
    names = [name.strip() for name in value.split(",")]
    uuids = {name: _resolve(name, gpus) for name in names}
    unknown = [name for name, uuid in uuids.items() if uuid is None]
    but = f" ({', '.join(unknown)} is not here)" if unknown else ""
    return _Selection(tuple(uuid for uuid in uuids.values() if uuid), any(name.isdecimal() for name in names), but)


def _cuda(value: str, gpus: _Numbered) -> _Selection:
    """Interpret the value as CUDA does: an empty value hides all, and reading stops at the first absent device."""
    uuids: list[str] = []
    indexed = False
    for name in (part.strip() for part in value.split(",")):
        uuid = _resolve(name, gpus)
        if uuid is None:
            stopped = name != "" and name.lower() not in _NOTHING
            return _Selection(tuple(uuids), indexed, f" (it ends at {name}, which is not here)" if stopped else "")
        indexed = indexed or name.isdecimal()
        if uuid not in uuids:
            uuids.append(uuid)
    return _Selection(tuple(uuids), indexed)


def _resolve(name: str, gpus: _Numbered) -> str | None:
    """Return the UUID for an index, a UUID or its beginning, `gpu:part`, or the old `MIG-GPU-.../instance/instance`."""
    if name.isdecimal():
        numbered = gpus.get(int(name))
        return numbered.uuid if numbered else None
    whole, colon, number = name.partition(":")
    if colon and whole.isdecimal() and number.isdecimal():
        owner = gpus.get(int(whole))
        parts = owner.mig.devices if owner and owner.mig else ()
        return parts[int(number)].uuid if int(number) < len(parts) else None
    if name.startswith("MIG-GPU-"):
        uuid, *instances = name.removeprefix("MIG-").split("/")
        return next(
            (
                part.uuid
                for gpu in gpus.values()
                if gpu.uuid == uuid and gpu.mig
                for part in gpu.mig.devices
                if instances == [str(part.gpu_instance), str(part.compute_instance)]
            ),
            None,
        )
    if not name.startswith(("GPU-", "MIG-")):
        return None
    uuids = [uuid for gpu in gpus.values() for uuid in (gpu.uuid, *_parts(gpu)) if uuid]
    if name in uuids:
        return name
    near = [uuid for uuid in uuids if uuid.lower().startswith(name.lower())]
    return near[0] if len(near) == 1 else None


def _remaining_after(gpus: _Numbered, value: str | None) -> _Numbered:
    if value is None:
        return gpus
    uuids = _cuda(value.strip(), gpus).uuids
    return dict(enumerate(gpu for uuid in uuids for gpu in gpus.values() if gpu.uuid == uuid))


def _parts(gpu: Gpu) -> tuple[str, ...]:
    return tuple(part.uuid for part in gpu.mig.devices) if gpu.mig else ()


def _intersection(previous: Visible, uuids: frozenset[str], inventory: Inventory) -> frozenset[str]:
    """Return the devices in both selections, where one may name a GPU and the other its part."""
    other = Visible(uuids)
    devices = [(uuid, gpu.uuid) for gpu in inventory.gpus if gpu.uuid for uuid in (gpu.uuid, *_parts(gpu))]
    return frozenset(uuid for uuid, gpu in devices if previous.shows(uuid, gpu) and other.shows(uuid, gpu))


def _mixed(gpus: _Numbered) -> bool:
    return len({gpu.name for gpu in gpus.values()}) > 1


def count_gpus(number: int) -> str:
    return "no GPU" if number == 0 else "1 GPU" if number == 1 else f"{number} GPUs"
