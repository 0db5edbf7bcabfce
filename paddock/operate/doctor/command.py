"""`doctor`: what `pulumi up` of a stack would fail at."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from paddock import clock
from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.console.progress import progress
from paddock.console.project import OfStack, root
from paddock.fleet import load
from paddock.operate.credential import credential
from paddock.operate.doctor.report import Examination
from paddock.operate.sources.aws import AwsReader


@dataclass(frozen=True, kw_only=True)
class Doctor(OfStack):
    """Parameters of `doctor`."""

    github_key: Path | None = parameter(
        None, "the file with the App's private key, or a token, in place of what Pulumi or AWS keeps"
    )
    strict: bool = parameter(False, "warnings and unknowns fail, too")


@command()
def doctor(parameters: Doctor) -> Examination:
    """Examine what `pulumi up` of a stack would meet. Raises FleetError and BadFlag."""
    # These plan the stack, for which `base` does not have the SDK.
    from paddock.operate.doctor.context import Context
    from paddock.operate.doctor.examination import examine

    stack = load(root(), parameters.stack)
    key = credential(parameters.github_key) if parameters.github_key else ""
    context = Context(root(), stack, clock.today(), AwsReader(stack.fleet.region), key)
    with progress(quiet=True) as shown:
        report = examine(
            context, lambda done, total, waiting: shown.now(f"{done} of {total} checks; waiting for {waiting}")
        )
    return replace(report, strict=parameters.strict)
