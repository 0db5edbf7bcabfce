"""The fleet applied on one machine."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from paddock.tasks.common import ROOT, task


@task(
    name="up",
    help={
        "stack": "the stack to apply: Pulumi.<stack>.yaml",
        "port": "the first of six ports on loopback; by default ports that are free",
        "boot-seconds": "how long a simulated node takes to boot; 0 takes the published figures",
        "keep": "leave running what runs when a later part fails, to look at it",
        "json": "print what was started and applied as JSON, and nothing else",
    },
)
def lab_up(
    c: Context, stack: str = "dev", port: int = 0, boot_seconds: float = 3.0, keep: bool = False, json: bool = False
) -> None:
    """Apply a stack on this machine: real Pulumi and Kubernetes, stand-ins for AWS and GitHub, simulated nodes."""
    from paddock.lab import cli

    cli.up(ROOT, stack, first_port=port or None, boot_seconds=boot_seconds or None, keep=keep, as_json=json)


@task(name="status", help={"stack": "the lab of this stack", "json": "print it as JSON"})
def lab_status(c: Context, stack: str = "dev", json: bool = False) -> None:
    """Show what of the lab runs, what runs on its nodes, and how far its jobs are."""
    from paddock.lab import cli

    if not cli.status(stack, as_json=json):
        raise Exit(code=1)


@task(
    name="demo",
    help={
        "stack": "the lab of this stack",
        "runner": "the runner that the job is for; by default the fleet's first",
        "job-seconds": "how long the job works",
        "json": "print the job's life as JSON, and nothing else",
    },
)
def lab_demo(c: Context, stack: str = "dev", runner: str = "", job_seconds: float = 5.0, json: bool = False) -> None:
    """Push one GPU job into the lab and follow it, until its node is given back."""
    from paddock.lab import cli

    if not cli.show_demo(ROOT, stack, runner=runner, job_seconds=job_seconds, as_json=json):
        raise Exit(code=1)


@task(
    name="down",
    help={
        "stack": "the lab of this stack",
        "keep": "keep its objects for the next lab.up",
        "json": "print what was ended as JSON",
    },
)
def lab_down(c: Context, stack: str = "dev", keep: bool = False, json: bool = False) -> None:
    """End the lab; nothing of it stays."""
    from paddock.lab import cli

    cli.down(stack, keep=keep, as_json=json)
