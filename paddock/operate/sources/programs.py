"""Programs of this machine: their versions, and a secret that Pulumi keeps."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from shutil import which

from paddock.errors import one_line
from paddock.operate.sources.unavailable import NotFound, Unavailable

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
    return _output("pulumi", "config", "get", "--non-interactive", "--stack", stack, key, folder=root)


def _output(program: str, *arguments: str, folder: Path | None = None) -> str:
    path = which(program)
    if path is None:
        raise NotFound(f"{program} is not on PATH")
    command = " ".join((program, *arguments[:2]))
    try:
        completed = subprocess.run(
            [path, *arguments],
            cwd=folder,
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
        raise Unavailable(f"{path} cannot be run: {error.strerror}", f"install {program} anew") from None
    if completed.returncode:
        lines = completed.stderr.strip().splitlines() or [f"exit {completed.returncode}"]
        raise Unavailable(f"{command} failed: {one_line(lines[0])}", command)
    return completed.stdout.strip()
