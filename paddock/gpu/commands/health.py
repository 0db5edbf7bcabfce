"""`gpu.health`: one verdict on this machine's GPUs, its evidence, and one thing to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.duration import Hours
from paddock.gpu.commands.inputs import OfMachine
from paddock.gpu.errors import DriverHangs, GpuInputError
from paddock.gpu.report import ValueReport

if TYPE_CHECKING:
    from paddock.gpu.health.check import Health
    from paddock.gpu.health.rules import HealthContext

_MAX_HOURS = 24 * 365


@dataclass(frozen=True, kw_only=True)
class HealthOptions(OfMachine):
    """Parameters of `gpu.health`."""

    expect: int = parameter(0, "how many GPUs there should be; 0 is any number", ge=0)
    instance: str = parameter("", "the EC2 instance type, which says how many and which; imds asks the machine")
    idle: bool = parameter(False, "expect that nothing runs on them")
    since_hours: float = parameter(
        0.0, "how far back errors in the kernel's log count; by default to the machine's start", unit=Hours, ge=0
    )


@dataclass(frozen=True, kw_only=True)
class HealthReport(ValueReport):
    """The verdict on the machine and its findings."""

    value: Health

    @property
    def exit_code(self) -> int:
        return self.value.exit_code

    def text(self) -> Iterator[str]:
        health = self.value
        yield f"{health.machine} is {health.verdict}" + ("" if health.action == "none" else f": {health.action}")
        for finding in health.findings:
            where = f"GPU {finding.index}" if finding.index is not None else "machine"
            evidence = finding.evidence.removeprefix(f"{where}: ")
            yield f"  {finding.severity}  {where}  {finding.id}: {evidence}"
            if finding.fix:
                yield f"    fix: {finding.fix}"
        for text in health.unchecked:
            yield f"  not checked: {text}"


@command()
def health(parameters: HealthOptions) -> HealthReport:
    """Check the GPUs. Raises GpuInputError."""
    from datetime import timedelta

    from paddock.gpu.health import check
    from paddock.gpu.host import bounded

    hours = parameters.since_hours
    if hours > _MAX_HOURS:
        raise GpuInputError(f" is {hours:g}\n    expected: 0 to {_MAX_HOURS}", "since_hours")
    context = _context(parameters)
    if parameters.source is None:
        since = timedelta(hours=hours) if hours else None
        try:
            return HealthReport(value=bounded.answer(lambda: check.check(context=context, since=since)))
        except DriverHangs as error:
            return HealthReport(value=check.hanging(error))
    unchecked = ("Xids: a saved inventory holds no kernel log",)
    return HealthReport(value=check.evaluate(parameters.inventory(), (), context, unchecked))


def _context(parameters: HealthOptions) -> HealthContext:
    from paddock.gpu.health.check import expected
    from paddock.gpu.health.rules import HealthContext
    from paddock.gpu.host import imds

    instance = imds.instance_type() if parameters.instance == "imds" else parameters.instance
    context = expected(instance) if instance else HealthContext()
    return replace(context, expect=parameters.expect or context.expect, idle=parameters.idle)
