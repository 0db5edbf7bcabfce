"""`smoke`: may this machine take jobs?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.console.command import command
from paddock.console.output import say, write
from paddock.console.parameters import Parameters, parameter
from paddock.console.report import Report
from paddock.duration import Seconds
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.runner.run import Options, run
from paddock.smoke.verdict import baselines, text
from paddock.smoke.verdict.documents import document, junit
from paddock.smoke.verdict.model import SCHEMA as SCHEMA_NUMBER
from paddock.smoke.verdict.model import MachineVerdict, Tier

_TIERS: dict[int, Tier] = {1: 1, 2: 2, 3: 3}


@dataclass(frozen=True, kw_only=True)
class Smoke(Parameters):
    """Parameters of the smoke test."""

    tier: int = parameter(
        2,
        "1 reads what driver and kernel report (a second), 2 works the GPUs (under a minute), 3 also the links"
        " between them, and for ten minutes",
    )
    gpus: tuple[str, ...] = parameter((), "only these GPUs, indexes or UUIDs")
    cpu: bool = parameter(False, "test the CPU in place of GPUs: it shows how the test works")
    expect: str | None = parameter(
        None,
        "the instance type, such as g5.xlarge, or the number of GPUs that should be here; on EC2 by default this"
        " machine's own type",
    )
    soak: float = parameter(600.0, "length of tier 3's steady load", unit=Seconds)
    learn: bool = parameter(False, "keep the speeds of devices that pass; later runs warn below 95 % of them")
    strict: bool = parameter(False, "warnings fail the test too")
    must_run: bool = parameter(False, "a stage of tier 2 or 3 that could not run fails the test too")
    python: str = parameter(
        "", "the Python interpreter that has torch, or numpy for --cpu; by default the one that runs this"
    )
    junit: Path | None = parameter(None, "also write the verdict to this file as JUnit's XML", writes=True)


@dataclass(frozen=True, kw_only=True)
class SmokeReport(Report):
    """The verdict on a machine, and the speeds that were learned from it."""

    SCHEMA = SCHEMA_NUMBER
    result: MachineVerdict
    parameters: Smoke
    learned: tuple[Path, ...] = ()

    @property
    def exit_code(self) -> int:
        return self.result.exit_code(strict=self.parameters.strict, must_run=self.parameters.must_run)

    def document(self) -> dict[str, Any]:
        return document(self.result)

    def text(self) -> Iterator[str]:
        return text.summary(self.result)

    def notes(self) -> Iterator[str]:
        yield from (f"learned {path}" for path in self.learned)
        if self.parameters.learn and not self.learned:
            yield "learned nothing: only devices that pass a stage of tier 2 are kept"
        if self.parameters.must_run and self.result.untested:
            yield "--must-run: it fails, because a stage could not run"


@command(checks_values_first=True)
def smoke(parameters: Smoke) -> SmokeReport:
    """Test this machine, and print each stage as it ends. Raises SmokeInputError, GpuError and OutputError."""
    folder = baselines.default_folder()
    options = Options(
        _tier(parameters.tier),
        parameters.gpus,
        parameters.expect or None,
        _soak(parameters.soak),
        folder,
        parameters.cpu,
        parameters.python,
    )
    result = run(options, lambda stage: say(parameters.json, text.line(stage)))
    if parameters.junit is not None:
        write(parameters.junit, junit(result))
    learned = baselines.learn(folder, result) if parameters.learn else ()
    return SmokeReport(result=result, parameters=parameters, learned=tuple(learned))


def _tier(tier: int) -> Tier:
    try:
        return _TIERS[tier]
    except KeyError:
        raise SmokeInputError(
            f"--tier is {tier}\n    expected: 1 (a second), 2 (under a minute) or 3 (ten minutes and more)"
        ) from None


def _soak(seconds: float) -> float:
    if 1 <= seconds <= 86400:
        return seconds
    raise SmokeInputError(f"--soak is {seconds:g} s\n    expected: 1s to 24h")
