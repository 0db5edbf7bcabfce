"""Which docker of this machine can build with BuildKit, and whether its engine answers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.build.docker import problems, process
from paddock.build.errors import BuildInputError

_ANSWERS_S = 30.0
_LAST_WITHOUT_PLUGIN = 22
"""The major version of the last client that has BuildKit built in."""


@dataclass(frozen=True, slots=True)
class Client:
    path: str
    version: str
    buildx: bool
    """Whether it builds by `docker buildx build`, and else by `docker build` with DOCKER_BUILDKIT=1."""


def find(environ: Mapping[str, str]) -> Client:
    """The first on PATH that can BuildKit and whose engine answers. Raises BuildInputError."""
    seen: list[str] = []
    for path in _on_path(environ):
        answer = process.call([path, "version", "--format", "{{json .}}"], environ, timeout_s=_ANSWERS_S)
        version = str(_json(answer.stdout).get("Client", {}).get("Version", ""))
        buildx = process.call([path, "buildx", "version"], environ, timeout_s=_ANSWERS_S).code == 0
        if not buildx and not _builds_itself(version):
            seen.append(f"{path} ({version or 'of no known version'})")
        elif answer.code:
            raise problems.engine(answer.stderr, "cannot use docker")
        else:
            return Client(path, version, buildx)
    if seen:
        raise BuildInputError(
            f"docker cannot build with BuildKit here: {', '.join(seen)} has no buildx"
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


def _builds_itself(version: str) -> bool:
    major = version.partition(".")[0]
    return major.isdecimal() and int(major) <= _LAST_WITHOUT_PLUGIN


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
