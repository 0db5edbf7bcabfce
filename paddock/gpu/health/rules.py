"""The rules of health: each looks at what is known and says what it found, with the evidence and one action.

Nothing is read here. A rule whose facts are not known stays silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from paddock.gpu.health import thresholds
from paddock.gpu.health.xid import XidEvent
from paddock.gpu.model import Gpu, Inventory, RecoveryAction

Severity = Literal["note", "degraded", "unknown", "unhealthy"]
"""From the least; a note changes no verdict."""
Action = Literal["none", "restart-app", "reset", "reboot", "replace-node"]
"""From the least. What a reset is to bring back, a reboot brings back too, and so on."""
ACTIONS: tuple[Action, ...] = ("none", "restart-app", "reset", "reboot", "replace-node")

_DRIVER: dict[RecoveryAction, tuple[Severity, Action, str]] = {
    "none": ("note", "none", ""),
    "gpu-reset": ("unhealthy", "reset", "reset the GPU"),
    "node-reboot": ("unhealthy", "reboot", "reboot the machine"),
    "drain-p2p": ("degraded", "restart-app", "end the programs that read other GPUs' memory"),
    "drain-and-reset": ("degraded", "reset", "let its work end, then reset the GPU"),
    "recover-imex": ("unhealthy", "reboot", "restart the service nvidia-imex on all machines of its domain"),
    "bus-reset": ("unhealthy", "reset", "reset the GPU by its bus"),
    "system-reboot": ("unhealthy", "reboot", "switch the machine off and on"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """`gpu` is a UUID; None with an `index` is a GPU that does not tell it, and None alone is the machine."""

    id: str
    severity: Severity
    action: Action
    evidence: str
    fix: str = ""
    gpu: str | None = None
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Around:
    """What the rules need beside the inventory; None is not known, or not asked."""

    expect: int | None = None
    expect_model: str | None = None
    """A key of the catalogue, `h100`."""
    uptime: float | None = None
    """Seconds since boot."""
    fabric_manager: bool | None = None
    """Whether it runs."""
    idle: bool = False
    """Nothing should be running on the GPUs."""


NOTHING_ELSE = Around()


def findings(inventory: Inventory, events: Sequence[XidEvent], around: Around) -> tuple[Finding, ...]:
    """What every rule says: the driver's own word, then Xids, then counters, then the machine."""
    found: list[Finding] = []
    for gpu in inventory.gpus:
        found += _driver(gpu)
    found += _xids(inventory, events)
    for gpu in inventory.gpus:
        if gpu.state == "ok":
            for rule in (_memory, _retired, _clocks, _modes):
                found += rule(gpu)
            found += _pcie(gpu, inventory, around)
            found += _processes(gpu, around)
    found += _nvlinks(inventory)
    found += _machine(inventory, around)
    return tuple(found)


def _of(gpu: Gpu, id: str, severity: Severity, action: Action, evidence: str, fix: str = "") -> Finding:
    return Finding(id, severity, action, f"GPU {gpu.index}: {evidence}", fix, gpu.uuid, gpu.index)


def _driver(gpu: Gpu) -> Iterator[Finding]:
    asks = gpu.recovery_action
    if asks and asks != "none":
        severity, action, fix = _DRIVER[asks]
        yield _of(gpu, "driver-asks", severity, action, f"the driver asks for {asks}", fix)
    why = gpu.reason or "no reason is told"
    if gpu.state == "lost":
        action = _DRIVER[asks][1] if asks else "reboot"
        yield _of(gpu, "lost", "unhealthy", action, f"it is lost: {why}", "reboot; when it is lost again, replace it")
    elif gpu.state == "unreadable" and not (asks and asks != "none"):
        yield _of(gpu, "unreadable", "unknown", "none", f"it cannot be read: {why}")


def _xids(inventory: Inventory, events: Sequence[XidEvent]) -> Iterator[Finding]:
    """One finding for each number on each GPU, with the last event's words."""
    from paddock.catalog.xids import xid

    at = {gpu.pci_address: gpu for gpu in inventory.gpus if gpu.pci_address}
    times = Counter((event.pci_address, event.code) for event in events)
    last = {(event.pci_address, event.code): event for event in events}
    for (place, code), event in last.items():
        gpu, known = at.get(place), xid(code)
        if code == 154 and gpu and gpu.recovery_action is not None:
            continue  # what the driver asks for now is known, and that was then
        action, severity = _asked(event)
        what = known.what if known else "no source says what it means: ask NVIDIA's support"
        often = f", {times[place, code]} times" if times[place, code] > 1 else ""
        when = f" at {event.at:%Y-%m-%dT%H:%M:%S%z}" if event.at else ""
        evidence = f"Xid {code}{often}{when}: {what}"
        if gpu and gpu.recovery_action and action in {"reset", "reboot"}:
            allowed = _DRIVER[gpu.recovery_action][1]
            if ACTIONS.index(allowed) < ACTIONS.index(action):
                action, severity = ("restart-app", "degraded") if allowed == "none" else (allowed, severity)
                now = "nothing any more" if allowed == "none" else gpu.recovery_action
                evidence += f"; the driver now asks for {now}"
        if gpu:
            yield _of(gpu, f"xid-{code}", severity, action, evidence)
        else:
            yield Finding(f"xid-{code}", severity, action, f"GPU at {place}, which is not here: {evidence}")


def _asked(event: XidEvent) -> tuple[Action, Severity]:
    from paddock.catalog.xids import xid

    known = xid(event.code)
    if known is None:
        return "none", "degraded"
    match known.then or known.action:
        case "driver":
            severity, action, _ = _DRIVER[event.recovery_action or "none"]
            return action, severity
        case "restart-app" | "reset" | "reboot" as action:
            return action, known.severity
        case "replace":
            return "replace-node", known.severity
        case _:
            return "none", known.severity


def _memory(gpu: Gpu) -> Iterator[Finding]:
    ecc, rows = gpu.ecc, gpu.remapped
    if ecc.uncorrected is not None and ecc.uncorrected > thresholds.UNCORRECTED.value:
        evidence = f"{ecc.uncorrected} uncorrectable memory errors since the driver was loaded"
        yield _of(gpu, "ecc-uncorrected", "unhealthy", "reset", evidence, "reset it; when they return, replace it")
    if (
        ecc.aggregate_sram_uncorrected is not None
        and ecc.aggregate_sram_uncorrected > thresholds.SRAM_UNCORRECTED.value
    ):
        evidence = f"{ecc.aggregate_sram_uncorrected} uncorrectable errors in the chip's own memory in its life"
        yield _of(gpu, "sram-uncorrected", "unhealthy", "replace-node", evidence)
    if ecc.aggregate_uncorrected:
        yield _of(gpu, "ecc-lifetime", "note", "none", f"{ecc.aggregate_uncorrected} uncorrectable errors in its life")
    if rows and rows.failed:
        yield _of(gpu, "remap-failed", "unhealthy", "replace-node", "a faulty row of memory found no spare row")
    elif rows and rows.uncorrectable > thresholds.REMAPPED_UNCORRECTED.value:
        evidence = f"{rows.uncorrectable} rows were replaced after uncorrectable errors"
        yield _of(gpu, "remapped-many", "unhealthy", "replace-node", evidence)
    if rows and rows.pending:
        yield _of(gpu, "remap-pending", "degraded", "reset", "a faulty row of memory is replaced at the next reset")


def _retired(gpu: Gpu) -> Iterator[Finding]:
    pages = gpu.retired_pages or 0
    if gpu.retirement_pending:
        yield _of(
            gpu, "retirement-pending", "degraded", "reset", "a faulty page of memory is retired at the next reset"
        )
    if pages >= thresholds.RETIRED_PAGES.value:
        yield _of(gpu, "retired-pages", "unhealthy", "replace-node", f"{pages} pages of memory are retired")
    elif pages >= thresholds.RETIRED_PAGES_SOON.value:
        yield _of(gpu, "retired-pages", "note", "none", f"{pages} pages of memory are retired")


def _clocks(gpu: Gpu) -> Iterator[Finding]:
    reasons = gpu.throttle or ()
    degrees = f", {gpu.temperature.gpu} °C" if gpu.temperature.gpu is not None else ""
    margin = gpu.temperature.margin
    if "hardware-power-brake" in reasons:
        evidence = "the power brake is on: the machine's supply gives less than it needs"
        yield _of(gpu, "power-brake", "degraded", "none", evidence, "look at power supplies and the rack's limit")
    if "hardware-thermal" in reasons or "software-thermal" in reasons:
        evidence = f"it slows itself down because it is hot{degrees}"
        yield _of(gpu, "thermal", "degraded", "none", evidence, "look at fans and airflow; a cloud replaces the node")
    elif margin is not None and margin <= thresholds.MARGIN.value:
        yield _of(gpu, "thermal", "degraded", "none", f"it is at its temperature limit{degrees}")
    elif "hardware-slowdown" in reasons and "hardware-power-brake" not in reasons:
        yield _of(gpu, "hardware-slowdown", "degraded", "none", f"its hardware slows it down{degrees}")


def _modes(gpu: Gpu) -> Iterator[Finding]:
    if gpu.compute_mode == "prohibited":
        fix = f"nvidia-smi -i {gpu.uuid} -c DEFAULT"
        yield _of(gpu, "compute-prohibited", "degraded", "none", "its compute mode lets no program use it", fix)
    if gpu.persistence is False:
        fix = f"nvidia-smi -i {gpu.uuid} -pm 1, or the service nvidia-persistenced"
        yield _of(gpu, "persistence-off", "note", "none", "each first program waits for the driver to start it", fix)
    if gpu.mig and gpu.mig.pending != gpu.mig.enabled:
        wanted = "on" if gpu.mig.pending else "off"
        yield _of(gpu, "mig-pending", "degraded", "reset", f"MIG goes {wanted} at the next reset")


def _pcie(gpu: Gpu, inventory: Inventory, around: Around) -> Iterator[Finding]:
    """The width alone: the generation goes down whenever the link is idle."""
    link = gpu.pcie
    if link.width and link.max_width and link.width < link.max_width:
        evidence = f"its PCIe link has {link.width} of {link.max_width} lanes"
        if link.width < _lanes(gpu, link.max_width, inventory):
            yield _of(gpu, "pcie-width", "degraded", "reboot", evidence, "reboot; when it stays, replace it")
        else:
            yield _of(gpu, "pcie-width", "note", "none", f"{evidence}, which is usual for it")
    if not link.replays:
        return
    allowed = thresholds.replays_per_minute(link.max_generation or 0, link.max_width or 0)
    if allowed is not None and around.uptime and link.replays > allowed * max(1.0, around.uptime / 60):
        evidence = f"its PCIe link repeated {link.replays} packets, more than {allowed} a minute since boot"
        yield _of(gpu, "pcie-replays", "degraded", "replace-node", evidence)


def _lanes(gpu: Gpu, best: int, inventory: Inventory) -> int:
    """That the GPU must have: a card of no catalogue may sit in a narrow slot, unless its like here have more."""
    from paddock.gpu.catalog_match import known

    if narrow := thresholds.NARROWEST_PCIE.get(gpu.pci_device_id or ""):
        return min(best, int(narrow.value))
    if known(gpu):
        return best
    return max(one.pcie.width or 0 for one in inventory.gpus if one.name == gpu.name)


def _processes(gpu: Gpu, around: Around) -> Iterator[Finding]:
    left = gpu.processes if around.idle else None
    if left:
        names = ", ".join(f"{one.name or 'pid'} ({one.pid})" for one in left[:3])
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        yield _of(gpu, "leftover", "degraded", "restart-app", f"still in use by {names}{more}", "end them")


def _nvlinks(inventory: Inventory) -> Iterator[Finding]:
    linked = [gpu for gpu in inventory.usable if gpu.nvlinks]
    best = max((sum(link.active for link in gpu.nvlinks) for gpu in linked), default=0)
    if linked and not best and len(linked) > 1:
        yield Finding("nvlink-off", "note", "none", "no NVLink of any GPU is active")
    for gpu in linked:
        down = [link.link for link in gpu.nvlinks if not link.active]
        like = max(sum(link.active for link in one.nvlinks) for one in linked if one.name == gpu.name)
        if len(gpu.nvlinks) - len(down) < like:
            numbers = ", ".join(map(str, down))
            yield _of(gpu, "nvlink-inactive", "degraded", "reset", f"{len(down)} NVLinks are not active ({numbers})")
        errors = [link for link in gpu.nvlinks if (link.errors or 0) >= thresholds.NVLINK_ERRORS.value]
        if errors:
            told = ", ".join(f"link {link.link}: {link.errors}" for link in errors)
            yield _of(gpu, "nvlink-errors", "degraded", "reset", f"NVLink errors since the driver was loaded ({told})")


def _machine(inventory: Inventory, around: Around) -> Iterator[Finding]:
    from paddock.gpu.catalog_match import known

    here = len(inventory.gpus)  # with the lost, which have findings of their own
    why = f": {inventory.reason}" if inventory.reason and not inventory.gpus else ""
    if around.expect is not None and here < around.expect:
        evidence = f"{here} of {around.expect} GPUs are here{why}"
        yield Finding("count", "unhealthy", "reboot", evidence, "reboot; when they stay away, replace the node")
    elif not inventory.gpus and around.expect is None:
        yield Finding("no-gpu", "unknown", "none", inventory.reason or "there is no GPU")
    elif around.expect is not None and here > around.expect:
        yield Finding("count", "note", "none", f"{here} GPUs are here, and {around.expect} were expected")
    names = sorted({gpu.name for gpu in inventory.usable if gpu.name})
    if len(names) > 1:
        yield Finding("mixed", "note", "none", f"the GPUs are not alike: {', '.join(names)}")
    if around.expect_model:
        for gpu in inventory.usable:
            model = known(gpu)
            if model and model.key != around.expect_model:
                evidence = f"it is a {gpu.name}, and {around.expect_model} was expected"
                yield _of(gpu, "model", "unhealthy", "replace-node", evidence)
    if around.fabric_manager is False:
        evidence = "the GPUs are on NVSwitches, and the fabric manager does not run: CUDA may not start (error 802)"
        fix = "systemctl restart nvidia-fabricmanager, of the driver's own version"
        yield Finding("fabric-manager", "degraded", "reboot", evidence, fix)
