"""Tiers 2 and 3: what the documents of workers mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paddock.gpu.health.rules import ACTIONS, Action
from paddock.gpu.model import Gpu, Pair, Throttle
from paddock.smoke.stages import pairs as pairs_
from paddock.smoke.stages.limits import Limits
from paddock.smoke.stages.table import LARGE_MESSAGE, Stage
from paddock.smoke.verdict.model import Measurement, SmokeDevice, StageResult, judge

_SLOWED: tuple[Throttle, ...] = ("hardware-slowdown", "hardware-thermal", "hardware-power-brake", "software-thermal")
"""Reasons for low clocks that a healthy GPU does not have under load; its power limit is not among them."""
STEADY = 0.85
"""Part of its first speed that a GPU keeps under load: more is lost to heat than a healthy one loses (Paddock)."""
_RESET = "reset the GPU, and run the test again; when it fails again, replace the node"


@dataclass(frozen=True, slots=True)
class Watched:
    """Samples of a GPU while a stage ran: reasons for low clocks, by their part of the samples."""

    samples: int = 0
    throttle: Mapping[Throttle, float] = field(default_factory=dict)

    @classmethod
    def of(cls, samples: Sequence[Gpu]) -> Watched:
        """Summarise samples of one GPU."""
        reasons = [reason for sample in samples for reason in sample.throttle or ()]
        return cls(len(samples), {reason: reasons.count(reason) / len(samples) for reason in dict.fromkeys(reasons)})


@dataclass(frozen=True, slots=True)
class Together:
    """GPUs that a stage works together: their indexes, in the order of the worker, and how they are connected."""

    indexes: tuple[int, ...] = ()
    topology: tuple[Pair, ...] = ()


def judge_document(
    stage: Stage,
    device: SmokeDevice,
    document: Mapping[str, Any],
    limits: Limits,
    watched: Watched,
    seconds: float,
    together: Together | None = None,
) -> StageResult:
    """Return the result for the document of the stage's worker; one that cannot be read tests nothing."""
    try:
        return _judged(stage, device, document, limits, watched, seconds, together or Together())
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, StopIteration, ZeroDivisionError):
        return unusable(stage, device, "the test program printed a result that cannot be read", "")


def unusable(stage: Stage, device: SmokeDevice, reason: str, fix: str, seconds: float = 0.0) -> StageResult:
    """Return the result of a stage that could not run, for a reason that is not the device's own."""
    return StageResult(stage.name, stage.tier, "skip", reason, device.uuid, device.index, fix=fix, seconds=seconds)


def _judged(
    stage: Stage,
    device: SmokeDevice,
    document: Mapping[str, Any],
    limits: Limits,
    watched: Watched,
    seconds: float,
    together: Together,
) -> StageResult:
    if "unusable" in document:
        return unusable(stage, device, str(document["unusable"]), str(document.get("fix", "")), seconds)
    if "error" in document:
        action, fix = document.get("action"), str(document.get("fix") or _RESET)
        return _fault(stage, device, str(document["error"]), seconds, action if action in ACTIONS else "reset", fix)
    if wrong := _wrong(stage, document):
        return _fault(stage, device, wrong, seconds, "reset", _RESET)
    if stage.worker == "peers":
        return _pairs(stage, device, document, seconds, together)
    measurements, evidence = _measurements(stage, device, document, limits)
    checksum = document.get("checksum")
    result = judge(stage.name, stage.tier, device, measurements, evidence=evidence, checksum=checksum, seconds=seconds)
    slowed = {reason: part for reason, part in watched.throttle.items() if reason in _SLOWED}
    if stage.watched and slowed and result.status != "fail":
        reason, part = max(slowed.items(), key=lambda item: item[1])
        text = f"clocks were lowered in {part:.0%} of the samples: {reason.replace('-', ' ')}"
        return replace(result, status="warn", evidence=text, fix="look at cooling and power; a cloud replaces the node")
    return result


def _fault(stage: Stage, device: SmokeDevice, evidence: str, seconds: float, action: Action, fix: str) -> StageResult:
    return StageResult(
        stage.name, stage.tier, "fail", evidence, device.uuid, device.index, action, fix, seconds=seconds
    )


def _wrong(stage: Stage, document: Mapping[str, Any]) -> str:
    wrong = document.get("wrong", 0) or sum(pair["wrong"] for pair in document.get("pairs", ()))
    match stage.worker:
        case "memory" if wrong:
            name, first = next((name, fault["first"]) for name, fault in document["faults"].items())
            words = ", ".join(map(str, first))
            return f"{wrong} of {document['bytes'] // 8} words did not keep {name}; the first ones: {words}"
        case "gemm" if wrong:
            return f"{wrong} columns of a GEMM are wrong: the GPU computes wrong results"
        case "gemm" if document["checksum"] != document["right_checksum"]:
            right = document["right_checksum"]
            return f"checksum {document['checksum']} of an exact product, {right} is right: it computes wrong results"
        case "load" if wrong:
            return f"{wrong} numbers of a GEMM changed from one run to the next: it computes wrong results"
        case "peers" if wrong:
            apart = [f"{pair['from']} to {pair['to']}" for pair in document["pairs"] if pair["wrong"]]
            return f"{wrong} words arrived changed: {', '.join(apart[:4])}"
        case _ if wrong:
            return f"{wrong} words or numbers arrived changed"
    return ""


def _measurements(
    stage: Stage, device: SmokeDevice, document: Mapping[str, Any], limits: Limits
) -> tuple[list[Measurement], str]:
    match stage.worker:
        case "memory":
            tested, total = document["bytes"], document["total"]
            return [], f"{tested / 2**30:.1f} of {total / 2**30:.1f} GiB ({tested / total:.0%}) kept five patterns"
        case "gemm":
            return [limits.measurement("gemm_tflops", document["tflops"], f"{document['precision']} products")], ""
        case "transfer":
            values = [limits.measurement("memory_gbs", document["memory_gbs"], "memory")]
            for key, name in (("to_device_gbs", "host to device"), ("to_host_gbs", "device to host")):
                if key in document:
                    values.append(limits.pcie(name, document[key], device.pcie_generation, device.pcie_lanes))
            return values, ""
        case "load":
            return _steady(device, document), ""
        case _:
            name = f"all-reduce of {document['ranks']}"
            of_eight = limits.measurement("allreduce_gbs", document["busbw_gbs"], name)
            comparable = document["ranks"] == 8 and document["bytes"] >= LARGE_MESSAGE
            return [of_eight if comparable else Measurement(name, of_eight.value, of_eight.unit)], ""


def _steady(device: SmokeDevice, document: Mapping[str, Any]) -> list[Measurement]:
    rates = document["tflops"]
    middle = len(rates) // 2 or 1
    first, last = max(rates[:middle]), sorted(rates[middle:] or rates)[len(rates[middle:] or rates) // 2]
    return [
        Measurement("products under load", last, "TFLOP/s"),
        Measurement(
            "speed kept", 100 * last / first, "%", STEADY * 100 if device.uuid != "cpu" else None, None, "Paddock"
        ),
    ]


def _pairs(
    stage: Stage, device: SmokeDevice, document: Mapping[str, Any], seconds: float, together: Together
) -> StageResult:
    measured = pairs_.with_floors(pairs_.speeds(document["pairs"], together.indexes), together.topology)
    result = judge(stage.name, stage.tier, device, [pairs_.measurement(measured)], seconds=seconds)
    doubts = [text for text in (pairs_.detours(measured, together.topology), pairs_.slow(measured)) if text]
    if doubts:
        fix = "look at NVLink, the fabric manager and IOMMU; when it stays, replace the node"
        return replace(result, status="warn", evidence="; ".join(doubts), fix=fix, pairs=measured)
    return replace(result, pairs=measured)
