"""Images of a fleet: what is known of them, and what makes the check fail."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from copy import deepcopy
from dataclasses import replace
from datetime import date, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import versions
from paddock.catalog.github import runner_releases, runners_read
from paddock.console.output import PRINTED_JSON
from paddock.image_reference import BadReference
from paddock.images import image_inventory
from paddock.images.commands.check import CheckImages
from paddock.images.commands.check import check as check_images
from paddock.images.commands.list import ListImages, list_images
from paddock.images.docker import Layer, Local
from paddock.images.errors import BuildInputError
from paddock.plan.compatibility import software
from tests.conftest import ROOT
from tests.support.fleets import SERVING, fleet_data, named
from tests.support.performing import performed

RELEASED = runner_releases()[versions.ACTIONS_RUNNER]
TODAY = RELEASED + timedelta(days=10)
READ = max(RELEASED, runners_read())
NAME = "registry.example.com/paddock/runner-gpu"
HASH, DIGEST = "0123456789ab", "sha256:" + "a" * 64
IMAGE = f"{NAME}:12.8-runner{versions.ACTIONS_RUNNER}-{HASH}"
PINNED = f"{IMAGE}@{DIGEST}"
BASE, _, BASE_DIGEST = versions.CUDA_BASES["12.8", "22.04"].partition("@")

LOCAL = Local(
    id="sha256:" + "1" * 64,
    size_bytes=8_500_000_000,
    labels={
        "dev.paddock.content": HASH,
        "dev.paddock.cuda": "12.8",
        "dev.paddock.runner": versions.ACTIONS_RUNNER,
        "dev.paddock.packages": f"{TODAY - timedelta(days=21)}",
        "org.opencontainers.image.created": f"{TODAY - timedelta(days=21)}T23:00:00+00:00",
        "org.opencontainers.image.base.name": BASE,
        "org.opencontainers.image.base.digest": BASE_DIGEST,
    },
    created="2020-01-01T00:00:00Z",
    digests=(f"{NAME}@{DIGEST}",),
    user="runner",
    environment={},
    architecture="amd64",
)


class Shelf:
    """An engine that holds what it is given: a stand-in for Docker."""

    def __init__(self, images: Mapping[str, Local], layers: tuple[Layer, ...] = ()) -> None:
        self.held, self._layers = images, layers

    def image(self, reference: str) -> Local | None:
        return self.held.get(reference)

    def images(self, label: str) -> tuple[str, ...]:
        return tuple(name for name, local in self.held.items() if label in local.labels)

    def layers(self, reference: str) -> tuple[Layer, ...]:
        return self._layers


LABELS = {
    "created": "org.opencontainers.image.created",
    "base": "org.opencontainers.image.base.name",
    "digest": "org.opencontainers.image.base.digest",
    "runner": "dev.paddock.runner",
    "cuda": "dev.paddock.cuda",
    "packages": "dev.paddock.packages",
}


def labelled(**labels: str) -> Local:
    return replace(LOCAL, labels={**LOCAL.labels, **{LABELS[name]: value for name, value in labels.items()}})


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(image: str | None = PINNED, **parts: Any) -> Path:
        data = deepcopy(fleet_data(**parts))
        if image:
            data["images"]["runner"] = image
        config = {"aws:region": "us-west-2", "paddock:fleet": data}
        (tmp_path / "Pulumi.yaml").write_text("name: paddock\nruntime: python\n")
        (tmp_path / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"config": config}))
        return tmp_path

    return write


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, dict[str, str]]]:
    """The findings by what they are about, and whether the check failed."""

    def check(root: Path, today: date = TODAY, local: Local | None = LOCAL, **more: Local) -> dict[str, dict[str, str]]:
        images = {PINNED: local, **more} if local else more
        failed = performed(check_images, root, CheckImages(json=PRINTED_JSON), today=today, engine=Shelf(images)) == 1
        document = json.loads(capsys.readouterr().out)
        findings = document["findings"]
        assert failed == ("error" in document)
        assert failed == any(finding["verdict"] == "wrong" for finding in findings)
        assert all(finding["evidence"] for finding in findings)
        return {finding["about"]: finding for finding in findings}

    return check


def test_a_pinned_image_of_three_weeks_is_fine(write: Any, check: Any) -> None:
    assert {about: finding["verdict"] for about, finding in check(write()).items()} == {
        "pin": "ok",
        "runner": "ok",
        "image": "ok",
        "base": "ok",
        "platform": "ok",
        "cuda": "ok",
    }


@pytest.mark.parametrize(("created", "packages", "verdict"), [
    (21, 21, "ok"),
    (22, 22, "wrong"),
    (0, 22, "wrong"),  # built anew with another hook, and with the packages of the build before
    (22, 0, "wrong"),  # a day that was still to come
    (21, None, "unknown"),
    (22, None, "wrong"),
])  # fmt: skip
def test_the_age_of_an_image_is_that_of_its_packages(
    write: Any, check: Any, created: int, packages: int | None, verdict: str
) -> None:
    day = "" if packages is None else f"{TODAY - timedelta(days=packages)}"
    local = labelled(created=f"{TODAY - timedelta(days=created)}T00:00:00+00:00", packages=day)
    finding = check(write(), local=local)["image"]
    assert finding["verdict"] == verdict
    assert all(f"{days} days ago" in finding["evidence"] for days in (created, packages) if days is not None)
    # With the same content as before nothing would be built.
    assert finding["fix"] == (
        "" if verdict == "ok" else "./inv images.build runner --build-arg PACKAGES_AS_OF=$(date +%F) --pin dev"
    )


@pytest.mark.parametrize(("architecture", "fleet_image", "verdict", "fix"), [
    ("arm64", True, "wrong", "./inv images.build runner --push --pin dev"),
    ("arm64", False, "unknown", f"docker pull --platform linux/amd64 {PINNED}"),
    ("amd64", False, "ok", ""),
    ("", True, None, ""),
])  # fmt: skip
def test_an_image_for_other_processors_than_the_nodes_have(
    write: Any, check: Any, architecture: str, fleet_image: bool, verdict: str | None, fix: str
) -> None:
    local = replace(LOCAL, architecture=architecture, labels=LOCAL.labels if fleet_image else {})
    finding = check(write(), local=local).get("platform")
    assert (finding and finding["verdict"]) == verdict
    if finding:
        assert finding["fix"] == fix
        assert f"made for linux/{architecture}" in finding["evidence"]


def test_without_an_engine_ages_are_unknown_and_nothing_is_guessed(
    write: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    performed(check_images, write(), CheckImages(json=PRINTED_JSON), today=TODAY)
    document = json.loads(capsys.readouterr().out)
    verdicts = {finding["about"]: finding["verdict"] for finding in document["findings"]}
    assert verdicts == {"pin": "ok", "runner": "ok", "image": "unknown", "cuda": "ok"}
    assert "docker" in document["engine"].lower()


@pytest.mark.parametrize(("runner", "today", "verdict", "text"), [
    # 2.336.0 was followed on 2026-08-26
    ("2.336.0", date(2026, 9, 25), "warning", "0 more"),
    ("2.336.0", date(2026, 9, 26), "wrong", "over for 1"),
    (versions.ACTIONS_RUNNER, READ + timedelta(days=30), "ok", f"was the newest on {READ}"),
    (versions.ACTIONS_RUNNER, READ + timedelta(days=31), "unknown", f"not known since {READ}, 31 days ago"),
    ("9.1.0", TODAY, "unknown", "does not know runner 9.1.0"),
])  # fmt: skip
def test_a_runner_has_one_age_in_check_and_plan(
    write: Any, check: Any, monkeypatch: pytest.MonkeyPatch, runner: str, today: date, verdict: str, text: str
) -> None:
    finding = check(write(PINNED.replace(versions.ACTIONS_RUNNER, runner)), today, local=None)["runner"]
    assert finding["verdict"] == verdict
    assert text in finding["evidence"]
    assert verdict == "ok" or finding["fix"]
    monkeypatch.setattr(versions, "ACTIONS_RUNNER", runner)
    (planned,) = (item for item in software.check(named("smallest").fleet, today) if item.id == "CMP010")
    assert planned.message == finding["evidence"]
    assert planned.severity == {"ok": None, "warning": "warning", "wrong": "error", "unknown": "info"}[verdict]


def test_a_label_says_more_than_a_tag(write: Any, check: Any) -> None:
    image = f"{NAME}:blue@{DIGEST}"
    root = write(image)
    assert {check(root, local=None)[about]["verdict"] for about in ("runner", "cuda")} == {"unknown"}
    findings = check(root, local=None, **{image: labelled(runner="2.330.0", cuda="13.0")})
    assert "2.330.0" in findings["runner"]["evidence"]
    assert "CUDA 13.0 read from the image's label" in findings["cuda"]["evidence"]


@pytest.mark.parametrize(("image", "verdict", "fix"), [
    (PINNED, "ok", ""),
    (f"{NAME}@{DIGEST}", "ok", ""),
    (IMAGE, "warning", f'images.runner: "{PINNED}"'),
    (f"{NAME}:latest", "wrong", "./inv images.build runner --push --pin dev"),
    (None, "warning", f'images.runner: "ghcr.io/actions/actions-runner:{versions.ACTIONS_RUNNER}@sha256:'),
])  # fmt: skip
def test_an_image_without_a_digest_is_reported(
    write: Any, check: Any, image: str | None, verdict: str, fix: str
) -> None:
    finding = check(write(image), local=None, **{IMAGE: LOCAL})["pin"]
    assert finding["verdict"] == verdict
    assert finding["fix"].startswith(fix)
    assert bool(finding["fix"]) == bool(fix)


def test_an_image_of_one_runner_is_its_own_finding(write: Any, check: Any) -> None:
    root = write(runners={"gpu": {"pool": "t4"}, "blue": {"pool": "t4", "image": f"{NAME}:latest"}})
    assert check(root)["pin"]["evidence"].startswith("runners.blue.image")


def test_the_base_of_an_image(write: Any, check: Any) -> None:
    other = check(write(), local=labelled(digest="sha256:" + "b" * 64))["base"]
    assert (other["verdict"], other["fix"]) == ("warning", "./inv images.build runner --push --pin dev")
    older = check(write(), local=labelled(base=re.sub(r":12\.8\.\d+-", ":12.8.0-", BASE)))["base"]
    assert (older["verdict"], older["fix"]) == ("warning", "./inv images.build runner --push --pin dev")
    assert f"infra/versions.py has {BASE}" in older["evidence"]
    own = labelled(base="debian:bookworm", digest=DIGEST)
    assert check(write(), local=own)["base"]["verdict"] == "unknown"
    for days, verdict in ((21, "ok"), (22, "wrong")):
        local = replace(LOCAL, created=f"{TODAY - timedelta(days=days)}T00:00:00.123456789Z", labels={})
        assert check(write(), local=own, **{f"debian:bookworm@{DIGEST}": local})["base"]["verdict"] == verdict


@pytest.mark.parametrize(("cuda", "driver", "instance", "verdict"), [
    ("12.8", "580.159.03", "g4dn.xlarge", "ok"),
    ("12.9", "570.124.06", "g4dn.xlarge", "ok"),  # within the major
    ("13.0", "570.124.06", "g4dn.xlarge", "wrong"),
    ("13.0", "580.159.03", "p3.2xlarge", "wrong"),  # CUDA 13 dropped Volta
    ("99.9", "580.159.03", "g4dn.xlarge", "unknown"),
])  # fmt: skip
def test_cuda_on_the_driver_and_the_gpu_of_a_pool(
    write: Any, check: Any, cuda: str, driver: str, instance: str, verdict: str
) -> None:
    ami = {"custom": "ami-0123456789abcdef0", "driver": driver, "kubernetes": "1.35"}
    pools = {"t4": {"instances": [instance], "nodes": {"max": 2}, "ami": ami}}
    # What the image says of itself, above which the stack's own word stands.
    root = write(PINNED, pools=pools, images={"repositories": ["runner-gpu"], "cuda": cuda})
    findings = [finding for finding in all_findings(root) if finding["subject"] == "runners.gpu"]
    assert [finding["verdict"] for finding in findings] == [verdict]
    assert driver in findings[0]["evidence"]
    if verdict == "wrong":
        assert "./inv images.build runner --cuda 12." in findings[0]["fix"]


def all_findings(root: Path, images: Mapping[str, Local] | None = None) -> list[dict[str, str]]:
    with redirect_stdout(StringIO()) as out:
        performed(check_images, root, CheckImages(json=PRINTED_JSON), today=TODAY, engine=Shelf(images or {}))
    findings: list[dict[str, str]] = json.loads(out.getvalue())["findings"]
    return findings


def test_a_stack_that_contradicts_its_tag(write: Any) -> None:
    root = write(PINNED, images={"repositories": ["runner-gpu"], "cuda": "12.4"})
    finding = next(candidate for candidate in all_findings(root) if candidate["subject"] == "images.cuda")
    assert (finding["verdict"], finding["fix"]) == ("wrong", 'images.cuda: "12.8"')


def test_the_list_has_pinned_installed_and_local_images(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    local_only = "paddock/runner-gpu:13.0-runner2.337.0-ba9876543210"
    engine = Shelf({PINNED: LOCAL, local_only: replace(labelled(cuda="13.0", runner="2.337.0"), digests=())})
    root = write(runners={"gpu": {"pool": "t4", "container": "dind"}, "own": {"pool": "t4", "image": IMAGE}})
    performed(list_images, root, ListImages(json=PRINTED_JSON), engine=engine)
    document = json.loads(capsys.readouterr().out)

    assert [(row["image"], row["pinned"]) for row in document["runners"]] == [
        (PINNED, ["images.runner"]),
        (IMAGE, ["runners.own.image"]),
    ]
    first = document["runners"][0]
    assert (first["name"], first["tag"], first["digest"]) == (NAME, IMAGE.removeprefix(f"{NAME}:"), DIGEST)
    assert (first["cuda"], first["runner"], first["size_bytes"]) == ("12.8", versions.ACTIONS_RUNNER, 8_500_000_000)
    assert (document["runners"][1]["local"], document["runners"][1]["built"]) == (False, None)
    assert [(row["image"], row["cuda"], row["pinned"]) for row in document["local"]] == [(local_only, "13.0", [])]
    assert f"docker:{versions.DOCKER_DIND}" in [row["image"] for row in document["program"]]

    performed(list_images, root, ListImages(), engine=engine)
    text = capsys.readouterr().out
    assert f"{PINNED}\n    CUDA 12.8, runner {versions.ACTIONS_RUNNER}, built " in text
    assert "8.50 GB\n    pinned by images.runner\n" in text
    assert f"{local_only}\n    CUDA 13.0, runner 2.337.0, built 2026-" in text
    assert "only in this machine's engine" in text


def test_the_gateways_image_is_listed_and_judged_as_one(
    write: Any, check: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    image = f"registry.example.com/gateway:py3-{HASH}@{DIGEST}"
    root = write(image=None, serving={**SERVING, "gateway": {"image": image}})
    performed(list_images, root, ListImages(json=PRINTED_JSON), engine=Shelf({}))
    document = json.loads(capsys.readouterr().out)
    assert [(row["image"], row["pinned"]) for row in document["gateway"]] == [(image, ["serving.gateway.image"])]
    assert versions.RAY_LLM in [row["image"] for row in document["program"]]
    old = replace(labelled(packages="2026-01-01", base="debian:bookworm-slim"), architecture="arm64")
    (pin, built, base, platform) = (
        finding for finding in all_findings(root, {image: old}) if finding["subject"] == image
    )
    assert (pin["verdict"], built["verdict"], platform["verdict"]) == ("ok", "wrong", "wrong")
    assert built["fix"] == "./inv images.build gateway --pin dev --build-arg PACKAGES_AS_OF=$(date +%F)"
    assert platform["fix"] == "./inv images.build gateway --pin dev"
    assert "the nodes of cluster.system are linux/amd64" in platform["evidence"]
    assert base["about"] == "base"


@pytest.mark.parametrize("name", ["any-cluster", "runners-only", "images-only", "monitoring", "warm"])
def test_every_kind_of_fleet_has_a_list(name: str) -> None:
    fleet = named(name).fleet
    assert all(row.tag for row in (*image_inventory.of_fleet(fleet, None), *image_inventory.of_program(fleet)))


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_the_projects_stacks_pass_while_their_runner_is_new(stack: str, capsys: pytest.CaptureFixture[str]) -> None:
    performed(check_images, ROOT, CheckImages(stack=stack, json=PRINTED_JSON), today=TODAY, engine=Shelf({}))
    verdicts = {finding["verdict"] for finding in json.loads(capsys.readouterr().out)["findings"]}
    assert verdicts == {"ok", "warning", "unknown"}


def test_the_layers_of_an_image_by_size(capsys: pytest.CaptureFixture[str]) -> None:
    layers = (Layer(0, "ENV A=b"), Layer(200_000, "RUN one"), Layer(3_000_000_000, "RUN two # buildkit"))
    engine = Shelf({IMAGE: LOCAL, "paddock/cuda-builder:12.8-0": LOCAL}, layers)
    performed(list_images, ROOT, ListImages(image="runner-gpu"), engine=engine)
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == IMAGE
    assert [row.split()[0] for row in rows[1:]] == ["3.00", "3.00", "0.2"]
    performed(list_images, ROOT, ListImages(image=IMAGE, json=PRINTED_JSON), engine=engine)
    document = json.loads(capsys.readouterr().out)
    assert [row["size_bytes"] for row in document["layers"]] == [3_000_000_000, 200_000, 0]
    assert document["size_bytes"] == 3_000_200_000  # not what the store says, which may be packed
    with pytest.raises(BuildInputError, match="did you mean cuda-builder"):
        performed(list_images, ROOT, ListImages(image="cuda-buildr"), engine=engine)
    with pytest.raises(BuildInputError, match="docker pull"):
        performed(list_images, ROOT, ListImages(image="nobody/has:this"), engine=engine)
    with pytest.raises(BadReference, match="is not an image reference"):
        performed(list_images, ROOT, ListImages(image="Runner-GPU"), engine=engine)
