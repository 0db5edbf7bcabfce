"""Image of a Slurm node, built by the real engine on a real Debian: the GPUs of each start are what Slurm has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.build.images import slurm as slurm_image
from tests.support import docker_engine, nvml
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
