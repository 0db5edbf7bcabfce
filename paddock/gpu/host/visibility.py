"""Which GPUs NVIDIA_, CUDA_, ROCR_ and HIP_VISIBLE_DEVICES leave to see, and how to set them."""

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

_Numbered = Mapping[int, Gpu]
"""GPUs by the number that the variable gives them."""


@dataclass(frozen=True, slots=True)
class Visible:
    """UUIDs of GPUs, which stand for all their parts, and of MIG parts. `said` is a sentence for each narrowing."""

    uuids: frozenset[str]
    said: tuple[str, ...] = ()

    def shows(self, uuid: str, gpu: str) -> bool:
        """Whether a device may be used, by its UUID and that of the GPU it is or belongs to."""
        return uuid in self.uuids or gpu in self.uuids


def visible(inventory: Inventory, environ: Mapping[str, str] = os.environ) -> Visible | None:
    """What each variable that is set leaves over of the others' choice; None where none of them narrows anything.

    In a container NVIDIA_VISIBLE_DEVICES is passed over: the runtime has acted on it, and its indexes were the host's.
    """
    seen: Visible | None = None
    nvidia = {gpu.index: gpu for gpu in inventory.gpus if gpu.vendor == "nvidia"}
    amd = {gpu.index: gpu for gpu in inventory.gpus if gpu.vendor == "amd"}
    readings: list[tuple[str, _Numbered, Callable[[str, _Numbered], _Read | None]]] = []
    if nvidia and not inventory.machine.container:
        readings.append((_BY_RUNTIME, nvidia, _runtime))
    if nvidia:
        readings.append((_BY_CUDA, nvidia, _cuda))
    if amd:
        readings.append((_BY_ROCR, amd, _cuda))
        # HIP counts what ROCR has left, in ROCR's order; where both of its names are set, its own wins.
        left = _left(amd, environ.get(_BY_ROCR))
        readings.append((_BY_HIP if _BY_HIP in environ else _BY_CUDA, left, _cuda))
    for name, gpus, read in readings:
        value = environ.get(name)
        found = None if value is None else read(value.strip(), gpus)
        if found is None:
            continue
        shown = frozenset(found.uuids)
        sentence = f"{name}={value} leaves {_counted(len(found.uuids))}{found.but}."
        if name == _BY_CUDA and found.indexed and _mixed(gpus) and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
            sentence += " Its numbers are taken in the order of the bus; CUDA's own is the fastest first."
        before = seen.said if seen else ()
        seen = Visible(_both(seen, shown, inventory) if seen else shown, (*before, sentence))
    return seen


@dataclass(frozen=True, slots=True)
class _Read:
    uuids: tuple[str, ...]
    indexed: bool = False
    but: str = ""


def showing(vendor: Vendor | None, uuids: Sequence[str]) -> dict[str, str | None]:
    """The variables that leave those devices and no others; None is one to remove.

    Without UUIDs they hide every GPU, of which none may be known.
    """
    named = ",".join(uuids)
    match vendor:
        case "nvidia" | None:
            return {
                "CUDA_VISIBLE_DEVICES": named or "-1",
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
                "NVIDIA_VISIBLE_DEVICES": named or "void",
            }
        case "amd":
            # HIP counts anew what ROCR leaves over; its other names would count once more.
            numbers = ",".join(map(str, range(len(uuids))))
            return {
                "ROCR_VISIBLE_DEVICES": named or "-1",
                "HIP_VISIBLE_DEVICES": numbers or "-1",
                "CUDA_VISIBLE_DEVICES": None,
                "GPU_DEVICE_ORDINAL": None,
            }
        case "apple":
            return {}


def _runtime(value: str, gpus: _Numbered) -> _Read | None:
    """As nvidia-container-toolkit reads it; a path or an empty value means nothing here."""
    if value == "" or value.startswith("/") or value.lower() == "all":
        return None
    if value.lower() in _NOTHING:
        return _Read(())
    names = [name.strip() for name in value.split(",")]
    found = {name: _named(name, gpus) for name in names}
    unknown = [name for name, uuid in found.items() if uuid is None]
    but = f" ({', '.join(unknown)} is not here)" if unknown else ""
    return _Read(tuple(uuid for uuid in found.values() if uuid), any(name.isdecimal() for name in names), but)


def _cuda(value: str, gpus: _Numbered) -> _Read:
    """As CUDA reads it: an empty value hides all, and what comes after the first that is not there is not seen."""
    found: list[str] = []
    indexed = False
    for name in (one.strip() for one in value.split(",")):
        uuid = _named(name, gpus)
        if uuid is None:
            stopped = name != "" and name.lower() not in _NOTHING
            return _Read(tuple(found), indexed, f" (it ends at {name}, which is not here)" if stopped else "")
        indexed = indexed or name.isdecimal()
        if uuid not in found:
            found.append(uuid)
    return _Read(tuple(found), indexed)


def _named(name: str, gpus: _Numbered) -> str | None:
    """The UUID meant by an index, a UUID or its beginning, `gpu:part`, or the old `MIG-GPU-.../instance/instance`."""
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
    known = [uuid for gpu in gpus.values() for uuid in (gpu.uuid, *_parts(gpu)) if uuid]
    if name in known:
        return name
    near = [uuid for uuid in known if uuid.lower().startswith(name.lower())]
    return near[0] if len(near) == 1 else None


def _left(gpus: _Numbered, value: str | None) -> _Numbered:
    if value is None:
        return gpus
    uuids = _cuda(value.strip(), gpus).uuids
    return dict(enumerate(gpu for uuid in uuids for gpu in gpus.values() if gpu.uuid == uuid))


def _parts(gpu: Gpu) -> tuple[str, ...]:
    return tuple(part.uuid for part in gpu.mig.devices) if gpu.mig else ()


def _both(seen: Visible, shown: frozenset[str], inventory: Inventory) -> frozenset[str]:
    """What two choices have in common, where one may name a GPU and the other its part."""
    other = Visible(shown)
    devices = [(uuid, gpu.uuid) for gpu in inventory.gpus if gpu.uuid for uuid in (gpu.uuid, *_parts(gpu))]
    return frozenset(uuid for uuid, gpu in devices if seen.shows(uuid, gpu) and other.shows(uuid, gpu))


def _mixed(gpus: _Numbered) -> bool:
    return len({gpu.name for gpu in gpus.values()}) > 1


def _counted(number: int) -> str:
    return "no GPU" if number == 0 else "1 GPU" if number == 1 else f"{number} GPUs"
