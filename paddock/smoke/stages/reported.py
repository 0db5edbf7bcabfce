"""Tier 1: what driver and kernel report, judged by the health rules that leases and `gpu.health` go by."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from paddock.gpu.catalog_match import catalog_entry
from paddock.gpu.health.check import Health
from paddock.gpu.health.cuda import Compatibility
from paddock.gpu.health.rules import Action, Finding
from paddock.gpu.model import Gpu, Inventory
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


def evaluate(
    inventory: Inventory, health: Health, compatibility: Compatibility, fraction: float = 1.0
) -> tuple[StageResult, ...]:
    """Return at least one result of each stage: one for each finding, or one that says what was seen.

    `fraction` is the part of each GPU that the machine was given.
    """
    results = list(from_findings(health))
    if not inventory.gpus:
        results = results or [StageResult("inventory", 1, "skip", inventory.reason or _NO_GPU)]
        return (*results, *(StageResult(stage, 1, "skip", _NO_GPU) for stage in STAGES[1:]))
    results += _memory(inventory, fraction)
    results += _driver(inventory, compatibility)
    for stage, evidence in _passed(inventory, health).items():
        if all(result.stage != stage for result in results):
            results.append(StageResult(stage, 1, "pass", evidence))
    results += [StageResult("health", 1, "skip", f"not checked: {reason}") for reason in health.unchecked]
    return tuple(sorted(results, key=lambda result: STAGES.index(result.stage)))


def unfit(results: tuple[StageResult, ...]) -> dict[str, str]:
    """Return the evidence by UUID for GPUs that failed: a stage that works such a GPU could hang the machine."""
    return {result.gpu: result.evidence for result in results if result.gpu and result.status == "fail"}


def from_findings(health: Health) -> Iterator[StageResult]:
    """Yield a result for each finding that is more than a note."""
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


def links_after_load(before: Inventory, after: Inventory, uuids: Collection[str]) -> tuple[StageResult, ...]:
    """Return what load did to the NVLinks of these GPUs: a link that is lost, or errors that were not there."""
    linked = [gpu for gpu in before.usable if gpu.uuid in uuids and any(link.active for link in gpu.nvlinks)]
    if not linked:
        return (StageResult("nvlink", 3, "skip", "no NVLink is active", "all", inapplicable=True),)
    results = [result for gpu in linked for result in _changed_links(gpu, after.gpu(gpu.uuid or ""))]
    count = sum(link.active for gpu in linked for link in gpu.nvlinks)
    passed = StageResult("nvlink", 3, "pass", f"{count} NVLinks are active after the load, without a new error", "all")
    return tuple(results) or (passed,)


def _changed_links(before: Gpu, after: Gpu | None) -> Iterator[StageResult]:
    def result(status: Status, evidence: str, action: Action, fix: str) -> StageResult:
        return StageResult(
            "nvlink", 3, status, f"GPU {before.index}: {evidence}", before.uuid, before.index, action, fix
        )

    if after is None or after.state != "ok":
        yield result("fail", "it is lost after the load", "reboot", "reboot; when it is lost again, replace it")
        return
    now = {link.link: link for link in after.nvlinks}
    down = [link.link for link in before.nvlinks if link.active and not (link.link in now and now[link.link].active)]
    if down:
        numbers = ", ".join(map(str, down))
        evidence = f"{len(down)} NVLinks went down under load ({numbers})"
        yield result("warn", evidence, "reset", "reset the GPUs together")
    new = {
        link.link: (now[link.link].errors or 0) - (link.errors or 0)
        for link in before.nvlinks
        if link.link in now and now[link.link].errors is not None and link.errors is not None
    }
    if errors := {link: count for link, count in new.items() if count > 0}:
        counts = ", ".join(f"link {link}: {count}" for link, count in errors.items())
        yield result("warn", f"NVLink errors under load ({counts})", "reset", "when they return, replace the node")


def _memory(inventory: Inventory, fraction: float) -> Iterator[StageResult]:
    """Yield GPUs with less memory than their model has."""
    for gpu in inventory.usable:
        model = catalog_entry(gpu)
        if model and gpu.memory and gpu.memory.total < model.memory_mib * fraction * (1 - MEMORY_TOLERANCE):
            given = f"{fraction:g} of {model.name} is" if fraction < 1 else f"{model.name} has"
            evidence = f"GPU {gpu.index}: {gpu.memory.total} MiB of memory, {given} {model.memory_mib * fraction:.0f}"
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
            runs = f"driver {compatibility.driver} runs all of CUDA {compatibility.newest}"
            evidence = f"{runs}; no toolkit is in CUDA_HOME or /usr/local/cuda"
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
