"""Lists and sizes of Paddock's images, from the real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.console.output import PRINTED_JSON
from paddock.images.commands.list import ListImages, list_images
from tests.support import docker_engine
from tests.support.performing import performed

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("docker-engine")]

NAME = "paddock-test/known"
TAG = f"{NAME}:12.8-runner2.338.0-0123456789ab"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    docker, context = docker_engine.engine(), tmp_path_factory.mktemp("context")
    (context / "Dockerfile").write_text(f"FROM {docker_engine.debian_base()}\nRUN head -c 1000000 /dev/zero > /zeros\n")
    labels = {
        "dev.paddock.content": "0123456789ab",
        "dev.paddock.cuda": "12.8",
        "dev.paddock.runner": "2.338.0",
        "org.opencontainers.image.created": "2026-11-21T12:00:00+00:00",
    }
    docker.build(context, tags=[TAG], args={}, labels=labels, progress="quiet")
    yield TAG
    docker.remove(TAG)


def test_the_engine_finds_paddocks_images_by_label(built: str) -> None:
    images = docker_engine.engine().images("dev.paddock.content")
    assert built in images
    assert docker_engine.DEBIAN not in images


def test_list_and_size_ask_the_engine(built: str, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    performed(list_images, root, ListImages(json=PRINTED_JSON))
    row = {image["image"]: image for image in json.loads(capsys.readouterr().out)["local"]}[built]
    assert (row["cuda"], row["runner"], row["built"]) == ("12.8", "2.338.0", "2026-11-21")

    performed(list_images, root, ListImages(image="known", json=PRINTED_JSON))
    document = json.loads(capsys.readouterr().out)
    assert (document["image"], document["size_bytes"]) == (
        built,
        sum(layer["size_bytes"] for layer in document["layers"]),
    )
    sizes = {layer["made_by"]: layer["size_bytes"] for layer in document["layers"]}
    assert sizes["RUN head -c 1000000 /dev/zero > /zeros"] >= 1_000_000  # some stores count whole blocks
