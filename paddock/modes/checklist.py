"""Checklists of desktop, server and hybrid deployments: each item is judged, or said to be a person's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from paddock.gpu.model import Gpu
from paddock.modes.config import DEPLOYMENTS, PRESETS, VARIABLE, Deployment
from paddock.modes.policy import Policy

Status = Literal["pass", "warn", "fail", "unknown", "person"]
"""`unknown` could not be read here; `person` is what no program can say."""

_QUANTISED = ("int4", "int8", "q4_0", "q8_0")
_LOW_UTILISATION, _TARGET_UTILISATION = 20, 80
"""Per cent: the alert, and the lower end of the target on servers."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a checklist: what is asked, the evidence and what to do."""

    what: str
    status: Status
    evidence: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Checked:
    """A checklist with its answers."""

    deployment: Deployment
    source: str
    """The policy's origin: a file or the environment."""
    items: tuple[Item, ...]

    @property
    def failed(self) -> bool:
        return any(item.status == "fail" for item in self.items)


@dataclass(frozen=True, slots=True)
class Situation:
    """Everything that a checklist is judged by. `gpus` are None where they were not read."""

    policy: Policy
    source: str
    dtype: str | None = None
    """Type of the weights that will be served."""
    gpus: Sequence[Gpu] | None = None


def check(deployment: Deployment, situation: Situation) -> Checked:
    """Judge every item of a deployment's checklist."""
    items = {"desktop": _desktop, "server": _server, "hybrid": _hybrid}[deployment]
    return Checked(deployment, situation.source, tuple(items(situation)))


def _desktop(situation: Situation) -> Iterator[Item]:
    yield _preset("desktop", situation)
    yield _throttling(situation, on=True)
    yield _vram(situation, 0.5, 0.6, less_is_fine=True)
    yield _priority(situation, 12, 15, more_is_fine=True)
    yield _quantised(situation)
    yield _person("Monitor user feedback on desktop responsiveness", "ask those who work on the machine")
    yield _person(
        "Test with typical desktop workloads (browser, IDE, etc.)",
        "work on the machine while `./inv bench.load` sends requests",
    )


def _server(situation: Situation) -> Iterator[Item]:
    yield _preset("server", situation)
    yield _throttling(situation, on=False)
    yield _vram(situation, 0.9, 0.95, less_is_fine=False)
    yield _priority(situation, 0, 0, more_is_fine=False)
    yield _utilisation(situation)
    yield _person("Load test with peak expected traffic", "`./inv bench.load URL --rate R` with the peak's rate")
    yield _person(
        "Set up metrics/alerting for resource exhaustion",
        "`./inv serve.check --alerts` prints the rules for Prometheus; load them there",
    )


def _hybrid(situation: Situation) -> Iterator[Item]:
    yield _preset("hybrid", situation)
    yield _throttling(situation, on=True)
    yield _interval(situation, 50, 75)
    yield _vram(situation, 0.7, 0.7, less_is_fine=True)
    yield _priority(situation, 8, 10, more_is_fine=True)
    yield _person(
        "Monitor both inference performance and desktop impact",
        "`./inv serve.check --alerts` watches the first; ask those who work on the machine about the second",
    )
    yield _schedule(situation)


def _preset(deployment: Deployment, situation: Situation) -> Item:
    mode = DEPLOYMENTS[deployment]
    what, own = f"Use the mode {mode}", situation.policy.resources
    different = [name for name, value in PRESETS[mode].model_dump().items() if getattr(own, name) != value]
    if not different:
        return Item(what, "pass", f"{situation.source}: the values of {mode}")
    values = ", ".join(f"{name} {getattr(own, name)}" for name in different)
    if situation.policy.mode == mode:
        return Item(what, "warn", f"{situation.source}: {mode}, but {values}", "keep what your measurements show")
    fix = f"set {VARIABLE}={deployment}, or write mode: {mode}"
    return Item(what, "fail", f"{situation.source}: {situation.policy.mode}", fix)


def _throttling(situation: Situation, *, on: bool) -> Item:
    what = "Enable auto-throttling" if on else "Disable auto-throttling for maximum throughput"
    enabled = situation.policy.resources.enable_auto_throttle
    status: Status = "pass" if enabled == on else "fail"
    fix = "" if enabled == on else f"enable_auto_throttle: {str(on).lower()}"
    return Item(what, status, f"enable_auto_throttle is {str(enabled).lower()}", fix)


def _interval(situation: Situation, low: int, high: int) -> Item:
    value = situation.policy.resources.min_request_interval_ms
    what, fits = f"Leave {low}-{high} ms between requests", low <= value <= high
    fix = "" if fits else f"min_request_interval_ms: {low}"
    return Item(what, "pass" if fits else "fail", f"min_request_interval_ms is {value}", fix)


def _vram(situation: Situation, low: float, high: float, *, less_is_fine: bool) -> Item:
    value = situation.policy.resources.max_vram_usage_percent
    span = f"{low:.0%}-{high:.0%}" if low != high else f"{low:.0%}"
    what, evidence = f"Set max VRAM to {span}", f"max_vram_usage_percent is {value:g}"
    if low - 1e-9 <= value <= high + 1e-9:
        return Item(what, "pass", evidence)
    if value < low and less_is_fine:
        return Item(what, "pass", f"{evidence}, less than asked")
    return Item(what, "fail", evidence, f"max_vram_usage_percent: {high:g}")


def _priority(situation: Situation, low: int, high: int, *, more_is_fine: bool) -> Item:
    value = situation.policy.resources.process_priority
    what = f"Set process priority to {low}-{high}" if low != high else f"Set normal process priority ({low})"
    evidence = f"process_priority is {value} (nice: the higher, the lower the priority)"
    if low <= value <= high:
        return Item(what, "pass", evidence)
    if value > high and more_is_fine:
        return Item(what, "pass", f"{evidence}, lower than asked")
    return Item(what, "fail", evidence, f"process_priority: {high}")


def _quantised(situation: Situation) -> Item:
    what, fix = "Use INT4/INT8 quantization if possible", "--dtype int4 or int8, for the model that will be served"
    if situation.dtype is None:
        return Item(what, "unknown", "no --dtype says how the weights are kept", fix)
    if situation.dtype.lower() in _QUANTISED:
        return Item(what, "pass", f"{situation.dtype} weights")
    return Item(what, "warn", f"{situation.dtype} weights", "serve int4 or int8 weights where their quality is enough")


def _utilisation(situation: Situation) -> Item:
    what = "Monitor GPU utilization (target 80-95%)"
    read = [gpu.utilisation.gpu for gpu in situation.gpus or () if gpu.utilisation.gpu is not None]
    if not read:
        return Item(what, "unknown", "no GPU here says how busy it is", "check on the server, under load")
    evidence = ", ".join(f"{value} %" for value in read) + " now"
    if min(read) >= _TARGET_UTILISATION:
        return Item(what, "pass", evidence)
    fix = "check again under load; with load, raise the batch or the limits"
    return Item(what, "warn" if min(read) >= _LOW_UTILISATION else "unknown", evidence, fix)


def _schedule(situation: Situation) -> Item:
    what = "Consider time-based scheduling (aggressive at night, conservative during day)"
    if situation.policy.schedule:
        windows = ", ".join(f"{window.mode} {window.start}-{window.end}" for window in situation.policy.schedule)
        return Item(what, "pass", windows)
    fix = 'schedule: [{start: "22:00", end: "06:00", mode: aggressive}]'
    return Item(what, "warn", "the same limits at every hour", fix)


def _person(what: str, fix: str) -> Item:
    return Item(what, "person", "no program can tell", fix)
