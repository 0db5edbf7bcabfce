"""Prometheus metrics under the names of DCGM exporter, so that its dashboards work.

The text format is written here: the client library keeps its own registry of values, and these are one inventory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from paddock.gpu.health.check import VERDICTS, Health
from paddock.gpu.health.xid import Event
from paddock.gpu.model import Gpu, Inventory, Memory, Throttle

_BITS = {name: 1 << bit for bit, name in enumerate(get_args(Throttle))}
"""Bit of each reason in the driver's mask."""


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Literal["gauge", "counter"]
    help: str
    of: Callable[[Gpu], float | None]


def _memory(part: Callable[[Memory], int | None]) -> Callable[[Gpu], float | None]:
    return lambda gpu: part(gpu.memory) if gpu.memory else None


METRICS: tuple[Metric, ...] = (
    Metric("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", lambda gpu: gpu.clocks.sm),
    Metric("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", lambda gpu: gpu.clocks.memory),
    Metric("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", lambda gpu: gpu.temperature.memory),
    Metric("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", lambda gpu: gpu.temperature.gpu),
    Metric("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", lambda gpu: gpu.power.draw),
    Metric(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ).",
        lambda gpu: None if gpu.power.energy is None else round(gpu.power.energy * 1000),
    ),
    Metric("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Total number of PCIe retries.", lambda gpu: gpu.pcie.replays),
    Metric("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", lambda gpu: gpu.utilisation.gpu),
    Metric("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", lambda gpu: gpu.utilisation.memory),
    Metric("DCGM_FI_DEV_FB_TOTAL", "gauge", "Framebuffer memory (in MiB).", _memory(lambda memory: memory.total)),
    Metric("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", _memory(lambda memory: memory.free)),
    Metric("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", _memory(lambda memory: memory.used)),
    Metric(
        "DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB).",
        _memory(lambda memory: memory.reserved),
    ),
    Metric(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Total number of single-bit volatile ECC errors.",
        lambda gpu: gpu.ecc.corrected,
    ),
    Metric(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Total number of double-bit volatile ECC errors.",
        lambda gpu: gpu.ecc.uncorrected,
    ),
    Metric(
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter", "Total number of double-bit persistent ECC errors.",
        lambda gpu: gpu.ecc.aggregate_uncorrected,
    ),
    Metric(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Number of remapped rows for uncorrectable errors",
        lambda gpu: gpu.remapped.uncorrectable if gpu.remapped else None,
    ),
    Metric(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Number of remapped rows for correctable errors",
        lambda gpu: gpu.remapped.correctable if gpu.remapped else None,
    ),
    Metric(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether remapping of rows has failed",
        lambda gpu: int(gpu.remapped.failed) if gpu.remapped else None,
    ),
    Metric(
        "DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "Whether remapping of rows is pending",
        lambda gpu: int(gpu.remapped.pending) if gpu.remapped else None,
    ),
    Metric(
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", "Current clock event reasons (bitmask).",
        lambda gpu: None if gpu.throttle is None else sum(_BITS[name] for name in gpu.throttle),
    ),
    Metric("DCGM_FI_DEV_PERSISTENCE_MODE", "gauge", "Persistence mode (0 or 1).",
        lambda gpu: None if gpu.persistence is None else int(gpu.persistence),
    ),
)  # fmt: skip


def render(inventory: Inventory, health: Health | None = None, xids: Iterable[Event] = ()) -> str:
    """Return the metrics in Prometheus's text format, without unknown values; a silent GPU has only its health."""
    lines: list[str] = []
    host = inventory.machine.name
    labels = {gpu.index: _gpu_labels(gpu, host) for gpu in inventory.gpus}
    for metric in METRICS:
        samples = [*_samples(metric, inventory, labels)]
        if samples:
            lines += [*_metric_header(metric.name, metric.kind, metric.help), *samples]
    last_xids = {event.pci_address: event.code for event in xids}
    xid_samples = [
        f"DCGM_FI_DEV_XID_ERRORS{labels[gpu.index]} {last_xids[gpu.pci_address]}"
        for gpu in inventory.gpus
        if gpu.pci_address in last_xids
    ]
    if xid_samples:
        lines += _metric_header("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.")
        lines += xid_samples
    if health:
        lines += _health_states(health, labels, host)
    return "\n".join(lines) + "\n" if lines else ""


def _samples(metric: Metric, inventory: Inventory, labels: dict[int, str]) -> Iterator[str]:
    for gpu in inventory.gpus:
        if gpu.state != "ok":
            continue
        value = metric.of(gpu)
        if value is not None:
            yield f"{metric.name}{labels[gpu.index]} {_number(value)}"
        # Compute instances share their GPU instance's memory, and Prometheus refuses a page with duplicate samples.
        parts = {part.gpu_instance: part for part in gpu.mig.devices} if gpu.mig and "_FB_" in metric.name else {}
        for part in parts.values():
            value_of_part = metric.of(Gpu(gpu.index, part.uuid, gpu.name, gpu.vendor, memory=part.memory))
            if value_of_part is not None:
                part_labels = _gpu_labels(
                    gpu, inventory.machine.name, GPU_I_PROFILE=part.profile, GPU_I_ID=str(part.gpu_instance)
                )
                yield f"{metric.name}{part_labels} {_number(value_of_part)}"


def _health_states(health: Health, labels: dict[int, str], host: str) -> Iterator[str]:
    """Yield a state set: one line per state, 1 for the current one."""
    if health.gpus:
        yield from _metric_header("paddock_gpu_health", "gauge", "Verdict on the GPU: 1 for the state that it is in.")
    for gpu in health.gpus:
        for state in VERDICTS:
            yield f"paddock_gpu_health{_add_labels(labels[gpu.index], state=state)} {int(gpu.verdict == state)}"
    yield from _metric_header("paddock_node_health", "gauge", "Verdict on all GPUs of the machine: 1 for its state.")
    for state in VERDICTS:
        yield f"paddock_node_health{_label_set({'Hostname': host, 'state': state})} {int(health.verdict == state)}"


def _metric_header(name: str, kind: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"


def _gpu_labels(gpu: Gpu, host: str, **more: str) -> str:
    """Return the labels of DCGM exporter. Up to 4.5 it names the host `Hostname`, since then `hostname`."""
    device = f"nvidia{gpu.minor}" if gpu.vendor == "nvidia" and gpu.minor is not None else ""
    address = gpu.pci_address or ""
    return _label_set(
        {
            "gpu": str(gpu.index),
            "UUID": gpu.uuid or "",
            "pci_bus_id": f"0000{address}".upper() if address else "",  # NVML writes eight digits of domain
            "device": device,
            "modelName": gpu.name or "",
            **more,
            "Hostname": host,
            "hostname": host,
        }
    )


def _add_labels(labels: str, **more: str) -> str:
    return f"{labels[:-1]},{_label_set(more)[1:]}"


def _label_set(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(value)
