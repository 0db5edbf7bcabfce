"""Choose GPUs: a pure function, with a reason for every selected or refused GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.gpu import serialization
from paddock.gpu.catalog_match import catalog_entry, is_model
from paddock.gpu.health.check import unfit
from paddock.gpu.health.xid import Event
from paddock.gpu.host.visibility import Visible, count_gpus
from paddock.gpu.leases.eligibility import LeasableDevice, Refused, SelectionContext, devices, refusal
from paddock.gpu.leases.lease import Lease
from paddock.gpu.leases.ranking import Links, Score, best, scores
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Gpu, Inventory

_NEAR = {"nvlink": "of one NVLink island", "pcie-switch": "below one PCIe switch"}


@dataclass(frozen=True, slots=True)
class SelectedDevice:
    """Selected device. `gpu` is the UUID of the GPU of a MIG part, and equals `uuid` for a whole GPU.

    `score` holds the parts of its rank, 0 to 1000 each; see `paddock.gpu.leases.ranking.Part`.
    """

    index: int
    uuid: str
    gpu: str
    reason: str
    score: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Result of a choice: `taken` has all requested devices, or none. `why` is a one-sentence summary."""

    taken: tuple[SelectedDevice, ...]
    refused: tuple[Refused, ...]
    satisfied: bool
    why: str
    notes: tuple[str, ...] = ()
    hopeless: bool = False
    """No waiting helps: too few GPUs fit the request, no matter who uses them."""

    def __str__(self) -> str:
        """Return the summary, and a line for each GPU."""
        lines = [f"GPU {device.index} ({device.uuid}): taken, {device.reason}" for device in self.taken]
        lines += [f"GPU {device.index} ({device.uuid or 'no UUID'}): {device.reason}" for device in self.refused]
        return "\n    ".join([self.why, *lines, *self.notes])

    def document(self) -> dict[str, Any]:
        """Return why each GPU was taken or refused, as JSON types; the parts of `score` are 0 to 1000."""
        return {
            "taken": [{**serialization.data(device), "score": dict(device.score)} for device in self.taken],
            "refused": [
                {
                    "index": refused.index,
                    "uuid": refused.uuid,
                    "reason": refused.reason,
                    "passing": refused.transient,
                    "unhealthy": refused.unhealthy,
                }
                for refused in self.refused
            ],
            "why": self.why,
            "notes": list(self.notes),
        }


def choose(
    inventory: Inventory,
    request: Request,
    leases: Sequence[Lease] = (),
    visible: Visible | None = None,
    *,
    descent: Mapping[int, frozenset[int]] | None = None,
    own: int | None = None,
    xids: Sequence[Event] = (),
) -> Choice:
    """Return the best eligible GPUs for a request.

    `leases` are the held ones. `visible` holds the devices that the environment allows. `descent` maps a process on a
    GPU to the lease owners it is or descends from. `own` is the requesting pid, whose processes are not in the way.
    `xids` are the driver's errors in the kernel log.
    The same arguments give the same choice, in whatever order GPUs and leases come.
    """
    context = SelectionContext(leases, visible, descent, own, unfit(inventory, xids))
    available, refused = devices(inventory)
    fitting: list[LeasableDevice] = []
    for device in available:
        reason = refusal(device, request, context)
        if reason:
            refused.append(reason)
        else:
            fitting.append(device)
    scores_by_uuid = scores(fitting, request, leases)
    links = Links.from_pairs(inventory.pairs, {gpu.index: gpu.uuid for gpu in inventory.gpus if gpu.uuid})
    well = [device for device in fitting if not context.fault(device)]
    chosen = best(well, request, scores_by_uuid, links) or best(fitting, request, scores_by_uuid, links)
    selected = tuple(_selected(device, request, scores_by_uuid[device.uuid], context) for device in chosen or ())
    for device in fitting:
        if not chosen:
            refused.append(Refused(device.gpu.index, device.uuid, "free, but not enough with it", transient=True))
        elif device not in chosen:
            refused.append(Refused(device.gpu.index, device.uuid, "free, but not needed: another ranks before it"))
    refused.sort(key=lambda device: (device.index, device.uuid or ""))
    return Choice(
        selected,
        tuple(refused),
        bool(selected),
        _why(inventory, request, fitting, links, refused, satisfied=bool(selected)),
        _notes(inventory, request, visible, fitting, links),
        hopeless=not selected and _hopeless(available, request, context, links),
    )


def _hopeless(available: Sequence[LeasableDevice], request: Request, context: SelectionContext, links: Links) -> bool:
    reasons = ((device, refusal(device, request, context)) for device in available)
    fitting = [device for device, reason in reasons if reason is None or reason.transient]
    return best(fitting, request, scores(fitting, request, context.leases), links) is None


def _selected(device: LeasableDevice, request: Request, score: Score, context: SelectionContext) -> SelectedDevice:
    gpu, memory = device.gpu, device.memory
    parts = [f"{device.part.profile} of {gpu.name or 'a GPU'}" if device.part else gpu.name or "unknown model"]
    if memory:
        parts.append(f"{memory.free / 1024:.1f} GiB free")
    if request.prefer and score["preferred"]:
        parts.append("a model preferred")
    if request.workload:
        place = f"ranked {score['workload'] / 1000:.0%} for {request.workload}"
        parts.append(place if catalog_entry(gpu) else f"{place}, its model is not in the catalogue")
    if device.processes is None:
        parts.append("its processes cannot be read")
    if fault := context.fault(device):
        parts.append(f"accepted although {fault}")
    return SelectedDevice(gpu.index, device.uuid, gpu.uuid or device.uuid, ", ".join(parts), tuple(score.items()))


def _why(
    inventory: Inventory,
    request: Request,
    fitting: Sequence[LeasableDevice],
    links: Links,
    refused: Sequence[Refused],
    *,
    satisfied: bool,
) -> str:
    count = count_gpus(request.count)
    if not inventory.gpus:
        return inventory.reason or "This machine has no GPU."
    if satisfied:
        return f"{count} selected, {len(refused)} not needed or refused."
    if len(fitting) < request.count:
        return f"{count} requested, and {len(fitting) or 'none'} available."
    unknown = ": how they are connected is not known here" if links.unknown(fitting) else ""
    return f"No {count} {_NEAR[request.near]} are available{unknown}."


def _notes(
    inventory: Inventory, request: Request, visible: Visible | None, fitting: Sequence[LeasableDevice], links: Links
) -> tuple[str, ...]:
    notes = list(visible.notes) if visible else []
    for word, models in (("prefer", request.prefer), ("exclude", request.exclude)):
        absent = [model for model in models if not any(is_model(gpu, model) for gpu in inventory.gpus)]
        notes += [f"{word} {model}: no GPU of this model is here." for model in absent]
    here = [uuid.lower() for gpu in inventory.gpus for uuid in _uuids(gpu)]
    for prefix in request.uuids:
        if not any(uuid.startswith(prefix.lower()) for uuid in here):
            notes.append(f"{prefix} is not on this machine.")
    if request.count > 1 and request.near == "none" and len(fitting) > request.count and links.unknown(fitting):
        notes.append("How the GPUs are connected is not known here, so it did not count.")
    return tuple(notes)


def _uuids(gpu: Gpu) -> list[str]:
    """Its own, and those of its parts."""
    return [*([gpu.uuid] if gpu.uuid else []), *(part.uuid for part in (gpu.mig.devices if gpu.mig else ()))]
