"""Tiers 2 and 3: how each stage works a device, and what its measurements mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paddock.gpu.model import Gpu, Throttle
from paddock.smoke.stages.limits import Limits
from paddock.smoke.verdict.model import Device, Measurement, StageResult, Tier, judge

_SLOWED: tuple[Throttle, ...] = ("hardware-slowdown", "hardware-thermal", "hardware-power-brake", "software-thermal")
"""Reasons for low clocks that a healthy GPU does not have under load; its power limit is not among them."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: the worker that it runs, its parameters on a GPU and on the processor, and its time limit in seconds."""

    name: str
    tier: Tier
    worker: str
    on_gpu: Mapping[str, Any]
    on_cpu: Mapping[str, Any] | None
    """None for a stage that the processor has no use for."""
    seconds: float
    whole_machine: bool = False
    """It works all GPUs together."""
    watched: bool = False
    """Clocks are sampled while it runs."""


_MIB = 1 << 20
STAGES: tuple[Stage, ...] = (
    Stage("memory", 2, "memory",
        {"part": 0.8, "at_most": 8192 * _MIB}, {"part": 0.25, "at_most": 512 * _MIB}, 40),
    Stage("compute", 2, "gemm",
        {"size": 8192, "warm_up": 20, "repeats": 30}, {"size": 1024, "warm_up": 2, "repeats": 5}, 40),
    Stage("bandwidth", 2, "transfer",
        {"size": 256 * _MIB, "repeats": 5}, {"size": 256 * _MIB, "repeats": 5}, 30),
    Stage("throttling", 2, "load",
        {"size": 8192, "seconds": 5.0}, {"size": 1024, "seconds": 3.0}, 40, watched=True),
    Stage("peers", 3, "peers", {"size": 256 * _MIB, "repeats": 5}, None, 120, whole_machine=True),
    Stage("all-reduce", 3, "allreduce",
        {"size": 256 * _MIB, "repeats": 20}, {"size": 16 * _MIB, "repeats": 5, "ranks": 2}, 120, whole_machine=True),
    Stage("soak", 3, "load", {"size": 8192, "seconds": 600.0}, {"size": 1024, "seconds": 600.0}, 700, watched=True),
)  # fmt: skip
"""In the order in which a device does them."""


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


def judge_document(
    stage: Stage, device: Device, document: Mapping[str, Any], limits: Limits, watched: Watched, seconds: float
) -> StageResult:
    """Return the result for the document of the stage's worker."""
    if "error" in document:
        return fault(stage, device, str(document["error"]), seconds)
    if wrong := _wrong(stage, document):
        return fault(stage, device, wrong, seconds)
    measurements, evidence, checksum = _measurements(stage, device, document, limits, watched)
    result = judge(stage.name, stage.tier, device, measurements, evidence=evidence, checksum=checksum, seconds=seconds)
    slowed = {reason: part for reason, part in watched.throttle.items() if reason in _SLOWED}
    if stage.watched and slowed and result.status != "fail":
        reason, part = max(slowed.items(), key=lambda item: item[1])
        text = f"clocks were lowered in {part:.0%} of the samples: {reason.replace('-', ' ')}"
        return replace(result, status="warn", evidence=text, fix="look at cooling and power; a cloud replaces the node")
    return result


def fault(stage: Stage, device: Device, evidence: str, seconds: float, *, fix: str = "") -> StageResult:
    """Return the failure of a stage whose device gave a wrong result or none."""
    fix = fix or "reset the GPU, and run the test again; when it fails again, replace the node"
    return StageResult(
        stage.name, stage.tier, "fail", evidence, device.uuid, device.index, "reset", fix, seconds=seconds
    )


def compare_checksums(results: Sequence[StageResult], models: Mapping[str, str]) -> list[StageResult]:
    """Fail the GPUs whose exact result differs from that of most of the same model; `models` has names by UUID."""
    checked = [result for result in results if result.checksum and result.gpu]
    changed = {}
    for name in {models.get(result.gpu or "", "") for result in checked}:
        group = [result for result in checked if models.get(result.gpu or "", "") == name]
        sums = [result.checksum for result in group]
        usual = max(sums, key=sums.count)
        for result in group:
            if result.checksum != usual:
                evidence = f"checksum {result.checksum}, other GPUs of this model have {usual}"
                changed[id(result)] = replace(
                    result, status="fail", evidence=evidence, action="replace-node", fix="replace the node"
                )
    return [changed.get(id(result), result) for result in results]


def _wrong(stage: Stage, document: Mapping[str, Any]) -> str:
    wrong = document.get("wrong", 0) or sum(pair["wrong"] for pair in document.get("pairs", ()))
    if not wrong:
        return ""
    match stage.worker:
        case "memory":
            name, first = next((name, fault["first"]) for name, fault in document["faults"].items())
            words = ", ".join(map(str, first))
            return f"{wrong} of {document['bytes'] // 8} words did not keep {name}; the first ones: {words}"
        case "gemm" | "load":
            return f"{wrong} columns of a matrix product are wrong: the GPU computes wrong results"
        case _:
            return f"{wrong} bytes or numbers arrived changed"


def _measurements(
    stage: Stage, device: Device, document: Mapping[str, Any], limits: Limits, watched: Watched
) -> tuple[list[Measurement], str, str | None]:
    match stage.worker:
        case "memory":
            return [], f"{document['bytes'] / 2**30:.1f} GiB kept five patterns", None
        case "gemm":
            values = [limits.measurement("gemm_tflops", document["tflops"], f"{document['precision']} products")]
            return values, "", document["checksum"]
        case "transfer":
            values = [limits.measurement("memory_gbs", document["memory_gbs"], "memory")]
            for key, name in (("to_device_gbs", "host to device"), ("to_host_gbs", "device to host")):
                if key in document:
                    values.append(limits.pcie(name, document[key], device.pcie_generation, device.pcie_lanes))
            return values, "", None
        case "load":
            return _steady(stage, document, watched), "", None
        case "allreduce":
            name = f"all-reduce of {document['ranks']}"
            of_eight = limits.measurement("allreduce_gbs", document["busbw_gbs"], name)
            return [of_eight if document["ranks"] == 8 else Measurement(name, of_eight.value, of_eight.unit)], "", None
        case _:
            pairs = document["pairs"]
            slowest = min(pairs, key=lambda pair: pair["gbs"])
            name = f"slowest of {len(pairs)} pairs ({slowest['from']} to {slowest['to']})"
            return [Measurement(name, slowest["gbs"], "GB/s")], "", None


STEADY = 0.85
"""Part of its first speed that a GPU keeps under load: more is lost to heat than a healthy one loses (Paddock)."""


def _steady(stage: Stage, document: Mapping[str, Any], watched: Watched) -> list[Measurement]:
    rates = document["tflops"]
    middle = len(rates) // 2 or 1
    first, last = max(rates[:middle]), sorted(rates[middle:] or rates)[len(rates[middle:] or rates) // 2]
    on_gpu = watched.samples > 0
    return [
        Measurement("products under load", last, "TFLOP/s"),
        Measurement("speed kept", 100 * last / first, "%", STEADY * 100 if on_gpu else None, None, "Paddock"),
    ]
