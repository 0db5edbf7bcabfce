"""Admission of a job to the GPUs of its pod: a pure function of the inventory and its health."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from paddock.gpu.health.check import Health
from paddock.gpu.health.rules import REPAIR_DUE, Finding
from paddock.gpu.health.thresholds import Limit
from paddock.gpu.job_hooks.environment import PodJob
from paddock.gpu.model import Gpu, Inventory, Memory

NOTICEABLE = Limit(128, "MiB: an idle T4, L4, A10G or H100 shows 0 to 4, and a MIG part up to 90", "nvidia-smi")
IN_USE = Limit(512, "MiB: a CUDA context takes 100 to 500, and less leaves a job what it needs", "Paddock")
IN_USE_UNSPLIT = Limit(
    1024, "MiB: where the driver does not report its own part, 300 to 900 of it count as used", "gpustat#141"
)

_TRANSIENT = frozenset({"thermal", "hardware-slowdown", "power-brake", "leftover", "memory-in-use"})
"""May end within seconds: the last job's processes and their memory are still being released."""
_REFUSING = (_TRANSIENT - {"thermal"}) | {"missing", "compute-prohibited"}
"""Findings that refuse a job, in addition to all that are unhealthy or unknown."""
_REPLACING_ACTIONS = frozenset({"reset", "reboot", "replace-node"})
"""Actions that nobody performs on a cloud node: it is replaced instead."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Decision: `refused` is why the job may not start and `replace` why the node must be replaced; each may be None.

    `transient`: the reasons may end within seconds.
    """

    gpus: str
    refused: str | None = None
    replace: str | None = None
    warnings: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    transient: bool = False


def own(inventory: Inventory, job: PodJob) -> Inventory:
    """Restrict the inventory to the job's GPUs, where their UUIDs are known. A lost GPU may have none."""
    if not job.assigned:
        return inventory
    return replace(inventory, gpus=tuple(part for gpu in inventory.gpus if (part := _assigned_part(gpu, job.assigned))))


def _assigned_part(gpu: Gpu, assigned: frozenset[str]) -> Gpu | None:
    if gpu.uuid is None or gpu.uuid in assigned:
        return gpu
    parts = tuple(part for part in gpu.mig.devices if part.uuid in assigned) if gpu.mig else ()
    return replace(gpu, mig=replace(gpu.mig, devices=parts)) if gpu.mig and parts else None


def admit(inventory: Inventory, health: Health, job: PodJob, *, devices_missing: bool = False) -> Admission:
    """Decide by the job's own inventory and health. `devices_missing`: the driver lacks GPUs that the pod has."""
    results = [*_missing(inventory, job), *health.findings, *([] if job.shared else _in_use(inventory))]
    refusing = [finding for finding in results if _refuses(finding, inventory)]
    degraded = [finding for finding in results if finding not in refusing and _concerns_job(finding)]
    marking = [finding for finding in results if _is_fault_of_node(finding)] or (refusing if devices_missing else [])
    return Admission(
        gpus=_describe_gpus(inventory),
        refused=_sentence(refusing) if refusing else None,
        replace=marking[0].evidence if marking else None,
        warnings=(*(finding.evidence for finding in degraded), *_notes(inventory, job)),
        details=(*(_detail(finding) for finding in results), *(f"not checked: {text}" for text in health.unchecked)),
        transient=bool(refusing) and all(finding.id in _TRANSIENT for finding in refusing),
    )


def unanswered(seconds: float, *, hangs: bool) -> Admission:
    """Refuse where the driver did not answer in time: `hangs` if certainly in the kernel, else it may be slow."""
    reason = f"the GPU driver does not answer (asked for {seconds:.1f} s)"
    if hangs:
        return Admission("", reason, reason, details=("the driver hangs inside the kernel; only a reboot frees it",))
    explanation = "it hangs, is busy, or only starts now, where no nvidia-persistenced on the node keeps it started"
    return Admission("", reason, details=(explanation,))


def devices(inventory: Inventory) -> Iterator[tuple[str, Memory | None, Limit]]:
    """Yield each device of a pod, a usable GPU or each of its MIG parts: name, memory and the limit of its use."""
    for gpu in inventory.usable:
        if gpu.mig and gpu.mig.enabled:
            for part in gpu.mig.devices:
                yield f"GPU {gpu.index}, part {part.profile}", part.memory, IN_USE
        else:
            unsplit = gpu.memory is not None and gpu.memory.reserved is None
            yield f"GPU {gpu.index}", gpu.memory, IN_USE_UNSPLIT if unsplit else IN_USE


def in_use(inventory: Inventory) -> Iterator[tuple[str, int]]:
    """Yield the devices with more memory in use than a job can spare, and the MiB."""
    for name, memory, limit in devices(inventory):
        if memory and memory.used > limit.value:
            yield name, memory.used


def _missing(inventory: Inventory, job: PodJob) -> Iterator[Finding]:
    unusable = [gpu for gpu in inventory.gpus if gpu.state != "ok"]
    present = len(list(devices(inventory)))
    unexplained = inventory.gpus or not inventory.reason  # else health reports the reason
    if present + len(unusable) < job.gpus and unexplained:
        yield Finding("missing", "unhealthy", "none", f"{present} of the {job.gpus} GPUs of this job are here")


def _in_use(inventory: Inventory) -> Iterator[Finding]:
    for name, mebibytes in in_use(inventory):
        text = f"{name}: {gibibytes(mebibytes)} of its memory was in use before the job began"
        yield Finding("memory-in-use", "degraded", "restart-app", text)


def _refuses(finding: Finding, inventory: Inventory) -> bool:
    if finding.id == "thermal":  # the last job, or another one, may have heated it to where the driver slows it
        return any("hardware-thermal" in (gpu.throttle or ()) for gpu in inventory.gpus if gpu.index == finding.index)
    if finding.severity == "unknown":
        return finding.disqualifies
    return finding.severity == "unhealthy" or finding.id in _REFUSING


def _concerns_job(finding: Finding) -> bool:
    """Return False for notes and for Xids of an earlier job, which ended with it."""
    return finding.severity != "note" and not (finding.id.startswith("xid-") and finding.action == "restart-app")


def _is_fault_of_node(finding: Finding) -> bool:
    """Return True for a fault that only another node repairs; a wrong setting would affect all nodes alike."""
    return finding.action in _REPLACING_ACTIONS and (finding.severity == "unhealthy" or finding.id in REPAIR_DUE)


def _notes(inventory: Inventory, job: PodJob) -> Iterator[str]:
    for gpu in inventory.gpus:
        if "software-power-cap" in (gpu.throttle or ()):
            limit = f" of {gpu.power.limit:.0f} W" if gpu.power.limit else ""
            yield f"GPU {gpu.index}: it is at its power limit{limit}, and slower than it could be"
    for name, memory, limit_in_use in () if job.shared else devices(inventory):
        if memory and limit_in_use is IN_USE and NOTICEABLE.value < memory.used <= limit_in_use.value:
            yield f"{name}: {gibibytes(memory.used)} of its memory is in use"
    present = len(list(devices(inventory)))
    if present > job.gpus:
        yield f"{present} GPUs are visible, and this job was given {job.gpus}: the others may belong to other jobs"


def _sentence(refusing: list[Finding]) -> str:
    """Return the first reason without its advice to the node's operator, which is part of the details."""
    first, more = refusing[0].evidence.partition(". ")[0].rstrip("."), len(refusing) - 1
    return f"{first} (and {more} more)" if more else first


def _detail(finding: Finding) -> str:
    return f"{finding.severity}  {finding.id}: {finding.evidence}{f'; fix: {finding.fix}' if finding.fix else ''}"


def _describe_gpus(inventory: Inventory) -> str:
    names = [gpu.name or "unknown GPU" for gpu in inventory.usable]
    kinds = ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    driver = f", driver {inventory.driver.version}" if inventory.driver else ""
    return f"{kinds}{driver}"


def gibibytes(mebibytes: float) -> str:
    return f"{mebibytes / 1024:.1f} GiB" if mebibytes >= 1024 else f"{mebibytes:.0f} MiB"
