"""The smoke test of a machine."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.tasks.common import task
from paddock.terminal import optional_path


@task(
    help={
        "tier": "1 reads what driver and kernel report (a second), 2 works the GPUs (under a minute), 3 also the links"
        " between them, and for ten minutes",
        "gpus": "only these GPUs, indexes or UUIDs with commas between",
        "expect": "the instance type, such as g5.xlarge, or the number of GPUs that should be here",
        "soak": "seconds of tier 3's steady load",
        "learn": "keep the speeds of devices that pass; later runs warn below 95 % of them",
        "strict": "warnings fail the test too",
        "python": "the Python interpreter that has torch; by default the one that runs this",
        "json": "also write the verdict to this file; - prints it and nothing else",
        "junit": "also write the verdict to this file as JUnit's XML",
    }
)
def smoke(
    c: Context,
    tier: int = 2,
    gpus: str = "",
    expect: str | None = None,
    soak: float = 600.0,
    learn: bool = False,
    strict: bool = False,
    python: str = "",
    json: str | None = None,
    junit: str | None = None,
) -> None:
    """Test this machine's GPUs: may it take jobs? Without a GPU the stages run on the processor."""
    from paddock.smoke import command

    code = command.smoke(
        tier=tier,
        gpus=gpus,
        expect=expect,
        soak=soak,
        learn=learn,
        strict=strict,
        python=python,
        json=command.STANDARD_OUTPUT if json == "-" else optional_path("json", json),
        junit_file=optional_path("junit", junit),
    )
    if code:
        raise Exit(code=code)
