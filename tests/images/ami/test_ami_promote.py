"""`inv ami.promote` against moto's EC2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.console.output import PRINTED_JSON
from paddock.fleet import load
from paddock.images.commands.ami_promote import PromoteAmi, promote
from paddock.images.errors import BuildError, BuildInputError
from tests.support.ami_account import DRIVER, TAGS, World, edit
from tests.support.performing import performed


def test_a_matching_image_is_pinned_and_nothing_else_changes(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    id = world.image(**TAGS)
    file = project / "Pulumi.dev.yaml"
    before = file.read_text()

    performed(promote, project, PromoteAmi(id=id), aws=world.aws)

    output = capsys.readouterr().out
    assert f"Pulumi.dev.yaml names {id} for t4" in output
    assert "t4: from Amazon's image to yours takes a new node group" in output
    assert output.endswith("next: ./inv plan --stack dev\n")
    after = file.read_text()
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert [line for line in after.splitlines() if line not in added] == before.splitlines()
    pool = load(project, "dev").fleet.pools["t4"]
    assert pool.ami.model_dump() == {"custom": id, "driver": DRIVER, "kubernetes": "1.36"}

    performed(promote, project, PromoteAmi(id=id), aws=world.aws)
    assert f"names {id} already for t4" in capsys.readouterr().out
    assert file.read_text() == after


def test_an_older_kubelet_is_noted_and_pinned(world: World, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = world.image(**TAGS), world.image(**TAGS | {"kubernetes": "1.35"})
    performed(promote, project, PromoteAmi(id=first), aws=world.aws)
    capsys.readouterr()
    performed(promote, project, PromoteAmi(id=second), aws=world.aws)
    output = capsys.readouterr().out
    assert "note  pools.t4: kubelet 1.35, the cluster runs 1.36: that works until" in output
    assert "t4: nodes that run are replaced, 1 at a time, new ones start first" in output
    assert load(project, "dev").fleet.pools["t4"].ami.model_dump()["kubernetes"] == "1.35"


def test_only_the_pools_asked_for_are_pinned(world: World, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(project, "    runners:", "      spare: {instances: [g4dn.xlarge], nodes: {max: 1}}\n    runners:")
    id = world.image(**TAGS)
    performed(promote, project, PromoteAmi(id=id, pool=("spare",), json=PRINTED_JSON), aws=world.aws)
    document = json.loads(capsys.readouterr().out)
    assert document["changed"] == ["spare"]
    pools = load(project, "dev").fleet.pools
    assert pools["t4"].ami is None
    assert pools["spare"].ami is not None


BOTTLEROCKET = "ami: {bottlerocket: 1.62.0-1e8d1a37}"


def test_bottlerocket_pools_are_left_alone_unless_named(world: World, project: Path) -> None:
    edit(
        project,
        "    runners:",
        f"      b: {{instances: [g4dn.xlarge], nodes: {{max: 1}}, {BOTTLEROCKET}}}\n    runners:",
    )
    id = world.image(**TAGS)
    performed(promote, project, PromoteAmi(id=id), aws=world.aws)
    pools = load(project, "dev").fleet.pools
    assert pools["t4"].ami is not None
    assert BOTTLEROCKET in (project / "Pulumi.dev.yaml").read_text()
    performed(promote, project, PromoteAmi(id=id, pool=("b",)), aws=world.aws)
    assert BOTTLEROCKET not in (project / "Pulumi.dev.yaml").read_text()


@pytest.mark.parametrize(
    ("tags", "old", "new", "message"),
    [
        ({"kubernetes": "1.37"}, "", "", "pools.t4: kubelet 1.37, the cluster runs 1.36: a kubelet may not be newer"),
        ({"kubernetes": "1.32"}, "", "", "pools.t4: kubelet 1.32, the cluster runs 1.36: a kubelet may be at most 3"),
        (
            {},
            "[g4dn.xlarge, g4dn.2xlarge]",
            "[g7.2xlarge]",
            "pools.t4: g7 needs driver R595 or newer, and its image has 580.159.03",
        ),
        (
            {"driver": "535.1.1"},
            "[g4dn.xlarge, g4dn.2xlarge]",
            "[p6-b200.48xlarge]",
            "does not yet drive .*: it supports CUDA 12.2",
        ),
        (
            {"driver": "535.261.03"},
            "    runners:",
            "    images: {runner: 'ghcr.io/acme/runner:cuda13.0', cuda: '13.0'}\n    runners:",
            r"runners.gpu: CUDA 13.0 \(images.cuda\): 535.261.03 is below 580",
        ),
        (
            {},
            "nodes: {min: 0, max: 5}",
            "nodes: {min: 0, max: 5}\n        disk: {size: 12Gi}\n"
            '        ami: {custom: ami-0123456789abcdef0, driver: "580.159.03", kubernetes: "1.36"}',
            "15 GiB, the pool's .* 12",
        ),
    ],
    ids=[
        "newer kubelet",
        "older kubelet",
        "driver of the family",
        "driver of the GPU",
        "driver of the image's CUDA",
        "disk",
    ],
)
def test_an_image_that_does_not_fit_is_refused_with_the_numbers(
    tags: dict[str, str], old: str, new: str, message: str, world: World, project: Path
) -> None:
    file = edit(project, old, new) if old else project / "Pulumi.dev.yaml"
    before = file.read_bytes()
    id = world.image(**TAGS | tags)
    with pytest.raises(BuildError, match=message) as raised:
        performed(promote, project, PromoteAmi(id=id), aws=world.aws)
    assert raised.value.exit_code == 1
    assert file.read_bytes() == before


def test_an_image_for_another_architecture_is_refused(world: World, project: Path) -> None:
    id = world.image(**TAGS)
    world.backend(id).architecture = "arm64"
    with pytest.raises(BuildError, match=r"pools.t4: the image is for arm64, the instances are x86_64"):
        performed(promote, project, PromoteAmi(id=id), aws=world.aws)


@pytest.mark.parametrize(("held", "keys", "message"), [
    ("ghcr.io/acme/runner@sha256:{old}", "", "holds ghcr.io/acme/runner@sha256:{old}, and runners start ghcr.io"),
    ("", "", "holds no runner image, and runners start ghcr.io/acme/runner@sha256:{new}: the first job"),
    ("", "ami: {prePull: false}", ""),
    ("ghcr.io/acme/runner@sha256:{new}", "", ""),
    ("ghcr.io/acme/runner@sha256:{new}", "ami: {prePull: false}", ""),
])  # fmt: skip
def test_a_different_runner_image_is_reported_and_pinned(
    held: str, keys: str, message: str, world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digests = {"old": "4" * 64, "new": "5" * 64}
    runner = f"ghcr.io/acme/runner:tag@sha256:{digests['new']}"
    images = ", ".join(filter(None, (f"runner: {runner}", keys)))
    edit(project, "    runners:", f"    images: {{{images}}}\n    runners:")
    id = world.image(**TAGS, **({"runner-image": held.format(**digests)} if held else {}))
    performed(promote, project, PromoteAmi(id=id, json=PRINTED_JSON), aws=world.aws)
    document = json.loads(capsys.readouterr().out)
    assert document["changed"] == ["t4"]
    runner_checks = [check for check in document["checks"] if check["subject"] == "images.runner"]
    assert [check["fits"] for check in runner_checks] == ([None] if message else [])
    assert not message or message.format(**digests) in runner_checks[0]["text"]
    unproved = [check for check in document["checks"] if check["subject"] == "images.ami"]
    assert [check["fits"] for check in unproved] == ([] if held else [None])


@pytest.mark.parametrize("keys", ["", "    images: {runner: ghcr.io/acme/runner:tag, ami: {prePull: false}}\n"])
def test_an_image_tested_without_cuda_is_pinned_with_a_note(
    keys: str, world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(project, "    runners:", f"{keys}    runners:")
    performed(promote, project, PromoteAmi(id=world.image(**TAGS)), aws=world.aws)
    output = capsys.readouterr().out
    assert "note  images.ami: it contained no runner image, so its tests proved neither CUDA nor" in output
    assert "write images.runner with a digest and images.ami.prePull: true, and build again\n" in output
    assert "Pulumi.dev.yaml names ami-" in output


def test_every_unfit_pool_is_reported_and_none_is_written(world: World, project: Path) -> None:
    pools = "".join(
        f"      p{n}: {{instances: [p4d.24xlarge], capacity: on-demand, nodes: {{max: 1}}}}\n" for n in (1, 2)
    )
    file = edit(project, "    runners:", f"{pools}    runners:")
    before = file.read_bytes()
    id = world.image(**TAGS | {"kubernetes": "1.37"})
    with pytest.raises(BuildError) as raised:
        performed(promote, project, PromoteAmi(id=id), aws=world.aws)
    refused = [line.split(":")[0].strip() for line in str(raised.value).splitlines()[1:-1]]
    assert refused == ["pools.t4", "pools.p1", "pools.p2"]
    assert file.read_bytes() == before


@pytest.mark.parametrize(("tags", "state", "message"), [
    (TAGS, "pending", "is pending in us-west-2\n    fix: wait"),
    (TAGS, "failed", "is failed in us-west-2\n    fix: choose another"),
    (TAGS | {"fleet": "another"}, "available", "belongs to another, and stack dev uses images of paddock-dev"),
    ({}, "available", "has no tag paddock:fleet"),
    ({"fleet": "paddock-dev"}, "available", "has no tag paddock:driver and paddock:kubernetes"),
    (TAGS | {"driver": "newest"}, "available", "not versions: paddock:driver = 'newest'"),
])  # fmt: skip
def test_an_image_that_is_not_usable_is_refused(
    tags: dict[str, str], state: str, message: str, world: World, project: Path
) -> None:
    before = (project / "Pulumi.dev.yaml").read_bytes()
    id = world.image(**tags)
    world.backend(id).state = state
    with pytest.raises(BuildInputError, match=message):
        performed(promote, project, PromoteAmi(id=id), aws=world.aws)
    assert (project / "Pulumi.dev.yaml").read_bytes() == before


def test_an_image_that_is_not_there_names_those_that_are(world: World, project: Path) -> None:
    id = world.image(**TAGS)
    missing = "ami-00000000000000000"
    with pytest.raises(BuildInputError, match=f"{missing} is not in us-west-2.*\n.*paddock-dev in us-west-2: {id}\n"):
        performed(promote, project, PromoteAmi(id=missing), aws=world.aws)
    with pytest.raises(
        BuildInputError, match=r"'ami-1' is not an image ID\n    expected: .*\n    fix: .*ami.list --stack dev"
    ):
        performed(promote, project, PromoteAmi(id="ami-1"), aws=world.aws)


def test_an_unknown_pool_is_reported_before_any_request(project: Path) -> None:
    with pytest.raises(BuildInputError, match=r"stack dev has no pool 't5'\n.*one of t4\n    fix: name one"):
        performed(promote, project, PromoteAmi(id="ami-00000000000000000", pool=("t5",)))
