"""Text of the actions on GPUs for people. Plain columns: a table library would cost more than reading the GPUs does."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paddock.gpu.host.processes import Owner
from paddock.gpu.model import Gpu, Inventory, MigDevice, Pair

if TYPE_CHECKING:
    from paddock.gpu.health.check import Health
    from paddock.gpu.health.cuda import Compatibility
    from paddock.gpu.monitoring.summary import Summary
    from paddock.gpu.render import Rendered
    from paddock.gpu.reset import Plan, Result

_NEAR = {
    "same-board": "PIX",
    "pcie-switch": "PIX",
    "pcie-switches": "PXB",
    "host-bridge": "PHB",
    "numa-node": "NODE",
    "system": "SYS",
}
"""As nvidia-smi writes them."""
_LEGEND = "NVn: n NVLinks  PIX: one PCIe switch  PXB: several  PHB: one CPU  NODE: one NUMA node  SYS: between CPUs"
UNKNOWN = "-"

Ways = Mapping[tuple[int, int], Pair]
"""Each pair of GPUs both ways round, by index."""


def listing(inventory: Inventory) -> Iterator[str]:
    """Yield one line a GPU, and one a part of it."""
    if not inventory.gpus:
        yield inventory.reason or "no GPU was found"
    else:
        yield head(inventory)
        rows: list[tuple[str, ...]] = [("#", "GPU", "memory in MiB", "use", "°C", "watt", "UUID")]
        for gpu in inventory.gpus:
            rows += [_row(gpu), *map(_part_row, gpu.mig.devices if gpu.mig else ())]
        yield from columns(rows, right=(2, 3, 4, 5))
    yield from notes(inventory)


def head(inventory: Inventory) -> str:
    """Count of the GPUs, and their driver."""
    count, driver = len(inventory.gpus), inventory.driver
    lost = sum(gpu.state != "ok" for gpu in inventory.gpus)
    parts = [f"{count} GPU{'' if count == 1 else 's'}{f', {lost} of them not usable' if lost else ''}"]
    if driver:
        parts += [f"driver {driver.version}", *([f"CUDA {driver.cuda}"] if driver.cuda else [])]
    return "   ".join((*parts, inventory.machine.name))


def notes(inventory: Inventory) -> Iterator[str]:
    for note in inventory.notes:
        yield f"note: {note}"


def left_out(inventory: Inventory) -> Iterator[str]:
    """Yield the GPUs that a table of the usable ones omits."""
    for gpu in inventory.gpus:
        if gpu.state != "ok":
            yield f"GPU {gpu.index} is not usable: {gpu.state}: {gpu.reason or 'no reason is known'}"


def _row(gpu: Gpu) -> tuple[str, ...]:
    name = gpu.name or gpu.pci_address or "unknown"
    if gpu.state != "ok":
        return (str(gpu.index), f"{name}: {gpu.state}: {gpu.reason or 'no reason is known'}")
    memory = f"{gpu.memory.used} / {gpu.memory.total}" if gpu.memory else UNKNOWN
    watt = f"{_of(gpu.power.draw)} / {_of(gpu.power.limit)}"
    use, degrees = _of(gpu.utilisation.gpu, " %"), _of(gpu.temperature.gpu)
    return (str(gpu.index), name, memory, use, degrees, watt, gpu.uuid or UNKNOWN)


def _part_row(part: MigDevice) -> tuple[str, ...]:
    memory = f"{part.memory.used} / {part.memory.total}" if part.memory else UNKNOWN
    return ("", f"  {part.profile}", memory, UNKNOWN, UNKNOWN, UNKNOWN, part.uuid)


def details(gpu: Gpu) -> Iterator[str]:
    """Return the details of one GPU, without unknown values."""
    yield f"GPU {gpu.index}: {gpu.name or 'unknown'}"
    if gpu.state != "ok":
        yield f"  {gpu.state}: {gpu.reason or 'no reason is known'}"
    for label, value in _facts(gpu):
        if value:
            yield f"  {label:<22}{value}"


def _facts(gpu: Gpu) -> Iterator[tuple[str, str]]:
    yield "UUID", gpu.uuid or ""
    yield "PCI", " ".join(filter(None, (gpu.pci_address, gpu.pci_device_id)))
    yield "serial", gpu.serial or ""
    yield "architecture", " ".join(filter(None, (gpu.architecture, gpu.compute_capability)))
    yield "cores", _optional(gpu.cores)
    if gpu.memory:
        reserved = f", {gpu.memory.reserved} reserved" if gpu.memory.reserved is not None else ""
        yield "memory", f"{gpu.memory.used} of {gpu.memory.total} MiB used, {gpu.memory.free} free{reserved}"
    power = gpu.power
    yield "power", f"{_of(power.draw)} of {_of(power.limit)} W" if power.draw is not None or power.limit else ""
    if power.min_limit is not None and power.max_limit is not None:
        limits = f"{_of(power.min_limit)} to {_of(power.max_limit)} W"
        yield "power limits", f"{limits}, by default {_of(power.default_limit)}"
    yield "clocks", _pair(gpu.clocks.sm, gpu.clocks.max_sm, "MHz")
    yield "memory clock", _pair(gpu.clocks.memory, gpu.clocks.max_memory, "MHz")
    if gpu.throttle is not None:
        yield "slowed by", ", ".join(gpu.throttle) or "nothing"
    yield "temperature", _optional(gpu.temperature.gpu, " °C")
    yield "memory temperature", _optional(gpu.temperature.memory, " °C")
    yield "until it slows down", _optional(gpu.temperature.margin, " °C")
    yield "in use", _optional(gpu.utilisation.gpu, " % of the time")
    ecc = gpu.ecc
    if ecc.enabled is not None:
        errors = f", {_of(ecc.uncorrected)} uncorrected since the driver's start, {_of(ecc.aggregate_uncorrected)} ever"
        yield "ECC", f"on{errors}" if ecc.enabled else "off"
    if rows := gpu.remapped:
        flags = f"{', one waits for a reset' if rows.pending else ''}{', no spare left' if rows.failed else ''}"
        yield "remapped rows", f"{rows.correctable} correctable, {rows.uncorrectable} uncorrectable{flags}"
    yield "driver asks for", gpu.recovery_action if gpu.recovery_action not in (None, "none") else ""
    pcie = gpu.pcie
    if pcie.max_width:
        now = f"generation {_of(pcie.generation)} x{_of(pcie.width)}"
        yield "PCIe", f"{now}, at best generation {_of(pcie.max_generation)} x{pcie.max_width}"
    if gpu.nvlinks:
        yield "NVLink", f"{sum(link.active for link in gpu.nvlinks)} of {len(gpu.nvlinks)} links active"
    yield "NUMA node", _optional(gpu.numa_node)
    yield "near CPUs", ranges(gpu.cpus)
    yield "compute mode", gpu.compute_mode or ""
    yield "persistence", "" if gpu.persistence is None else "on" if gpu.persistence else "off"
    if gpu.mig:
        changes = "" if gpu.mig.pending == gpu.mig.enabled else ", changes with the next reset"
        yield "MIG", f"{'on' if gpu.mig.enabled else 'off'}{changes}"
        for part in gpu.mig.devices:
            yield f"  {part.profile}", part.uuid
    yield "VBIOS", gpu.vbios or ""


def info(inventory: Inventory, gpus: Sequence[Gpu]) -> Iterator[str]:
    """Details of these GPUs, or why there are none."""
    if not gpus:
        yield from listing(inventory)
    for number, gpu in enumerate(gpus):
        yield from ("", *details(gpu)) if number else details(gpu)


def memory(inventory: Inventory) -> Iterator[str]:
    """MiB of each GPU, and of each of its MIG parts."""
    if not inventory.usable:
        yield from listing(inventory)
        return
    rows: list[tuple[str, ...]] = [("#", "GPU", "total", "used", "free", "reserved")]
    for gpu in inventory.usable:
        parts = gpu.mig.devices if gpu.mig else ()
        for number, name, sizes_of in (
            (str(gpu.index), gpu.name or "", gpu.memory),
            *(("", f"{part.profile} {part.uuid}", part.memory) for part in parts),
        ):
            sizes = (sizes_of.total, sizes_of.used, sizes_of.free, sizes_of.reserved) if sizes_of else (None,) * 4
            rows.append((number, name, *(_of(size) for size in sizes)))
    yield from columns(rows, right=(2, 3, 4, 5))
    yield "MiB. What the driver keeps for itself is reserved, not used."
    yield from left_out(inventory)


def processes(inventory: Inventory) -> Iterator[str]:
    """Processes on each GPU."""
    if not inventory.usable:
        yield from listing(inventory)
        return
    unread = [gpu.index for gpu in inventory.usable if gpu.processes is None]
    rows = [
        (
            str(gpu.index),
            str(process.pid),
            process.kind,
            _of(process.memory),
            process.user or UNKNOWN,
            process.name or UNKNOWN,
        )
        for gpu in inventory.usable
        for process in gpu.processes or ()
    ]
    if rows:
        yield from columns([("#", "pid", "kind", "MiB", "user", "name"), *rows], right=(1, 3))
    elif len(unread) < len(inventory.usable):
        yield "no process is on any GPU"
    if unread:
        yield f"unknown for GPU {', '.join(map(str, unread))}: its processes could not be read"
    yield from left_out(inventory)
    yield from notes(inventory)


def cuda(inventory: Inventory, compatibility: Compatibility) -> Iterator[str]:
    """Driver, toolkit, and whether they and the GPUs fit."""
    if inventory.driver:
        speaks = f", speaks CUDA {inventory.driver.cuda}" if inventory.driver.cuda else ""
        yield f"driver   {inventory.driver.version}{speaks}"
    if inventory.toolkit:
        yield f"toolkit  {inventory.toolkit.version} in {inventory.toolkit.path}"
    yield f"{compatibility.verdict}: {compatibility.why}"
    yield from (f"    fix: {fix.text}" for fix in compatibility.fixes)


def health(health: Health) -> Iterator[str]:
    """Verdict on the machine and its findings."""
    yield f"{health.machine} is {health.verdict}" + ("" if health.action == "none" else f": {health.action}")
    for finding in health.findings:
        where = f"GPU {finding.index}" if finding.index is not None else "machine"
        yield f"  {finding.severity}  {where}  {finding.id}: {finding.evidence.removeprefix(f'{where}: ')}"
        if finding.fix:
            yield f"    fix: {finding.fix}"
    for text in health.unchecked:
        yield f"  not checked: {text}"


def summary(summary: Summary) -> Iterator[str]:
    """Result of sampling the GPUs."""
    yield f"{summary.samples} samples in {summary.seconds:.0f} s{f': {summary.ended}' if summary.ended else ''}"
    for gpu in summary.gpus:
        spreads = (f"{item.metric} {item.mean:.0f} (at most {item.max:.0f}) {item.unit}" for item in gpu.metrics)
        energy = "" if gpu.energy is None else f", {gpu.energy / 3600:.1f} Wh"
        yield f"GPU {gpu.index}: {', '.join(spreads)}{energy}"
    for insight in summary.insights:
        yield f"{insight.severity}: {insight.text}"


def reset_plan(plan: Plan) -> Iterator[str]:
    """Steps of a reset that was not done, or why it would be refused."""
    yield from [f"refused: {why}" for why in plan.refused] or [step.what for step in plan.steps]
    yield from (f"note: {note}" for note in plan.notes)
    if not plan.refused:
        yield "nothing was done; --yes does it"


def reset_result(result: Result) -> Iterator[str]:
    """Outcome of each step of a reset."""
    for outcome in result.outcomes:
        yield f"{'done' if outcome.code == 0 else f'failed ({outcome.code})'}: {outcome.step}"


def files(rendered: Rendered) -> Iterator[str]:
    """Rendered files; the path of each stands above it where there are several."""
    for number, file in enumerate(rendered.files):
        if len(rendered.files) > 1:
            yield f"{'' if not number else chr(10)}# {file.path}"
        yield file.text.removesuffix("\n")


def environment(document: Mapping[str, Any]) -> Iterator[str]:
    """Commands that start an ML environment."""
    lease = f", lease {document['lease']['id']}" if document["lease"] else ""
    yield f"# {', '.join(document['gpus'])}{lease}"
    if document["seen"]:
        yield f"# started; {document['seen']['why']}"
    yield from (shlex.join(command) for command in document["commands"])
    yield from document["exports"].splitlines()
    if document["target"] == "kubernetes":
        yield "\n---\n".join(file["text"].strip() for file in document["files"])


def leases(document: Mapping[str, Any]) -> Iterator[str]:
    """Leases with their owners and GPUs, and the requests that wait, the next one first."""
    if not document["leases"]:
        yield f"no GPU is leased ({document['folder']})"
    rows = [("lease", "state", "user", "pids", "share", "GPUs", "command")]
    for lease in document["leases"]:
        pids = ", ".join(str(Owner(**owner)).removeprefix("pid ") for owner in lease["owners"]) or UNKNOWN
        share = "alone" if lease["share"] is None else f"{lease['share']:g}"
        uuids = ", ".join(device["uuid"] for device in lease["devices"])
        rows.append((lease["id"], lease["state"], lease["user"], pids, share, uuids, lease["command"] or UNKNOWN))
    if document["leases"]:
        yield from columns(rows)
    if document["waiting"]:
        waiting = [("waiting", "GPUs", "priority", "user", "pid", "command")]
        for entry in document["waiting"]:
            numbers = (str(entry["gpus"]), str(entry["priority"]))
            waiting.append((entry["id"], *numbers, entry["user"], str(entry["pid"]), entry["command"] or UNKNOWN))
        yield ""
        yield from columns(waiting)


def topology(inventory: Inventory) -> Iterator[str]:
    """Connections between the GPUs: the matrix, then the picture."""
    if not inventory.usable:
        yield from listing(inventory)
        return
    gpus = inventory.usable
    ways = {(pair.a, pair.b): pair for pair in inventory.pairs} | {(pair.b, pair.a): pair for pair in inventory.pairs}
    rows = [("", *(f"GPU{gpu.index}" for gpu in gpus), "NUMA", "near CPUs")]
    for gpu in gpus:
        cells = ("X" if gpu is other else connection(ways.get((gpu.index, other.index))) for other in gpus)
        rows.append((f"GPU{gpu.index}", *cells, _of(gpu.numa_node), ranges(gpu.cpus) or UNKNOWN))
    yield from columns(rows)
    yield ""
    yield _LEGEND
    yield ""
    yield from picture(gpus, ways)
    yield from left_out(inventory)
    yield from notes(inventory)


def connection(pair: Pair | None) -> str:
    """`NV18`, `PHB`; `?` where nobody knows."""
    if pair is None:
        return "?"
    return f"NV{pair.nvlinks}" if pair.nvlinks else _NEAR.get(pair.closeness or "", "?")


def picture(gpus: Sequence[Gpu], ways: Ways) -> Iterator[str]:
    """NUMA nodes, what shares a PCIe switch in them, and islands of NVLink."""
    numbers = [gpu.index for gpu in gpus]
    at = {gpu.index: gpu.numa_node for gpu in gpus}
    for node in sorted(set(at.values()), key=lambda number: -1 if number is None else number):
        here = [number for number in numbers if at[number] == node]
        yield f"NUMA node {node}" if node is not None else "NUMA node unknown"
        switches = _groups(here, ways, lambda pair: pair.closeness in ("same-board", "pcie-switch"))
        for switch in switches:
            joined = " ── ".join(f"[GPU{number}]" for number in switch)
            yield f"  {'└' if switch is switches[-1] else '├'}─ {'switch ' if len(switch) > 1 else ''}{joined}"
    islands = [group for group in _groups(numbers, ways, lambda pair: pair.nvlinks > 0) if len(group) > 1]
    for island in islands:
        yield f"NVLink island: GPU {', '.join(map(str, island))}"
    if not islands and len(numbers) > 1:
        yield "no NVLink between these GPUs"


def _groups(numbers: Iterable[int], ways: Ways, joined: Callable[[Pair], bool]) -> list[list[int]]:
    """Return the groups of GPUs that are connected, directly or through others."""
    groups: list[list[int]] = []
    for number in numbers:
        pairs = {other: ways.get((number, other)) for group in groups for other in group}
        near = {other for other, pair in pairs.items() if pair is not None and joined(pair)}
        own = [group for group in groups if near & set(group)]
        merged = sorted([number, *(other for group in own for other in group)])
        groups = [*(group for group in groups if group not in own), merged]
    return sorted(groups)


def columns(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> Iterator[str]:
    """Rows as aligned lines. A row that ends early is as wide as it likes."""
    whole = [row for row in rows if len(row) == len(rows[0])]
    widths = [max(len(row[index]) for row in whole) for index in range(len(rows[0]))]
    for row in rows:
        last = len(row) - 1 if len(row) < len(widths) else len(widths)
        cells = (
            cell if index == last else cell.rjust(widths[index]) if index in right else cell.ljust(widths[index])
            for index, cell in enumerate(row)
        )
        yield "  ".join(cells).rstrip()


def ranges(numbers: Sequence[int]) -> str:
    """`0-23,48-71`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _of(value: float | None, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{value:.0f}{unit}"


def _optional(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.0f}{unit}"


def _pair(now: int | None, best: int | None, unit: str) -> str:
    return "" if now is None else f"{now} {unit}" + ("" if best is None else f" of {best}")
