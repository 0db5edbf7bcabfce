"""Programs of this machine that `pulumi up` of a stack runs, and their versions."""

from __future__ import annotations

import os
from collections.abc import Iterator

from paddock.catalog import version as parse_version
from paddock.images.docker import Docker
from paddock.images.errors import BuildError
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Result
from paddock.operate.sources import programs
from paddock.operate.sources.unavailable import NotFound, split_error

AREA = "tools"
PULUMI_OLDEST = (3, 259)
"""Oldest that this project was tried with (docs/getting-started.md)."""
AWS_OLDEST = (2,)
INSTALL = {
    "pulumi": "https://www.pulumi.com/docs/install/",
    "aws": "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
    "kubectl": "https://kubernetes.io/docs/tasks/tools/",
}
_ENGINE_SECONDS = 10.0
"""Seconds for each answer of docker. One that is elsewhere, by SSH, takes some."""


def pulumi(context: Context) -> Iterator[Result]:
    """Check Pulumi's program, which everything is applied with."""
    yield _at_least("pulumi", PULUMI_OLDEST)


def aws(context: Context) -> Iterator[Result]:
    """Check AWS's program, which logs Pulumi and kubectl in to the cluster."""
    yield _at_least("aws", AWS_OLDEST)


def kubectl(context: Context) -> Iterator[Result]:
    """Check kubectl, which may be one minor from the cluster (kubernetes.io, "Version Skew Policy")."""
    minor = parse_version(context.fleet.cluster.version)
    try:
        installed = programs.version("kubectl")
    except NotFound as error:
        yield Result(status="warn", area=AREA, subject="kubectl", message=f"{error}: the runbooks use it",
                     fix=f"install it: {INSTALL['kubectl']}")  # fmt: skip
        return
    text = _text(installed)
    if installed[0] == minor[0] and abs(installed[1] - minor[1]) <= 1:
        yield Result(status="pass", area=AREA, subject="kubectl", message=f"{text}, for Kubernetes {_text(minor)}")
        return
    message = f"{text} is more than one minor from the cluster's Kubernetes {_text(minor)}"
    fix = f"install {minor[0]}.{minor[1]}: {INSTALL['kubectl']}"
    yield Result(status="warn", area=AREA, subject="kubectl", message=message, fix=fix)


def docker(context: Context) -> Iterator[Result]:
    """Check Docker, which only builds of images need: the client, its BuildKit, and an engine that answers."""
    try:
        Docker.find(os.environ, _ENGINE_SECONDS)
    except BuildError as error:
        reason, fix = split_error(error)
        message = f"{reason}: images of your own cannot be built here"
        yield Result(status="warn", area=AREA, subject="docker", message=message, fix=fix)
        return
    message = f"{_text(programs.version('docker'))}, and its engine answers"
    yield Result(status="pass", area=AREA, subject="docker", message=message)


def _at_least(program: str, oldest: tuple[int, ...]) -> Result:
    fix = f"install {_text(oldest)} or newer: {INSTALL[program]}"
    try:
        installed = programs.version(program)
    except NotFound as error:
        return Result(status="fail", area=AREA, subject=program, message=str(error), fix=fix)
    if installed < oldest:
        message = f"{_text(installed)} is older than {_text(oldest)}, the oldest that was tried"
        return Result(status="warn", area=AREA, subject=program, message=message, fix=fix)
    return Result(status="pass", area=AREA, subject=program, message=_text(installed))


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
