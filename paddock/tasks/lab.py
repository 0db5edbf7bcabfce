"""The fleet applied on one machine."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.duration import Seconds
from paddock.tasks.common import ROOT, task
from paddock.terminal import JSON_HELP, JsonOutput

_BOOT, _JOB = Seconds("3s"), Seconds("5s")


@task(
    name="up",
    help={
        "stack": "the stack to apply: Pulumi.<stack>.yaml",
        "port": "the first of six ports on loopback; by default ports that are free",
        "boot-seconds": "how long a simulated node takes to boot; 0 takes the published figures",
        "keep": "leave running what runs when a later part fails, to look at it",
        "json": JSON_HELP,
    },
)
def lab_up(
    c: Context,
    stack: str = "dev",
    port: int = 0,
    boot_seconds: Seconds = _BOOT,
    keep: bool = False,
    json: str | None = None,
) -> None:
    """Apply a stack on this machine: real Pulumi and Kubernetes, stand-ins for AWS and GitHub, simulated nodes."""
    from paddock.lab import cli

    cli.up(
        ROOT, stack, first_port=port or None, boot_seconds=boot_seconds or None, keep=keep, json=JsonOutput.parse(json)
    )


@task(name="status", help={"stack": "the lab of this stack", "json": JSON_HELP})
def lab_status(c: Context, stack: str = "dev", json: str | None = None) -> None:
    """Show what of the lab runs, what runs on its nodes, and how far its jobs are."""
    from paddock.lab import cli

    if not cli.status(stack, json=JsonOutput.parse(json)):
        raise Exit(code=1)


@task(
    name="demo",
    help={
        "stack": "the lab of this stack",
        "runner": "the runner that the job is for; by default the fleet's first",
        "job-seconds": "how long the job works",
        "json": JSON_HELP,
    },
)
def lab_demo(
    c: Context, stack: str = "dev", runner: str = "", job_seconds: Seconds = _JOB, json: str | None = None
) -> None:
    """Push one GPU job into the lab and follow it, until its node is given back."""
    from paddock.lab import cli

    if not cli.show_demo(ROOT, stack, runner=runner, job_seconds=job_seconds, json=JsonOutput.parse(json)):
        raise Exit(code=1)


@task(
    name="down",
    help={
        "stack": "the lab of this stack",
        "keep": "keep its objects for the next lab.up",
        "json": JSON_HELP,
    },
)
def lab_down(c: Context, stack: str = "dev", keep: bool = False, json: str | None = None) -> None:
    """End the lab; nothing of it stays."""
    from paddock.lab import cli

    cli.down(stack, keep=keep, json=JsonOutput.parse(json))
