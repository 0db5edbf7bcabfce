"""Place where Slurm's programs run: this machine, or the container of a node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from paddock.errors import one_line, program
from paddock.slurm.errors import SlurmError
from paddock.slurm.programs.names import JOBS, PREFIX, container_name

_SECONDS = 60.0
"""Folder of jobs in the container."""
_FIELDS = '{"running": {{json .State.Running}}, "mounts": {{json .Mounts}}}'


@dataclass(frozen=True, slots=True)
class Output:
    """Result of a program that ended."""

    code: int
    text: str
    error: str

    @property
    def reason(self) -> str:
        """Return its complaint on one line, without the names of program and level."""
        lines = [line.rpartition("error: ")[2] for line in self.error.splitlines() if line.strip()]
        return one_line("; ".join(lines)) or f"exit code {self.code}, without a message"


@dataclass(frozen=True, slots=True)
class Place:
    """Machine or container with Slurm. `folder` is where its jobs run by default."""

    name: str
    folder: str
    container: str = ""
    docker: str = "docker"
    mounts: Mapping[str, str] = field(default_factory=dict)
    """Folders of the host by the container's."""

    def command(self, *words: str) -> list[str]:
        """Return the words to start a program there."""
        return [self.docker, "exec", "-i", self.container, *words] if self.container else [*words]

    def run(self, *words: str, text: str = "", seconds: float = _SECONDS) -> Output:
        """Run a program to its end. Raises SlurmError where it is absent or takes too long.

        The caller's SBATCH_* stay away from it: they would change a submission behind the method's back.
        """
        command = self.command(*words)
        try:
            process = subprocess.run(
                command, input=text, capture_output=True, text=True, errors="replace", check=False, timeout=seconds,
                env={name: value for name, value in os.environ.items() if not name.startswith("SBATCH_")},
            )  # fmt: skip
        except FileNotFoundError:
            raise SlurmError(f"{command[0]} is not on PATH\n    fix: install it, or call this where it is") from None
        except subprocess.TimeoutExpired:
            raise SlurmError(
                f"{words[0]} on {self.name} does not answer after {seconds:g} s"
                f"\n    fix: `scontrol ping` there says whether the controller is up"
            ) from None
        return Output(process.returncode, process.stdout, process.stderr)

    def read(self, *words: str, seconds: float = _SECONDS) -> str:
        """Return what a program prints. Raises SlurmError where it fails."""
        output = self.run(*words, seconds=seconds)
        if output.code:
            raise SlurmError(f"{words[0]} on {self.name} failed: {output.reason}")
        return output.text

    def host_path(self, path: str) -> str:
        """Return a path of the container as the host knows it; empty where the host has it not."""
        if not self.container:
            return path
        inside = PurePosixPath(path)
        for target, source in sorted(self.mounts.items(), key=lambda mount: -len(mount[0])):
            if inside.is_relative_to(target):
                return str(Path(source, inside.relative_to(target)))
        return ""


def find(prefix: str = "", environ: Mapping[str, str] = os.environ) -> Place:
    """Return this machine where a Slurm answers, else the running container of the prefix. Raises SlurmError.

    A prefix that the user gives means its container, whatever answers here.
    """
    name, reasons = container_name(prefix or PREFIX), []
    if not prefix:
        here = Place("this machine", str(Path(environ.get("PADDOCK_CWD", ".")).resolve()))
        reason = _refusal(here) if shutil.which("scontrol") else "there is no scontrol on PATH"
        if not reason:
            return here
        reasons.append(f"this machine: {reason}")
    docker = shutil.which("docker")
    place, reason = _contained(docker, name) if docker else (None, "there is no docker on PATH")
    if place is not None:
        return place
    reasons.append(f"container {name}: {reason}")
    raise SlurmError(
        "no Slurm answers\n    "
        + "\n    ".join(reasons)
        + "\n    expected: a slurmctld that answers `scontrol ping`, or"
        f" a running container {name}"
        f"\n    fix: `{program()} slurm.configure` makes one, and `docker compose up -d` in its folder starts it"
    )


def _contained(docker: str, name: str) -> tuple[Place | None, str]:
    try:
        process = subprocess.run(
            [docker, "container", "inspect", "--format", _FIELDS, name],
            capture_output=True, text=True, errors="replace", check=False, timeout=_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, one_line(str(error))
    if process.returncode:
        return None, one_line(process.stderr.strip()) or "docker does not say why not"
    about = json.loads(process.stdout)
    if not about["running"]:
        return None, f"it has stopped; `docker logs {name}` says why"
    mounts = {str(mount["Destination"]): str(mount["Source"]) for mount in about["mounts"] or []}
    place = Place(f"container {name}", JOBS, name, docker, mounts)
    reason = _refusal(place)
    return (None, reason) if reason else (place, "")


def _refusal(place: Place) -> str:
    """Return why no controller answers there; empty where one does."""
    try:
        output = place.run("scontrol", "ping", seconds=20)
    except SlurmError as error:
        return one_line(str(error).partition("\n")[0])
    if " UP" in output.text:
        return ""
    lines = output.text.strip().splitlines()
    words = [output.reason] if output.error.strip() else []
    return f"the controller does not answer ({'; '.join([*words, *map(one_line, lines[:1])]) or output.reason})"
