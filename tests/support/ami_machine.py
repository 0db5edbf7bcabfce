"""A made-up EKS GPU machine: the AMI's scripts run for real in a container, and what they call are stand-ins.

`ami_machine.sh` is every program of the machine; the driver's library is compiled as in tests.support.nvml.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.images.ami_components import AMI, FOLDER, Document
from paddock.images.docker import Docker, Finished
from tests.support import docker_engine, nvml

PROGRAMS = (
    *("aws", "ctr", "df", "dnf", "du", "kmod-util", "kubelet", "nerdctl"),
    *("nvidia-ctk", "nvidia-smi", "rpm", "systemctl", "uname"),
)
_CALLS, _TREE, _AFTER, _ENDED = "-- calls --", "-- tree --", "-- after --", "-- ended with "

_TREE_OF_ALL = r"""
find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /dev \) -prune -o -printf '%y %m %p %l\n' | sort
find / -xdev \( -path /proc -o -path /sys -o -path /tmp -o -path /dev -o -path /usr -o -path /machine \) -prune \
  -o -type f -print0 | sort -z | xargs -0 sha256sum
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run after another in one container: what each printed, called and left behind."""

    code: int
    stderr: str
    calls: tuple[tuple[str, ...], ...]
    """The calls of each run."""
    trees: tuple[str, ...]
    """Where asked for: the whole file system after each run but /tmp, with the contents outside of /usr."""
    after: tuple[str, ...]
    """Output of the test's own `after`."""


class Machine:
    """Containers of one image, each a machine anew."""

    def __init__(self, docker: Docker, image: str, folder: Path) -> None:
        self.docker, self.image = docker, image
        self.folder = folder
        shutil.copy(Path(__file__).with_name("ami_machine.sh"), folder / "machine.sh")
        nvml.library(folder)

    def run(self, *runs: str, before: str = "", after: str = "", trees: bool = False, **environment: str) -> Ran:
        """Run each of `runs` with bash, up to the first that fails; `before` and `after` belong to the test."""
        tree = _TREE_OF_ALL if trees else ""
        install = "\n".join(f"ln -s /machine/machine.sh /usr/local/bin/{name}" for name in PROGRAMS)
        text = f"""
            set -euo pipefail
            {install}
            chmod 755 /machine/machine.sh
            cp /machine/libnvidia-ml.so.1 /usr/lib/
            ldconfig
            install -m 755 /dev/null /usr/bin/nodeadm
            install -m 755 /dev/null /usr/bin/nvidia-container-runtime
            {before}
        """
        for script in runs:
            text += f"\n: > /tmp/calls\nbash >&2 <<'RUN'\nset -euo pipefail\n{script}\nRUN\n"
            text += f"echo '{_CALLS}'; cat /tmp/calls; echo '{_TREE}'; {tree}\necho '{_AFTER}'\n{after}\n"
        (self.folder / "run.sh").write_text(text, encoding="utf-8")
        volumes: dict[str | Path, str] = {self.folder: "/machine", AMI / "scripts": f"{FOLDER}-scripts:ro"}
        finished: Finished = self.docker.run(
            self.image, ["bash", "/machine/run.sh"], volumes=volumes, environment=environment, timeout_s=120
        )
        return _ran(finished)

    def script(self, *words: str, before: str = "", after: str = "", **environment: str) -> Ran:
        """One script of the AMI, as it lies in the repository."""
        return self.run(called(*words), before=before, after=after, **environment)

    def outcomes(self, *scripts: str, before: str = "") -> list[tuple[int, str]]:
        """Run one after another on the same machine, and return the exit code of each and what it printed."""
        each = (f"(\n{script}\n) 2>&1 && code=0 || code=$?\necho '{_ENDED}'$code" for script in scripts)
        printed = self.run("\n".join(each), before=before).stderr
        *ended, _ = re.split(rf"^{_ENDED}(\d+)\n", printed, flags=re.MULTILINE)
        return [(int(code), text) for text, code in zip(ended[::2], ended[1::2], strict=True)]


def called(*words: str, **environment: str) -> str:
    """Return the call of a script of the AMI, with these variables."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join([*variables, shlex.join((f"{FOLDER}-scripts/{words[0]}", *words[1:]))])


def _ran(finished: Finished) -> Ran:
    calls, trees, after = [], [], []
    for part in finished.stdout.split(f"{_CALLS}\n")[1:]:
        called, _, rest = part.partition(f"{_TREE}\n")
        tree, _, last = rest.partition(f"{_AFTER}\n")
        calls.append(tuple(called.splitlines()))
        trees.append(tree)
        after.append(last)
    return Ran(finished.code, finished.stderr, tuple(calls), tuple(trees), tuple(after))


def build_machine(folder: Path) -> Machine:
    """Return the machine; skips where there is no engine, no base or no compiler."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) for the made-up driver library")
    return Machine(docker_engine.engine(), docker_engine.tools_base(), folder)


def as_image_builder(documents: tuple[Document, ...], phase: str, values: Mapping[str, str]) -> str:
    """Bash that does what AWSTOE does with a phase of the documents: commands run in order, with their parameters."""
    return "\n".join(line for document in documents for line in _steps(document, phase, values))


def _steps(document: Document, phase: str, values: Mapping[str, str]) -> Iterator[str]:
    parsed: dict[str, Any] = yaml.safe_load(document.data)
    defaults = {
        key: parameter["default"] for declared in parsed.get("parameters", ()) for key, parameter in declared.items()
    }
    for part in parsed["phases"]:
        for step in part["steps"] if part["name"] == phase else ():
            (command,) = step["inputs"]["commands"]
            for key, default in defaults.items():
                command = command.replace(f"{{{{ {key} }}}}", values.get(key) or default)
            yield command
