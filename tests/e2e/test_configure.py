"""`configure` with the real Docker engine: it builds, what it wrote starts, and the diagnosis agrees."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import docker_engine
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("slurm-image")]

Ran = subprocess.CompletedProcess[str]


@pytest.fixture
def prefix() -> Iterator[str]:
    """The prefix of a node, whose container and volumes are removed in the end."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    yield name
    docker("rm", "--force", f"{name}-slurm", check=False)
    for volume in ("state", "logs", "munge"):
        docker("volume", "rm", "--force", f"{name}_{volume}", check=False)
    docker("network", "rm", name, check=False)


@pytest.fixture
def configure(root: Path, tmp_path: Path, prefix: str) -> Callable[..., Ran]:
    docker_engine.engine()

    def run(*words: str, **more: str) -> Ran:
        command = [sys.executable, "-m", "paddock", "slurm.configure", "--prefix", prefix, *words]
        environ = {**os.environ, "PADDOCK_CWD": str(tmp_path), **more}
        completed = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True, check=False)
        assert "Traceback" not in completed.stderr, completed.stderr
        return completed

    return run


def docker(*words: str, check: bool = True) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout.strip()


def up(folder: Path, prefix: str) -> None:
    """Start the service of the Compose file: by `docker run`, as not every engine has Compose."""
    service: dict[str, Any] = yaml.safe_load((folder / "compose.yaml").read_text())["services"][f"{prefix}-slurm"]
    docker("network", "create", prefix)
    volumes = [
        f"{folder}{volume[1:]}" if volume.startswith(".") else f"{prefix}_{volume}" for volume in service["volumes"]
    ]
    words = ["--name", service["container_name"], "--hostname", service["hostname"], "--network", prefix]
    words += [word for volume in volumes for word in ("--volume", volume)]
    words += [word for option in service["security_opt"] for word in ("--security-opt", option)]
    docker("run", "--detach", *words, "--pull", service["pull_policy"], service["image"])


def test_a_machine_without_gpus_is_configured_started_and_diagnosed(
    configure: Callable[..., Ran], tmp_path: Path, prefix: str
) -> None:
    folder, name = tmp_path / f"{prefix}-slurm", f"{prefix}-slurm"
    built = configure("--gpu-type", "none", "--base", docker_engine.debian_base())
    assert built.returncode == 0, built.stderr
    assert "Slurm is configured" in built.stdout

    absent = configure("--gpu-type", "none", "--diagnose")
    assert (absent.returncode, f"there is no container {name}" in absent.stdout) == (1, True)

    custom = (folder / "cgroup.conf").read_text() + "# USER_CUSTOMIZED=true\n"
    (folder / "cgroup.conf").write_text(custom)
    up(folder, prefix)
    until(lambda: "\nready " in docker("logs", name), 60)
    assert docker("exec", name, "sinfo", "--noheader", "--Node", "--format", "%n %T") == f"{name} idle"
    assert docker("exec", name, "cat", "/etc/slurm/cgroup.conf") == custom.strip()
    assert docker("exec", name, "srun", "hostname") == name

    diagnosed = configure("--gpu-type", "none", "--diagnose", "--json")
    links = json.loads(diagnosed.stdout)["links"]
    assert (diagnosed.returncode, [link["link"] for link in links if link["state"] == "broken"]) == (0, []), links

    again = json.loads(configure("--gpu-type", "none", "--base", docker_engine.debian_base(), "--json").stdout)
    assert {file["state"] for file in again["files"]} == {"unchanged", "customised"}

    docker("exec", name, "scontrol", "update", f"nodename={name}", "state=drain", "reason=bad fan")
    drained = configure("--gpu-type", "none", "--diagnose")
    assert drained.returncode == 1
    assert "bad fan" in drained.stdout
    docker("stop", name)
    stopped = configure("--gpu-type", "none", "--diagnose")
    assert "exited with 0" in stopped.stdout


def test_the_real_engines_refusal_of_gpus_names_the_toolkit(root: Path, tmp_path: Path) -> None:
    """Without NVIDIA's toolkit the engine itself says what is missing."""
    from paddock.slurm.detect.machine import detect
    from paddock.slurm.validate.container import container_link
    from tests.support.boxes import h100s

    engine = docker_engine.engine()
    if "nvidia" in engine.info().get("Runtimes", {}):
        pytest.skip("docker here has NVIDIA's toolkit")
    link = container_link(engine, docker_engine.debian_base(), detect(h100s(2), None))
    assert (link.name, link.state) == ("toolkit", "broken")
    assert "nvidia-ctk runtime configure" in link.fix


def test_compose_takes_the_file(configure: Callable[..., Ran], tmp_path: Path, prefix: str) -> None:
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker has no compose")
    assert configure("--files-only").returncode == 0
    docker(*shlex.split(f"compose --file {tmp_path}/{prefix}-slurm/compose.yaml config --quiet"))
