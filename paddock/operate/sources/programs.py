"""Programs of this machine: their versions, and what Pulumi keeps of a stack."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from shutil import which

from paddock.errors import one_line
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.pulumi_cli.stack import NO_STACK, Pulumi, PulumiError, PulumiMissing, Resource

_PATIENCE = 20.0
"""Seconds for a program that asks nobody but this machine."""
VERSION_COMMANDS = {
    "pulumi": ("version",),
    "aws": ("--version",),
    "kubectl": ("version", "--client", "--output=json"),
    "docker": ("--version",),
}


def version(program: str) -> tuple[int, ...]:
    """Return the version that a program states. Raises NotFound where it is not on PATH, and Unavailable."""
    text = _output(program, *VERSION_COMMANDS[program])
    # The first number with dots; of kubectl's JSON the git version, since `major` and `minor` may end with "+".
    match = re.search(r"(?:gitVersion\W+)?\bv?(\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise Unavailable(f"{program} states no version: {one_line(text) or 'nothing'}", f"{program} --version")
    return tuple(int(part) for part in match.groups() if part is not None)


def pulumi_secret(root: Path, stack: str, key: str) -> str:
    """Return a secret of the stack's configuration, which Pulumi decrypts. Raises Unavailable, with none of it."""
    try:
        return Pulumi(root, stack).secret(key, _PATIENCE)
    except PulumiMissing as error:
        raise NotFound(str(error).splitlines()[0]) from None
    except PulumiError as error:
        raise Unavailable(str(error), error.fix) from None


def pulumi_state(root: Path, stack: str) -> tuple[Resource, ...]:
    """Return what a stack holds by its state; nothing where the backend does not have the stack. Raises Unavailable."""
    try:
        return Pulumi(root, stack).resources(_PATIENCE)
    except PulumiMissing as error:
        raise NotFound(str(error).splitlines()[0]) from None
    except PulumiError as error:
        if NO_STACK in str(error):
            return ()
        raise Unavailable(str(error), error.fix) from None


def _output(program: str, *arguments: str) -> str:
    path = which(program)
    if path is None:
        raise NotFound(f"{program} is not on PATH")
    command = " ".join((program, *arguments[:2]))
    try:
        completed = subprocess.run(
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command} did not end within {_PATIENCE:.0f} s", command) from None
    except OSError as error:
        raise Unavailable(f"{path} cannot be run: {error.strerror}", f"install {program} again") from None
    if completed.returncode:
        lines = completed.stderr.strip().splitlines() or [f"exit {completed.returncode}"]
        raise Unavailable(f"{command} failed: {one_line(lines[0])}", command)
    return completed.stdout.strip()
