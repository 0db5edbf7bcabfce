"""Image of a Slurm node, built by the real engine on a real Debian: the GPUs of each start are what Slurm has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.build.images import slurm as slurm_image
from tests.support import docker_engine, nvml
from tests.support.fleets import ROOT
from tests.support.slurm_container import Container, container

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("slurm-image")]


@pytest.fixture(scope="module")
def image(root: Path) -> str:
    """The image's name in the engine."""
    docker = docker_engine.engine()
    slurm_image.build(docker, root, "none", base=docker_engine.debian_base(), progress="quiet")
    return slurm_image.alias("none")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake driver library."""
    folder = tmp_path_factory.mktemp("driver")
    nvml.library(folder)
    folder.chmod(0o755)
    return folder


@pytest.fixture
def slurm(image: str, driver: Path) -> Iterator[Container]:
    with container(docker_engine.engine().client.path, image, driver) as slurm:
        yield slurm


def test_a_machine_without_gpus_starts_in_seconds_and_runs_a_job(slurm: Container) -> None:
    assert slurm.start() < 60
    assert slurm.node() == "idle (null)"
    job = slurm.submit("echo ran as $(id -un)")
    assert slurm.finished(job) == "COMPLETED"
    assert slurm.output(job) == "ran as root"
    assert "ok   node: node is idle" in slurm.run("paddock", "slurm.health")


def test_tasks_of_this_machine_reach_the_slurm_of_the_container(slurm: Container, tmp_path: Path) -> None:
    """The GPUs are the fake driver's, and more than the machine may have cores."""
    slurm.start(4)
    prefix = slurm.id.removesuffix("-slurm")
    (tmp_path / "method.json").write_text('{"name": "train", "environment": {"WORD": "a b"}, "resources": {"gpus": 2}}')

    def task(*words: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "paddock", words[0], "--prefix", prefix, "--json=-", *words[1:]],
            capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return {"code": done.returncode, **json.loads(done.stdout or "{}"), "errors": done.stderr}

    tested = task("slurm.test")
    assert tested["code"] == 0, tested
    assert {file for job in tested["jobs"] for file in job["devices"]} == {
        f"/dev/nvidia{number}" for number in range(4)
    }
    assert len({uuid for job in tested["jobs"] if job["gpu"] for uuid in job["uuids"]}) == 4
    submitted = task("slurm.submit", "method.json", "--wait", "--", "sh", "-c", "echo $WORD; exit 4")
    (job,) = submitted["jobs"]
    assert (submitted["code"], job["exit_code"], job["log"]) == (1, 4, f"/work/train-{job['id']}.out")
    assert slurm.run("cat", job["log"]) == "a b"
    (node,) = task("slurm.nodes")["nodes"]
    assert [(gpu["type"], gpu["total"], gpu["memory_mib"]) for gpu in node["gpus"]] == [("h100", 4, 81559)]
