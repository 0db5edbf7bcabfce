"""Machine images: the tasks as processes, and AWS as an HTTP server over moto."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import aws_server, image_builder
from tests.support.ami_account import TAGS, World
from tests.support.ami_account import world as world
from tests.support.aws_server import AwsServer
from tests.support.checkout import with_pipeline
from tests.support.door import Door
from tests.support.waiting import until

BUILD = image_builder.BUILD


class Builder:
    """EC2 Image Builder as far as it is asked: one pipeline, whose build has a status and leaves an image."""

    def __init__(self, world: World) -> None:
        self.status, self.id, self.started = "AVAILABLE", world.image(**TAGS), 0

    def answers(self) -> dict[str, aws_server.Answer]:
        return {
            "imagebuilder/ListImagePipelines": lambda _: {"imagePipelineList": [image_builder.pipeline()]},
            "imagebuilder/ListImagePipelineImages": lambda _: {"imageSummaryList": self._builds()},
            "imagebuilder/StartImagePipelineExecution": self._start,
            "imagebuilder/GetImage": lambda _: {"image": self._image()},
            "imagebuilder/ListWorkflowExecutions": lambda _: {"workflowExecutions": []},
        }

    def _start(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        self.started += 1
        return {"imageBuildVersionArn": BUILD}

    def _builds(self) -> list[dict[str, Any]]:
        return [self._image()] if self.started else []

    def _image(self) -> dict[str, Any]:
        amis = {"amis": [{"region": image_builder.REGION, "image": self.id}]}
        return image_builder.image(self.status, outputResources=amis)


@pytest.fixture
def builder(world: World) -> Builder:
    return Builder(world)


@pytest.fixture
def aws(builder: Builder) -> Iterator[AwsServer]:
    with aws_server.serve(builder.answers()) as server:
        yield server


@pytest.fixture
def env(aws: AwsServer, root: Path, tmp_path: Path) -> dict[str, str]:
    """Return the variables of a checkout whose stack dev has a pipeline, and of the account."""
    return {**aws.env, "PADDOCK_ROOT": str(with_pipeline(root, tmp_path / "project"))}


@pytest.mark.door("ami.build", "AWS as an HTTP server over moto")
def test_a_build_is_followed_to_its_image(inv: Door, builder: Builder, env: dict[str, str]) -> None:
    built = inv("ami.build", "--json", env=env)
    assert built.returncode == 0, built.stderr
    assert [image["id"] for image in json.loads(built.stdout)["images"]] == [builder.id]
    assert builder.started == 1


@pytest.mark.door("ami.build", "AWS as an HTTP server over moto", interrupted=True)
def test_ctrl_c_leaves_the_build_and_says_how_to_go_on(
    inv: Door, builder: Builder, aws: AwsServer, env: dict[str, str]
) -> None:
    builder.status = "BUILDING"
    following = inv.start("ami.build", env=env)
    until(lambda: "imagebuilder/ListWorkflowExecutions" in aws.requests, seconds=120)
    _, errors = inv.interrupted(following)
    assert f"the build continues in AWS\n    resume: ./inv ami.build --stack dev --execution {BUILD}" in errors


@pytest.mark.door("ami.list", "AWS as an HTTP server over moto")
def test_the_images_of_the_fleet_are_listed(inv: Door, builder: Builder, env: dict[str, str]) -> None:
    listed = inv("ami.list", env=env)
    assert (listed.returncode, builder.id in listed.stdout) == (0, True), listed.stderr


@pytest.mark.door("ami.promote", "AWS as an HTTP server over moto")
def test_an_image_is_pinned_in_the_stack_file(inv: Door, builder: Builder, env: dict[str, str]) -> None:
    pinned = inv("ami.promote", builder.id, env=env)
    assert pinned.returncode == 0, pinned.stderr
    assert builder.id in Path(env["PADDOCK_ROOT"], "Pulumi.dev.yaml").read_text()


@pytest.mark.door("ami.prune", "AWS as an HTTP server over moto")
def test_an_image_that_nothing_uses_is_removed(inv: Door, world: World, builder: Builder, env: dict[str, str]) -> None:
    newest = world.image(**TAGS)
    pruned = inv("ami.prune", "--keep", "1", "--yes", "--json", env=env)
    assert pruned.returncode == 0, pruned.stderr
    assert newest in world.images
    assert builder.id not in world.images
