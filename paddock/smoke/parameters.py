"""Parameters of the smoke test."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.duration import Seconds
from paddock.gpu.parameter import JSON, Parameters, parameter


@dataclass(frozen=True, kw_only=True)
class Smoke(Parameters):
    """Parameters of the smoke test."""

    tier: int = parameter(
        2,
        "1 reads what driver and kernel report (a second), 2 works the GPUs (under a minute), 3 also the links"
        " between them, and for ten minutes",
    )
    gpus: tuple[str, ...] = parameter((), "only these GPUs, indexes or UUIDs")
    cpu: bool = parameter(False, "test the processor in place of GPUs: it shows how the test works")
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
    json: str | None = parameter(None, JSON.help, flag=JSON)
    junit: str | None = parameter(None, "also write the verdict to this file as JUnit's XML")
