"""Health rules: pure functions that turn an inventory and Xids into findings, each with its evidence and one action.

Nothing is read here. A rule whose facts are not known yields nothing, except the one that finds faults unreadable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from paddock.errors import one_line
from paddock.gpu.health import thresholds
from paddock.gpu.health.xid import Event, SxidEvent, XidEvent
from paddock.gpu.model import Gpu, Inventory, RecoveryAction

if TYPE_CHECKING:
    from paddock.catalog.xids import Sxid

Severity = Literal["note", "degraded", "unknown", "unhealthy"]
"""From the mildest; a note does not change the verdict."""
Action = Literal["none", "restart-app", "reset", "reboot", "replace-node"]
"""From the mildest; a stronger action also covers the milder ones."""
ACTIONS: tuple[Action, ...] = ("none", "restart-app", "reset", "reboot", "replace-node")

_RECOVERY: dict[RecoveryAction, tuple[Severity, Action, str]] = {
    "none": ("note", "none", ""),
    "gpu-reset": ("unhealthy", "reset", "reset the GPU"),
    "node-reboot": ("unhealthy", "reboot", "reboot the machine"),
    "drain-p2p": ("degraded", "restart-app", "end the programs that read other GPUs' memory"),
    "drain-and-reset": ("degraded", "reset", "let its work end, then reset the GPU"),
    "recover-imex": ("unhealthy", "reboot", "restart the service nvidia-imex on all machines of its domain"),
    "bus-reset": ("unhealthy", "reset", "reset the GPU by its bus"),
    "system-reboot": ("unhealthy", "reboot", "switch the machine off and on"),
}


_UNREAD = {
    "recovery_action": "what it asks for",
    "ecc": "memory errors",
    "remapped": "replaced rows of memory",
    "retired_pages": "retired pages of memory",
    "throttle": "why clocks are low",
}
NO_EVIDENCE = "no-evidence"
REPAIR_DUE = frozenset({"driver-asks", "remap-pending", "retirement-pending"})
"""Degraded findings for which the GPU itself requests a repair. Counters and lanes are not among them: what is
usual for an instance type must not cost all of its nodes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a rule: `gpu` is a UUID; None with an `index` is a GPU without one, and None alone is the machine."""

    id: str
    severity: Severity
    action: Action
    evidence: str
    fix: str = ""
    gpu: str | None = None
    index: int | None = None

    @property
    def disqualifies(self) -> bool:
        """True where the GPU should get no work.

        A GPU whose driver has nothing that would show a fault, such as a virtual one, would otherwise never get any.
        """
        if self.severity == "unknown":
            return self.id != NO_EVIDENCE
        return self.severity == "unhealthy" or self.id in REPAIR_DUE


@dataclass(frozen=True, slots=True)
class HealthContext:
    """Facts and expectations beyond the inventory; None is not known, or not expected."""

    expect: int | None = None
    expect_model: str | None = None
    """A key of the catalogue, `h100`."""
    uptime: float | None = None
    """Seconds since boot."""
    fabric_manager: bool | None = None
    """True while it runs."""
    idle: bool = False
    """Nothing should be running on the GPUs."""


NO_CONTEXT = HealthContext()


def findings(inventory: Inventory, events: Sequence[Event], context: HealthContext) -> tuple[Finding, ...]:
    """Return the findings of all rules: the driver's own requests, then Xids, then counters, then the machine."""
    results: list[Finding] = []
    for gpu in inventory.gpus:
        results += _driver(gpu)
    results += _xids(inventory, [event for event in events if isinstance(event, XidEvent)])
    results += _sxids(inventory, [event for event in events if isinstance(event, SxidEvent)])
    for gpu in inventory.gpus:
        if gpu.state == "ok":
            for rule in (_evidence, _memory, _retired_pages, _clocks, _modes):
                results += rule(gpu)
            results += _pcie(gpu, inventory, context)
            results += _processes(gpu, context)
    results += _nvlinks(inventory)
    results += _machine(inventory, context)
    return tuple(results)


def _finding(gpu: Gpu, id: str, severity: Severity, action: Action, evidence: str, fix: str = "") -> Finding:
    return Finding(id, severity, action, f"GPU {gpu.index}: {evidence}", fix, gpu.uuid, gpu.index)


def _driver(gpu: Gpu) -> Iterator[Finding]:
    requested = gpu.recovery_action
    if requested and requested != "none":
        severity, action, fix = _RECOVERY[requested]
        yield _finding(gpu, "driver-asks", severity, action, f"the driver asks for {requested}", fix)
    reason = gpu.reason or "the driver gives no reason"
    if gpu.state == "lost":
        action = _RECOVERY[requested][1] if requested else "reboot"
        yield _finding(
            gpu, "lost", "unhealthy", action, f"it is lost: {reason}", "reboot; when it is lost again, replace it"
        )
    elif gpu.state == "unreadable" and not (requested and requested != "none"):
        yield _finding(gpu, "unreadable", "unknown", "none", f"it cannot be read: {reason}")


def _xids(inventory: Inventory, events: Sequence[XidEvent]) -> Iterator[Finding]:
    """Yield one finding per Xid number and GPU, with the time of the last event."""
    from paddock.catalog.xids import xid

    by_address = {gpu.pci_address: gpu for gpu in inventory.gpus if gpu.pci_address}
    counts = Counter((event.pci_address, event.code) for event in events)
    last = {(event.pci_address, event.code): event for event in events}
    for (address, code), event in last.items():
        gpu, catalog_xid = by_address.get(address), xid(code)
        if code == 154 and gpu and gpu.recovery_action is not None:
            continue  # the driver's current request replaces an earlier one
        action, severity = _xid_response(event)
        meaning = catalog_xid.what if catalog_xid else "no source explains it: ask NVIDIA's support"
        repeats = f", {counts[address, code]} times" if counts[address, code] > 1 else ""
        when = f" at {event.at:%Y-%m-%dT%H:%M:%S%z}" if event.at else ""
        evidence = f"Xid {code}{repeats}{when}: {meaning}"
        if gpu and gpu.recovery_action and action in {"reset", "reboot"}:
            allowed = _RECOVERY[gpu.recovery_action][1]
            if ACTIONS.index(allowed) < ACTIONS.index(action):
                action, severity = ("restart-app", "degraded") if allowed == "none" else (allowed, severity)
                current = "nothing any more" if allowed == "none" else gpu.recovery_action
                evidence += f"; the driver now asks for {current}"
        if gpu:
            yield _finding(gpu, f"xid-{code}", severity, action, evidence)
        else:
            yield Finding(f"xid-{code}", severity, action, f"GPU at {address}, which is not here: {evidence}")


def _xid_response(event: XidEvent) -> tuple[Action, Severity]:
    from paddock.catalog.xids import xid

    catalog_xid = xid(event.code)
    if catalog_xid is None:
        return "none", "degraded"
    match catalog_xid.then or catalog_xid.action:
        case "driver":
            severity, action, _ = _RECOVERY[event.recovery_action or "none"]
            return action, severity
        case "restart-app" | "reset" | "reboot" as action:
            return action, catalog_xid.severity
        case "replace":
            return "replace-node", catalog_xid.severity
        case _:
            return "none", catalog_xid.severity


def _sxids(inventory: Inventory, events: Sequence[SxidEvent]) -> Iterator[Finding]:
    """Yield one finding per SXid number and GPU on the switches, with the last event: NVIDIA resets them together."""
    from paddock.catalog.xids import sxids

    counts = Counter(event.code for event in events)
    joined = [gpu for gpu in inventory.gpus if gpu.nvlinks]
    for code, event in {event.code: event for event in events}.items():
        known = sxids().get(code)
        action, severity = _sxid_response(event.fatal, known)
        repeats = f", {counts[code]} times" if counts[code] > 1 else ""
        when = f" at {event.at:%Y-%m-%dT%H:%M:%S%z}" if event.at else ""
        fatal = "fatal" if event.fatal else "not fatal"
        evidence = f"NVSwitch {event.pci_address}: SXid {code} ({fatal}){repeats}{when}: {one_line(event.about)}"
        if severity == "note" or not joined:
            yield Finding(f"sxid-{code}", severity, action, evidence)
        else:
            yield from (_finding(gpu, f"sxid-{code}", severity, action, evidence) for gpu in joined)


def _sxid_response(fatal: bool, known: Sxid | None) -> tuple[Action, Severity]:
    if fatal:
        return (known.action if known else "reset"), "unhealthy"
    return (known.action, "degraded") if known and known.severity == "degraded" else ("none", "note")


def _evidence(gpu: Gpu) -> Iterator[Finding]:
    """Yield where a fault would not show: the calls that tell of faults failed, or this driver has none of them."""
    facts = (gpu.recovery_action, gpu.ecc.uncorrected, gpu.remapped, gpu.retired_pages, gpu.throttle)
    if gpu.unread:
        names = ", ".join(_UNREAD.get(name, name) for name in gpu.unread)
        yield _finding(gpu, "unread", "unknown", "none", f"faults would not show: the driver fails to tell {names}")
    elif all(fact is None for fact in (*facts, gpu.temperature.gpu)):
        yield _finding(gpu, NO_EVIDENCE, "unknown", "none", "its driver reports nothing that would show a fault")


def _memory(gpu: Gpu) -> Iterator[Finding]:
    ecc, rows = gpu.ecc, gpu.remapped
    if ecc.uncorrected is not None and ecc.uncorrected > thresholds.UNCORRECTED.value:
        evidence = f"{ecc.uncorrected} uncorrectable memory errors since the driver was loaded"
        yield _finding(gpu, "ecc-uncorrected", "unhealthy", "reset", evidence, "reset it; when they return, replace it")
    if (
        ecc.aggregate_sram_uncorrected is not None
        and ecc.aggregate_sram_uncorrected > thresholds.SRAM_UNCORRECTED.value
    ):
        evidence = f"{ecc.aggregate_sram_uncorrected} uncorrectable errors in the chip's own memory in its life"
        yield _finding(gpu, "sram-uncorrected", "unhealthy", "replace-node", evidence)
    if ecc.aggregate_uncorrected:
        yield _finding(
            gpu, "ecc-lifetime", "note", "none", f"{ecc.aggregate_uncorrected} uncorrectable errors in its life"
        )
    if rows and rows.failed:
        yield _finding(gpu, "remap-failed", "unhealthy", "replace-node", "a faulty row of memory found no spare row")
    elif rows and rows.uncorrectable > thresholds.REMAPPED_UNCORRECTED.value:
        evidence = f"{rows.uncorrectable} rows were replaced after uncorrectable errors"
        yield _finding(gpu, "remapped-many", "unhealthy", "replace-node", evidence)
    if rows and rows.pending:
        yield _finding(
            gpu, "remap-pending", "degraded", "reset", "a faulty row of memory is replaced at the next reset"
        )


def _retired_pages(gpu: Gpu) -> Iterator[Finding]:
    pages = gpu.retired_pages or 0
    if gpu.retirement_pending:
        yield _finding(
            gpu, "retirement-pending", "degraded", "reset", "a faulty page of memory is retired at the next reset"
        )
    if pages >= thresholds.RETIRED_PAGES.value:
        yield _finding(gpu, "retired-pages", "unhealthy", "replace-node", f"{pages} pages of memory are retired")
    elif pages >= thresholds.RETIRED_PAGES_SOON.value:
        yield _finding(gpu, "retired-pages", "note", "none", f"{pages} pages of memory are retired")


def _clocks(gpu: Gpu) -> Iterator[Finding]:
    reasons = gpu.throttle or ()
    degrees = f", {gpu.temperature.gpu} °C" if gpu.temperature.gpu is not None else ""
    margin = gpu.temperature.margin
    if "hardware-power-brake" in reasons:
        evidence = "the power brake is on: the machine's supply gives less than it needs"
        yield _finding(gpu, "power-brake", "degraded", "none", evidence, "look at power supplies and the rack's limit")
    if "hardware-thermal" in reasons or "software-thermal" in reasons:
        evidence = f"it slows itself down because it is hot{degrees}"
        yield _finding(
            gpu, "thermal", "degraded", "none", evidence, "look at fans and airflow; a cloud replaces the node"
        )
    elif margin is not None and margin <= thresholds.MARGIN.value:
        yield _finding(gpu, "thermal", "degraded", "none", f"it is at its temperature limit{degrees}")
    elif "hardware-slowdown" in reasons and "hardware-power-brake" not in reasons:
        yield _finding(gpu, "hardware-slowdown", "degraded", "none", f"its hardware slows it down{degrees}")


def _modes(gpu: Gpu) -> Iterator[Finding]:
    if gpu.compute_mode == "prohibited":
        fix = f"nvidia-smi -i {gpu.uuid} -c DEFAULT"
        yield _finding(gpu, "compute-prohibited", "degraded", "none", "its compute mode lets no program use it", fix)
    if gpu.persistence is False:
        fix = f"nvidia-smi -i {gpu.uuid} -pm 1, or the service nvidia-persistenced"
        yield _finding(
            gpu, "persistence-off", "note", "none", "each first program waits for the driver to start it", fix
        )
    if gpu.mig and gpu.mig.pending != gpu.mig.enabled:
        mode = "on" if gpu.mig.pending else "off"
        yield _finding(gpu, "mig-pending", "degraded", "reset", f"MIG goes {mode} at the next reset")


def _pcie(gpu: Gpu, inventory: Inventory, context: HealthContext) -> Iterator[Finding]:
    """Check the width only: an idle link lowers its generation."""
    link = gpu.pcie
    if link.width and link.max_width and link.width < link.max_width:
        evidence = f"its PCIe link has {link.width} of {link.max_width} lanes"
        if link.width < (required_lanes(gpu, inventory) or 0):
            yield _finding(gpu, "pcie-width", "degraded", "reboot", evidence, "reboot; when it stays, replace it")
        else:
            yield _finding(gpu, "pcie-width", "note", "none", f"{evidence}, which is usual for it")
    if not link.replays:
        return
    allowed = thresholds.replays_per_minute(link.max_generation or 0, link.max_width or 0)
    if allowed is not None and context.uptime and link.replays > allowed * max(1.0, context.uptime / 60):
        evidence = f"its PCIe link repeated {link.replays} packets, more than {allowed} a minute since boot"
        yield _finding(gpu, "pcie-replays", "degraded", "replace-node", evidence)


def required_lanes(gpu: Gpu, inventory: Inventory) -> int | None:
    """Return the lanes of PCIe that a GPU must have, None where nobody says.

    A card that is not in the catalogue may sit in a narrow slot, unless others of the same model have more.
    """
    from paddock.gpu.catalog_match import catalog_entry

    widest = gpu.pcie.max_width
    if widest is None:
        return None
    if narrow := thresholds.NARROWEST_PCIE.get(gpu.pci_device_id or ""):
        return min(widest, int(narrow.value))
    if catalog_entry(gpu):
        return widest
    return max(other.pcie.width or 0 for other in inventory.gpus if other.name == gpu.name)


def _processes(gpu: Gpu, context: HealthContext) -> Iterator[Finding]:
    processes = gpu.processes if context.idle else None
    if processes:
        names = ", ".join(f"{process.name or 'pid'} ({process.pid})" for process in processes[:3])
        more = f" and {len(processes) - 3} more" if len(processes) > 3 else ""
        yield _finding(gpu, "leftover", "degraded", "restart-app", f"still in use by {names}{more}", "end them")


def _nvlinks(inventory: Inventory) -> Iterator[Finding]:
    linked = [gpu for gpu in inventory.usable if gpu.nvlinks]
    best = max((sum(link.active for link in gpu.nvlinks) for gpu in linked), default=0)
    if linked and not best and len(linked) > 1:
        yield Finding("nvlink-off", "note", "none", "no NVLink of any GPU is active")
    for gpu in linked:
        down = [link.link for link in gpu.nvlinks if not link.active]
        usual = max(sum(link.active for link in other.nvlinks) for other in linked if other.name == gpu.name)
        if len(gpu.nvlinks) - len(down) < usual:
            numbers = ", ".join(map(str, down))
            yield _finding(
                gpu, "nvlink-inactive", "degraded", "reset", f"{len(down)} NVLinks are not active ({numbers})"
            )
        errors = [link for link in gpu.nvlinks if (link.errors or 0) >= thresholds.NVLINK_ERRORS.value]
        if errors:
            counts = ", ".join(f"link {link.link}: {link.errors}" for link in errors)
            yield _finding(
                gpu, "nvlink-errors", "degraded", "reset", f"NVLink errors since the driver was loaded ({counts})"
            )


def _machine(inventory: Inventory, context: HealthContext) -> Iterator[Finding]:
    from paddock.gpu.catalog_match import catalog_entry

    present = len(inventory.gpus)  # includes lost GPUs, which have their own findings
    reason = f": {inventory.reason}" if inventory.reason and not inventory.gpus else ""
    if context.expect is not None and present < context.expect:
        evidence = f"{present} of {context.expect} GPUs are here{reason}"
        yield Finding("count", "unhealthy", "reboot", evidence, "reboot; when they stay away, replace the node")
    elif not inventory.gpus and context.expect is None:
        yield Finding("no-gpu", "unknown", "none", inventory.reason or "there is no GPU")
    elif context.expect is not None and present > context.expect:
        yield Finding("count", "note", "none", f"{present} GPUs are here, and {context.expect} were expected")
    names = sorted({gpu.name for gpu in inventory.usable if gpu.name})
    if len(names) > 1:
        yield Finding("mixed", "note", "none", f"the GPUs are of different models: {', '.join(names)}")
    if context.expect_model:
        for gpu in inventory.usable:
            model = catalog_entry(gpu)
            if model and model.key != context.expect_model:
                evidence = f"it is a {gpu.name}, and {context.expect_model} was expected"
                yield _finding(gpu, "model", "unhealthy", "replace-node", evidence)
    if context.fabric_manager is False:
        evidence = "the GPUs are on NVSwitches, and the fabric manager does not run: CUDA may not start (error 802)"
        fix = "systemctl restart nvidia-fabricmanager, of the driver's own version"
        yield Finding("fabric-manager", "degraded", "reboot", evidence, fix)
