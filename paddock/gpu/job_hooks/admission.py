"""Whether a job may start on the GPUs that its pod was given: what is known comes in, a verdict goes out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from paddock.gpu.health.check import Health
from paddock.gpu.health.rules import Finding
from paddock.gpu.health.thresholds import Limit
from paddock.gpu.job_hooks.environment import Job
from paddock.gpu.model import Gpu, Inventory, Memory

SEEN = Limit(128, "MiB: an idle T4, L4, A10G or H100 shows 0 to 4, and a MIG part up to 90", "nvidia-smi")
IN_USE = Limit(512, "MiB: a CUDA context takes 100 to 500, and less leaves a job what it needs", "Paddock")
IN_USE_UNSPLIT = Limit(
    1024, "MiB: where the driver does not tell its own part, 300 to 900 of it count as used", "gpustat#141"
)

_PASSING = frozenset({"thermal", "hardware-slowdown", "power-brake", "leftover", "memory-in-use"})
"""May be gone a second later: the last job's processes and their memory go at their own pace."""
_REFUSING = (_PASSING - {"thermal"}) | {"missing", "compute-prohibited"}
"""Beside all that makes a GPU unhealthy, or of which nothing is known."""
_MENDED_ELSEWHERE = frozenset({"reset", "reboot", "replace-node"})
"""What health asks for that nobody does to a node of a cloud: another takes its place."""
_DUE = frozenset({"driver-asks", "remap-pending", "retirement-pending"})
"""Of what is only degraded, what the GPU itself says has to be mended. Counters and lanes are not among it: what is
usual for a kind of instance must not cost all of them."""


@dataclass(frozen=True, slots=True)
class Admission:
    """`refused` is why the job may not start, and `replace` why the node is to go; each None where it need not.

    `passing`: what refuses it may be over in a moment.
    """

    gpus: str
    refused: str | None = None
    replace: str | None = None
    warnings: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    passing: bool = False


def own(inventory: Inventory, job: Job) -> Inventory:
    """What of the inventory the job was given, where its UUIDs are known. A lost GPU may have none."""
    if not job.given:
        return inventory
    return replace(inventory, gpus=tuple(kept for gpu in inventory.gpus if (kept := _given(gpu, job.given))))


def _given(gpu: Gpu, given: frozenset[str]) -> Gpu | None:
    if gpu.uuid is None or gpu.uuid in given:
        return gpu
    parts = tuple(part for part in gpu.mig.devices if part.uuid in given) if gpu.mig else ()
    return replace(gpu, mig=replace(gpu.mig, devices=parts)) if gpu.mig and parts else None


def admit(inventory: Inventory, health: Health, job: Job, *, gone: bool = False) -> Admission:
    """`inventory` is the job's own, and `health` the verdict on it. `gone`: GPUs that were handed to the pod are not
    shown by the driver."""
    found = [*_missing(inventory, job), *health.findings, *([] if job.shared else _in_use(inventory))]
    refusing = [one for one in found if _refuses(one, inventory)]
    degraded = [one for one in found if one not in refusing and _concerns(one)]
    marking = [one for one in found if _is_the_nodes(one)] or (refusing if gone else [])
    return Admission(
        gpus=_described(inventory),
        refused=_sentence(refusing) if refusing else None,
        replace=marking[0].evidence if marking else None,
        warnings=(*(one.evidence for one in degraded), *_notes(inventory, job)),
        details=(*(_line(one) for one in found), *(f"not checked: {text}" for text in health.unchecked)),
        passing=bool(refusing) and all(one.id in _PASSING for one in refusing),
    )


def unanswered(seconds: float, *, hangs: bool) -> Admission:
    """Where the driver is late: `hangs` inside the kernel for certain, or only slower than can be waited for."""
    why = f"the GPU driver does not answer (asked for {seconds:.1f} s)"
    if hangs:
        return Admission("", why, why, details=("the driver hangs inside the kernel; only a reboot frees it",))
    slow = "it hangs, is busy, or only starts now, where no nvidia-persistenced on the node keeps it started"
    return Admission("", why, details=(slow,))


def devices(inventory: Inventory) -> Iterator[tuple[str, Memory | None, Limit]]:
    """What counts as one GPU to a pod: each that answers, or each of its MIG parts; with what may be in use of it."""
    for gpu in inventory.usable:
        if gpu.mig and gpu.mig.enabled:
            for part in gpu.mig.devices:
                yield f"GPU {gpu.index}, part {part.profile}", part.memory, IN_USE
        else:
            unsplit = gpu.memory is not None and gpu.memory.reserved is None
            yield f"GPU {gpu.index}", gpu.memory, IN_USE_UNSPLIT if unsplit else IN_USE


def in_use(inventory: Inventory) -> Iterator[tuple[str, int]]:
    """Devices whose memory somebody holds, with its MiB: so much that a job would miss it."""
    for name, memory, limit in devices(inventory):
        if memory and memory.used > limit.value:
            yield name, memory.used


def _missing(inventory: Inventory, job: Job) -> Iterator[Finding]:
    silent = [gpu for gpu in inventory.gpus if gpu.state != "ok"]
    here = len(list(devices(inventory)))
    unexplained = inventory.gpus or not inventory.reason  # else health says why
    if here + len(silent) < job.gpus and unexplained:
        yield Finding("missing", "unhealthy", "none", f"{here} of the {job.gpus} GPUs of this job are here")


def _in_use(inventory: Inventory) -> Iterator[Finding]:
    for name, mebibytes in in_use(inventory):
        text = f"{name}: {gibibytes(mebibytes)} of its memory was in use before the job began"
        yield Finding("memory-in-use", "degraded", "restart-app", text)


def _refuses(finding: Finding, inventory: Inventory) -> bool:
    if finding.id == "thermal":  # the last job's work, or a neighbour's, warms it up to where the driver slows it
        return any("hardware-thermal" in (gpu.throttle or ()) for gpu in inventory.gpus if gpu.index == finding.index)
    return finding.severity in {"unhealthy", "unknown"} or finding.id in _REFUSING


def _concerns(finding: Finding) -> bool:
    """Whether a job is told: an Xid of an earlier one, which ended with it, says nothing to this."""
    return finding.severity != "note" and not (finding.id.startswith("xid-") and finding.action == "restart-app")


def _is_the_nodes(finding: Finding) -> bool:
    """Whether nobody mends it here, and it is no mistake of a setting, which all nodes would share."""
    return finding.action in _MENDED_ELSEWHERE and (finding.severity == "unhealthy" or finding.id in _DUE)


def _notes(inventory: Inventory, job: Job) -> Iterator[str]:
    for gpu in inventory.gpus:
        if "software-power-cap" in (gpu.throttle or ()):
            limit = f" of {gpu.power.limit:.0f} W" if gpu.power.limit else ""
            yield f"GPU {gpu.index}: it is at its power limit{limit}, and slower than it could be"
    for name, memory, most in () if job.shared else devices(inventory):
        if memory and most is IN_USE and SEEN.value < memory.used <= most.value:
            yield f"{name}: {gibibytes(memory.used)} of its memory is in use"
    here = len(list(devices(inventory)))
    if here > job.gpus:
        yield f"{here} GPUs are visible, and this job was given {job.gpus}: the others may be somebody else's"


def _sentence(refusing: list[Finding]) -> str:
    """The first reason, without its advice to whoever runs the node: that stands with the details."""
    first, more = refusing[0].evidence.partition(". ")[0].rstrip("."), len(refusing) - 1
    return f"{first} (and {more} more)" if more else first


def _line(finding: Finding) -> str:
    return f"{finding.severity}  {finding.id}: {finding.evidence}{f'; fix: {finding.fix}' if finding.fix else ''}"


def _described(inventory: Inventory) -> str:
    names = [gpu.name or "unknown GPU" for gpu in inventory.usable]
    kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    driver = f", driver {inventory.driver.version}" if inventory.driver else ""
    return f"{kinds}{driver}"


def gibibytes(mebibytes: float) -> str:
    return f"{mebibytes / 1024:.1f} GiB" if mebibytes >= 1024 else f"{mebibytes:.0f} MiB"
