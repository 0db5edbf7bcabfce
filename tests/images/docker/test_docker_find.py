"""Choice of the docker client, with stand-in programs for clients and engines of every kind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock.images.docker import Docker
from paddock.images.errors import BuildInputError
from tests.support.docker import stand_in

DOWN = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
DOWN_NOW = (
    "failed to connect to the docker API at unix:///var/run/docker.sock; check if the path is correct and if the "
    "daemon is running: dial unix /var/run/docker.sock: connect: no such file or directory"
)
FORBIDDEN = (
    "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: "
    'Get "http://%2Fvar%2Frun%2Fdocker.sock/v1.24/version": dial unix /var/run/docker.sock: connect: permission denied'
)
MISSING_CONTEXT = (
    'Failed to initialize: unable to resolve docker endpoint: context "gone": context not found: open …/meta.json'
)
TOO_OLD = "Error response from daemon: client version 1.41 is too old. Minimum supported API version is 1.44"


def client(folder: Path, version: str, buildx: bool = False, output: str = "", engine: str = "Engine") -> Path:
    """A docker of this version, whose engine answers unless `output` is why it does not."""
    stand_in(
        folder,
        f"""
        if argv == ["--version"]:
            {version!r} or sys.exit({output!r})
            print({version!r} if " " in {version!r} else "Docker version {version}, build 1")
        elif argv[0] == "version":
            print(json.dumps({{"Components": [{{"Name": {engine!r}}}]}}))
            sys.exit(sys.stderr.write({output!r}) and 1)
        else:
            sys.exit({not buildx})
        """,
    )
    return folder


def find(*folders: Path) -> Docker:
    return Docker.find({"PATH": os.pathsep.join(map(str, folders))})


def test_the_first_stand_in_client_that_can_buildkit_is_taken(tmp_path: Path) -> None:
    without = client(tmp_path / "new", "28.2.2")
    built_in = client(tmp_path / "old", "20.10.24+dfsg1")
    plugin = client(tmp_path / "plugin", "29.0.1", buildx=True)

    assert find(tmp_path, without, built_in, plugin).client.path == str(built_in / "docker")
    assert find(without, plugin, built_in).client.buildx


def test_one_that_cannot_be_run_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/docker").write_bytes(b"\x7fELF of another machine")
    (tmp_path / "other/docker").chmod(0o755)
    good = client(tmp_path / "good", "20.10.24")

    assert find(tmp_path / "other", good).client.path == str(good / "docker")
    with pytest.raises(BuildInputError, match=r"other/docker: Exec format error"):
        find(tmp_path / "other")


def test_no_docker_on_path_says_how_to_install_one(tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    with pytest.raises(BuildInputError, match=r"no docker on PATH\n.*\n.*fix: (sudo apt-get|brew) install"):
        find(tmp_path)


@pytest.mark.parametrize(("version", "output", "words"), [
    ("28.2.2", DOWN, ["28.2.2) has no buildx", "docker-buildx"]),
    ("podman version 4.9.3", "", ["bin/docker is not Docker's: podman version 4.9.3"]),
    ("The command 'docker' could not be found in this WSL 2 distro.", "", ["not be found in this WSL 2 distro"]),
    ("", 'Current context "gone" is not found on the file system', ["an engine that it does not know"]),
    ("20.10.24", MISSING_CONTEXT, ["an engine that it does not know", "DOCKER_CONTEXT"]),
    ("20.10.24", DOWN, ["daemon does not answer", "start docker", "unix:///var/run/docker.sock"]),
    ("20.10.24", DOWN_NOW, ["daemon does not answer"]),
    ("20.10.24", FORBIDDEN, ["socket may not be opened", "usermod -aG docker"]),
    ("20.10.24", TOO_OLD, ["too far apart", "1.44"]),
])  # fmt: skip
def test_a_limit_of_a_stand_in_client_is_one_message(
    tmp_path: Path, version: str, output: str, words: list[str]
) -> None:
    with pytest.raises(BuildInputError) as error:
        find(client(tmp_path / "bin", version, output=output))

    assert all(word in str(error.value) for word in words), error.value
    assert "fix: " in str(error.value)


def test_a_stand_in_client_of_podmans_engine_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BuildInputError, match="its engine is Podman"):
        find(client(tmp_path / "bin", "28.2.2", buildx=True, engine="Podman Engine"))
