"""A made-up EKS GPU machine: the AMI's scripts run for real in a container, and what they call are stand-ins.

`ami_machine.sh` is every program of the machine; the driver's library is compiled as in tests.support.nvml.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.images.ami_components import AMI, FOLDER, Document
from paddock.build.docker import Docker, Finished
from tests.support import docker_engine, nvml

IMAGE = "paddock-test/ami:python3"
PROGRAMS = (
    *("aws", "ctr", "df", "dnf", "du", "kmod-util", "kubelet", "nerdctl"),
    *("nvidia-ctk", "nvidia-smi", "rpm", "systemctl", "uname"),
)
_CALLS, _TREE, _AFTER = "-- calls --", "-- tree --", "-- after --"

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
    """The whole file system after each run but /tmp, with the contents outside of /usr."""
    after: tuple[str, ...]
    """Output of the test's own `after`."""


class Machine:
    """Containers of one image, each a machine anew."""

    def __init__(self, docker: Docker, folder: Path) -> None:
        self.docker = docker
        self.folder = folder
        shutil.copy(Path(__file__).with_name("ami_machine.sh"), folder / "machine.sh")
        nvml.library(folder)

    def run(self, *runs: str, before: str = "", after: str = "", **environment: str) -> Ran:
        """Run each of `runs` with bash, up to the first that fails; `before` and `after` belong to the test."""
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
            text += f"echo '{_CALLS}'; cat /tmp/calls; echo '{_TREE}'; {_TREE_OF_ALL}\necho '{_AFTER}'\n{after}\n"
        (self.folder / "run.sh").write_text(text, encoding="utf-8")
        volumes: dict[str | Path, str] = {self.folder: "/machine", AMI / "scripts": f"{FOLDER}-scripts:ro"}
        finished: Finished = self.docker.run(
            IMAGE, ["bash", "/machine/run.sh"], volumes=volumes, environment=environment, timeout_s=120
        )
        return _ran(finished)

    def script(self, *words: str, before: str = "", after: str = "", **environment: str) -> Ran:
        """One script of the AMI, as it lies in the repository."""
        called = shlex.join((f"{FOLDER}-scripts/{words[0]}", *words[1:]))
        return self.run(called, before=before, after=after, **environment)


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
    """The machine's image, built once; skips where there is no engine, no base or no compiler."""
    docker = docker_engine.engine()
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) for the made-up driver library")
    base = docker_engine.debian_base()
    (folder / "image").mkdir()
    (folder / "image" / "Dockerfile").write_text(
        f"FROM {base}\n"
        "RUN apt-get update && apt-get install -y --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*\n",
        encoding="utf-8",
    )
    docker.build(folder / "image", tags=[IMAGE], args={}, labels={}, progress="quiet")
    (folder / "machine").mkdir()
    return Machine(docker, folder / "machine")


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
