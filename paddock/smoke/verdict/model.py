"""Results of stages and the verdict on a machine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from paddock.gpu.health.rules import ACTIONS, Action

SCHEMA = 1
NOT_TESTED = 5
"""Exit code where there is no GPU to test; pytest's, where there is no test."""
Status = Literal["pass", "skip", "warn", "fail"]
STATUSES: tuple[Status, ...] = ("pass", "skip", "warn", "fail")
"""From good to bad: what was not tested says less than what passed."""
Tier = Literal[1, 2, 3]


@dataclass(frozen=True, slots=True)
class Measurement:
    """A measured value with its limits; more is better. None is a limit that is not known, and fails nothing."""

    name: str
    value: float
    unit: str
    warn: float | None = None
    fail: float | None = None
    source: str = ""
    """Source of the limits."""

    @property
    def status(self) -> Status:
        if self.fail is not None and self.value < self.fail:
            return "fail"
        return "warn" if self.warn is not None and self.value < self.warn else "pass"


@dataclass(frozen=True, slots=True)
class PairSpeed:
    """Copy from one GPU to another, by their indexes, in GB/s. `direct`: without a detour through the host."""

    source: int
    target: int
    gbs: float
    direct: bool
    floor: float | None = None
    """Speed below which it is slow for its connection."""


@dataclass(frozen=True, slots=True)
class StageResult:
    """Result of one stage for a GPU, or for the machine where `gpu` is None.

    `evidence` says what was seen; `action` is what ends the fault and `fix` describes it. `seconds` is wall time.
    """

    stage: str
    tier: Tier
    status: Status
    evidence: str
    gpu: str | None = None
    """UUID; `cpu` for the CPU."""
    index: int | None = None
    action: Action = "none"
    fix: str = ""
    measurements: tuple[Measurement, ...] = ()
    checksum: str | None = None
    """Of an exact result: the same on every GPU that computes correctly."""
    seconds: float = 0.0
    pairs: tuple[PairSpeed, ...] = ()
    """Every copy between two GPUs, of the stage that makes them."""
    inapplicable: bool = False
    """It was skipped because this machine has nothing for it to test."""


@dataclass(frozen=True, slots=True)
class SmokeDevice:
    """GPU, part of one, or the CPU, that the stages tested."""

    uuid: str
    name: str
    index: int | None = None
    model: str | None = None
    """Key in the catalogue, whose limits hold; None for other models and for parts."""
    pcie_generation: int | None = None
    """The newest that card and slot both have: an idle link shows less."""
    pcie_lanes: int | None = None
    """Those that it must have, or more where it has more. None where no limit holds."""


@dataclass(frozen=True, slots=True)
class MachineVerdict:
    """Verdict on a machine: the worst status of all stages, and the strongest action that they ask for."""

    taken_at: str
    """ISO 8601, UTC."""
    machine: str
    tier: Tier
    devices: tuple[SmokeDevice, ...]
    stages: tuple[StageResult, ...]
    notes: tuple[str, ...] = ()
    complete: bool = True
    """False where the test was interrupted."""
    no_gpu: str = ""
    """Why no GPU was tested: the machine has none, and nobody asked to test the CPU."""
    schema: int = SCHEMA

    @property
    def verdict(self) -> Status:
        """Return the worst status; a stage that was skipped counts only where none passed."""
        statuses = {stage.status for stage in self.stages}
        ranked: tuple[Status, ...] = ("fail", "warn", "pass", "skip")
        return next((status for status in ranked if status in statuses), "skip")

    @property
    def action(self) -> Action:
        return max((stage.action for stage in self.stages), key=ACTIONS.index, default="none")

    @property
    def untested(self) -> tuple[StageResult, ...]:
        """Stages that work a device and could not run, although there is something for them to test."""
        return tuple(
            stage for stage in self.stages if stage.tier > 1 and stage.status == "skip" and not stage.inapplicable
        )

    def exit_code(self, *, strict: bool = False, must_run: bool = False) -> int:
        """Return 0 where the machine may take jobs, 1 where it may not; 130 for a test that was interrupted.

        5 where there was no GPU to test, unless one should have been there. With `strict` a warning is a failure, and
        so is a test that tested nothing; with `must_run` a stage that could not run is one.
        """
        if not self.complete:
            return 130
        if self.no_gpu and self.verdict != "fail":
            return NOT_TESTED
        if must_run and self.untested:
            return 1
        return int(self.verdict == "fail" or (strict and self.verdict in ("warn", "skip")))


def worst(statuses: Iterable[Status]) -> Status:
    return max(statuses, key=STATUSES.index, default="pass")


def judge(
    stage: str,
    tier: Tier,
    device: SmokeDevice,
    measurements: Sequence[Measurement],
    *,
    evidence: str = "",
    checksum: str | None = None,
    seconds: float = 0.0,
) -> StageResult:
    """Return the result that measurements give; the worst of them is the evidence where one is below a limit."""
    status = worst(measurement.status for measurement in measurements)
    if status != "pass":
        evidence = "; ".join(describe(measurement) for measurement in measurements if measurement.status == status)
    return StageResult(
        stage,
        tier,
        status,
        evidence or ", ".join(f"{measurement.name} {amount(measurement)}" for measurement in measurements),
        device.uuid,
        device.index,
        "replace-node" if status == "fail" else "none",
        "run it again on the idle machine; when it stays slow, replace it" if status != "pass" else "",
        tuple(measurements),
        checksum,
        seconds,
    )


def describe(measurement: Measurement) -> str:
    """Return a measurement below a limit in words."""
    limit = measurement.fail if measurement.status == "fail" else measurement.warn
    return f"{measurement.name} {amount(measurement)}, below {limit:g}"


def amount(measurement: Measurement) -> str:
    digits = 3 if measurement.value < 1000 else 4
    return f"{measurement.value:.{digits}g} {measurement.unit}"
