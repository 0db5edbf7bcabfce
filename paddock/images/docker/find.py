"""Search for a docker of this machine that can build with BuildKit and whose engine responds."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from paddock.images.docker import problems, process
from paddock.images.errors import BuildInputError

ANSWERS_S = 30.0
_VERSION = re.compile(r"Docker version (?P<all>(?P<major>\d+)[^\s,]*)")
_LAST_WITHOUT_PLUGIN = 22
"""The major version of the last client that has BuildKit built in."""


@dataclass(frozen=True, slots=True)
class Client:
    path: str
    buildx: bool
    """True where it builds by `docker buildx build`, false by `docker build` with DOCKER_BUILDKIT=1."""


def find(environ: Mapping[str, str], seconds: float = ANSWERS_S) -> Client:
    """The first on PATH that has BuildKit and whose engine answers in time. Raises BuildError and BuildInputError."""
    rejected: list[str] = []
    for path in _on_path(environ):
        try:
            probe = process.call([path, "--version"], environ, timeout_s=seconds)
        except BuildInputError as error:
            rejected.append(str(error).splitlines()[0])
            continue
        version = _VERSION.match(probe.stdout)
        if problems.lost(probe.stderr):
            raise problems.engine(probe.stderr, "cannot use docker")
        if version is None:
            rejected.append(
                f"{path} is not Docker's: {problems.words(probe.stdout or probe.stderr) or 'it says nothing'}"
            )
            continue
        # An older one with the plugin takes its own: an interrupt that it gets alone never reaches the plugin.
        buildx = int(version["major"]) > _LAST_WITHOUT_PLUGIN
        if buildx and process.call([path, "buildx", "version"], environ, timeout_s=seconds).code:
            rejected.append(f"{path} ({version['all']}) has no buildx")
            continue
        answer = process.call([path, "version", "--format", "{{json .Server}}"], environ, timeout_s=seconds)
        if answer.code:
            raise problems.engine(answer.stderr, "cannot use docker")
        if "podman" in answer.stdout.lower():
            raise BuildInputError(
                "cannot use docker: its engine is Podman, which has no BuildKit\n    expected: Docker Engine"
                "\n    fix: docker context use default, or unset DOCKER_HOST, where Docker Engine runs as well"
            )
        return Client(path, buildx)
    if rejected:
        raise BuildInputError(
            f"docker cannot build with BuildKit here: {'; '.join(rejected)}"
            "\n    expected: Docker 23 or newer with its plugin buildx"
            f"\n    fix: {_install('docker-buildx')}; or https://docs.docker.com/go/buildx/"
        )
    raise BuildInputError(
        "there is no docker on PATH\n    expected: Docker Engine with its plugin buildx"
        f"\n    fix: {_install('docker.io docker-buildx')}; or https://docs.docker.com/engine/install/"
    )


def _install(packages: str) -> str:
    if sys.platform == "darwin":
        return "brew install --cask docker"
    # Debian before 13 has no package of buildx; Docker's own repository has.
    return f"sudo apt-get install {packages} (Ubuntu, Debian 13), or docker-ce docker-buildx-plugin of Docker's own"


def _on_path(environ: Mapping[str, str]) -> Iterator[str]:
    met = set()
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        path = Path(folder or ".") / "docker"
        if path.is_file() and os.access(path, os.X_OK) and path.resolve() not in met:
            met.add(path.resolve())
            yield str(path)
