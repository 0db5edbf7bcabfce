"""Everything about each GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.console.report import Report
from paddock.gpu import serialization
from paddock.gpu.model import Gpu, Inventory
from paddock.gpu.views.gpus import amount, listing, state


@dataclass(frozen=True, kw_only=True)
class DetailsView(Report):
    """All details of `gpus`, which are some of the machine's or all."""

    SCHEMA = 1
    inventory: Inventory
    gpus: tuple[Gpu, ...]

    def text(self) -> Iterator[str]:
        if not self.gpus:
            yield from listing(self.inventory)
        for number, gpu in enumerate(self.gpus):
            yield from ("", *_lines(gpu)) if number else _lines(gpu)

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, "reason": self.inventory.reason, "gpus": serialization.data(self.gpus)}


def _lines(gpu: Gpu) -> Iterator[str]:
    """Yield the details of one GPU, without unknown values."""
    yield f"GPU {gpu.index}: {gpu.name or 'unknown'}"
    if gpu.state != "ok":
        yield f"  {state(gpu)}"
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
    yield "power", f"{amount(power.draw)} of {amount(power.limit)} W" if power.draw is not None or power.limit else ""
    if power.min_limit is not None and power.max_limit is not None:
        limits = f"{amount(power.min_limit)} to {amount(power.max_limit)} W"
        yield "power limits", f"{limits}, by default {amount(power.default_limit)}"
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
        since_start = f"{amount(ecc.uncorrected)} uncorrected since the driver's start"
        errors = f", {since_start}, {amount(ecc.aggregate_uncorrected)} ever"
        yield "ECC", f"on{errors}" if ecc.enabled else "off"
    if rows := gpu.remapped:
        flags = f"{', one waits for a reset' if rows.pending else ''}{', no spare left' if rows.failed else ''}"
        yield "remapped rows", f"{rows.correctable} correctable, {rows.uncorrectable} uncorrectable{flags}"
    yield "driver asks for", gpu.recovery_action if gpu.recovery_action not in (None, "none") else ""
    pcie = gpu.pcie
    if pcie.max_width:
        now = f"generation {amount(pcie.generation)} x{amount(pcie.width)}"
        yield "PCIe", f"{now}, at best generation {amount(pcie.max_generation)} x{pcie.max_width}"
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


def ranges(numbers: Sequence[int]) -> str:
    """`0-23,48-71`."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def _optional(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:.0f}{unit}"


def _pair(now: int | None, best: int | None, unit: str) -> str:
    return "" if now is None else f"{now} {unit}" + ("" if best is None else f" of {best}")
