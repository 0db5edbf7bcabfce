"""Tier 1: what driver and kernel report, judged by the health rules that leases and `gpu.health` go by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paddock.gpu.catalog_match import catalog_entry
from paddock.gpu.health.check import Health
from paddock.gpu.health.cuda import Compatibility
from paddock.gpu.health.rules import Finding
from paddock.gpu.model import Inventory
from paddock.smoke.verdict.model import StageResult, Status

MEMORY_TOLERANCE = 0.07
"""Part of its nominal memory that a GPU may lack: NVML reports up to 7 % less (gpus.json, notes)."""

_STAGE_OF_FINDING: Mapping[str, str] = {
    **dict.fromkeys(("count", "mixed", "model", "no-gpu", "lost", "unreadable", "mig-pending"), "inventory"),
    **dict.fromkeys(("pcie-width", "pcie-replays", "nvlink-off", "nvlink-inactive", "nvlink-errors"), "links"),
    "fabric-manager": "links",
    "leftover": "processes",
}
"""Every other finding belongs to the stage `health`."""
_NO_GPU = "there is no GPU"
STAGES = ("inventory", "driver", "health", "links", "processes")


def evaluate(inventory: Inventory, health: Health, compatibility: Compatibility) -> tuple[StageResult, ...]:
    """Return at least one result of each stage: one for each finding, or one that says what was seen."""
    results = list(_from_findings(health))
    if not inventory.gpus:
        results = results or [StageResult("inventory", 1, "skip", inventory.reason or _NO_GPU)]
        return (*results, *(StageResult(stage, 1, "skip", _NO_GPU) for stage in STAGES[1:]))
    results += _memory(inventory)
    results += _driver(inventory, compatibility)
    for stage, evidence in _passed(inventory, health).items():
        if all(result.stage != stage for result in results):
            results.append(StageResult(stage, 1, "pass", evidence))
    results += [StageResult("health", 1, "skip", f"not checked: {reason}") for reason in health.unchecked]
    return tuple(sorted(results, key=lambda result: STAGES.index(result.stage)))


def unfit(results: tuple[StageResult, ...]) -> dict[str, str]:
    """Return the evidence by UUID for GPUs that failed: a stage that works such a GPU could hang the machine."""
    return {result.gpu: result.evidence for result in results if result.gpu and result.status == "fail"}


def _from_findings(health: Health) -> Iterator[StageResult]:
    for finding in health.findings:
        if finding.severity != "note" and finding.id != "no-gpu":
            yield StageResult(
                _STAGE_OF_FINDING.get(finding.id, "health"),
                1,
                _status(finding),
                finding.evidence,
                finding.gpu,
                finding.index,
                finding.action,
                finding.fix,
            )


def _status(finding: Finding) -> Status:
    if finding.disqualifies:
        return "fail"
    return "skip" if finding.severity == "unknown" else "warn"


def _memory(inventory: Inventory) -> Iterator[StageResult]:
    """Yield GPUs with less memory than their model has."""
    for gpu in inventory.usable:
        model = catalog_entry(gpu)
        if model and gpu.memory and gpu.memory.total < model.memory_mib * (1 - MEMORY_TOLERANCE):
            evidence = f"GPU {gpu.index}: {gpu.memory.total} MiB of memory, {model.name} has {model.memory_mib}"
            fix = "replace it; a part of its memory is missing"
            yield StageResult("inventory", 1, "fail", evidence, gpu.uuid, gpu.index, "replace-node", fix)


def _driver(inventory: Inventory, compatibility: Compatibility) -> Iterator[StageResult]:
    match compatibility.verdict:
        case "ok" | "minor-version":
            yield StageResult("driver", 1, "pass", f"driver {compatibility.driver}: {compatibility.why}")
        case "needs-compat" | "impossible":
            fix = compatibility.fixes[0].text if compatibility.fixes else ""
            yield StageResult("driver", 1, "fail", compatibility.why, fix=fix)
        case "unknown" if compatibility.toolkit is None and compatibility.newest:
            evidence = f"driver {compatibility.driver} runs all of CUDA {compatibility.newest}; no toolkit is here"
            yield StageResult("driver", 1, "pass", evidence)
        case "unknown":
            yield StageResult("driver", 1, "skip", compatibility.why)


def _passed(inventory: Inventory, health: Health) -> dict[str, str]:
    names = sorted({gpu.name or "unnamed" for gpu in inventory.gpus})
    links = sum(link.active for gpu in inventory.gpus for link in gpu.nvlinks)
    processes = [gpu.processes for gpu in inventory.usable]
    texts = {
        "inventory": f"{len(inventory.gpus)} x {', '.join(names)}",
        "health": "no fault is reported",
        "links": f"PCIe at full width{f', {links} NVLinks active' if links else ''}",
    }
    if None not in processes:
        texts["processes"] = "no program is left on the GPUs"
    return texts
