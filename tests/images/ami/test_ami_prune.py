"""`inv ami.prune`: what it takes and leaves for every account there can be, and against moto's EC2."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.stub import Stubber
from hypothesis import given
from hypothesis import strategies as st
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from paddock.aws.client import Aws
from paddock.aws.errors import AwsError
from paddock.console.output import PRINTED_JSON
from paddock.console.project import OfStack
from paddock.images.ami.images import MachineImage, Snapshot, of_fleet, owned
from paddock.images.ami.prune import decide
from paddock.images.commands.ami_list import list_amis
from paddock.images.commands.ami_promote import PromoteAmi, promote
from paddock.images.commands.ami_prune import PruneAmis, prune
from paddock.images.errors import BuildInputError
from tests.support.ami_account import REGION, TAGS, World, client, edit
from tests.support.performing import performed

FLEET = "paddock-dev"
SNAPSHOTS = [f"snap-{n}" for n in range(6)]
IDS = [f"ami-{n}" for n in range(8)]
TAGGED = [
    {"paddock:fleet": FLEET},
    {"paddock:fleet": FLEET, "Ec2ImageBuilderArn": "a-lost-build"},  # such as one of a distribution that failed
    {"paddock:fleet": "another", "Ec2ImageBuilderArn": "a-lost-build"},
    {"Ec2ImageBuilderArn": "a-lost-build"},
    {"Ec2ImageBuilderArn": "another-build"},
    {},
]


@st.composite
def machine_images(draw: st.DrawFn) -> list[MachineImage]:
    """Images of few snapshots and days, so that they share both."""
    return [
        MachineImage(
            id=id,
            name=id,
            state=draw(st.sampled_from(["available", "available", "pending", "failed", "disabled"])),
            reason="",
            created=datetime(2026, 8, draw(st.integers(1, 4)), tzinfo=UTC),
            arch="x86_64",
            root_gib=60,
            snapshots=dict.fromkeys(draw(st.lists(st.sampled_from(SNAPSHOTS), max_size=2, unique=True)), 60),
            protected=draw(st.booleans()),
            tags=draw(st.sampled_from(TAGGED)),
        )
        for id in draw(st.lists(st.sampled_from(IDS), unique=True))
    ]


few = st.lists(st.sampled_from(IDS), max_size=3, unique=True)


@given(machine_images(), few, few, few, st.integers(0, 3), st.booleans())
def test_only_unneeded_images_are_removed(
    images: list[MachineImage], used: list[str], shared: list[str], named: list[str], keep: int, by_name: bool
) -> None:
    remaining_snapshots = [Snapshot(id, f"ami-{n}", 60) for n, id in enumerate(SNAPSHOTS)]
    names = named if by_name else []
    own = of_fleet(images, FLEET, {"a-lost-build"})
    removal = decide(
        own, images, remaining_snapshots, dict.fromkeys(used, ("x",)), dict.fromkeys(shared, ("y",)), keep, names
    )

    assert own == tuple(image for image in images if image.tags in (TAGGED[0], TAGGED[1], TAGGED[3]))
    going, staying = removal.images, [image for image in images if image not in removal.images]
    assert sorted(image.id for image in (*going, *(retained.image for retained in removal.retained))) == sorted(
        i.id for i in own
    )
    for image in going:
        assert image in own
        assert image.id not in used
        assert image.state != "pending"
        assert not image.protected
        assert image.id in names if names else image.id not in shared
    if names:
        assert not removal.snapshots
    else:
        ready = [image for image in own if image.state == "available" and image.tags != TAGGED[3]]
        newest = sorted(ready, key=lambda i: (i.created, i.id), reverse=True)[:keep]
        assert not any(image in newest for image in going)
        assert all(image in going or image in newest or _needed(image, used, shared) for image in own)

    needed = {id for image in staying for id in image.snapshots}
    deleted = {id for image in going for id in removal.goes_with(image)} | {
        snapshot.id for snapshot in removal.snapshots
    }
    assert not deleted & needed
    there = {image.id for image in images}
    assert all(snapshot.image not in there for snapshot in removal.snapshots)
    assert removal.gib == 60 * len(deleted)


def _needed(image: MachineImage, used: list[str], shared: list[str]) -> bool:
    return image.id in used or image.id in shared or image.protected or image.state == "pending"


def test_the_newest_of_the_nodes_own_minor_stay(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = {"kubernetes": "1.35"}
    unneeded, way_back, _ = (world.image(**TAGS | older) for _ in range(3))
    pinned = world.image(**TAGS | older)
    performed(promote, project, PromoteAmi(id=pinned), aws=world.aws)
    world.image(**TAGS), world.image(**TAGS)
    capsys.readouterr()
    performed(prune, project, PruneAmis(keep=3, json=PRINTED_JSON), aws=world.aws)
    document = json.loads(capsys.readouterr().out)
    assert [image["id"] for image in document["images"]] == [unneeded]
    assert {"id": way_back, "why": "one of the newest"} in document["kept"]


def test_nothing_is_removed_without_yes(world: World, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = [world.image(**TAGS) for _ in range(4)]
    images, snapshots = world.images, world.snapshots
    assert performed(prune, project, PruneAmis(json=PRINTED_JSON), aws=world.aws) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dry_run"] is True
    assert [image["id"] for image in document["images"]] == [ids[1], ids[0]]
    assert (document["gib"], document["usd_month_at_most"]) == (30, None)
    assert (world.images, world.snapshots) == (images, snapshots)
    performed(prune, project, PruneAmis(), aws=world.aws)
    assert "Nothing is removed without --yes" in capsys.readouterr().out


def test_an_unused_image_is_removed_with_its_snapshots(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned, templated, configured, stopped, shared, unused, newest = (world.image(**TAGS) for _ in range(7))
    foreign, failed = world.image(fleet="another"), world.image(**TAGS)
    world.backend(failed).state = "failed"
    edit(project, "nodes: {min: 0, max: 5}", f"nodes: {{min: 0, max: 5}}  # the way back: {unused}")
    (project / "Pulumi.other.yaml").write_text(
        f"config: {{paddock:fleet: {{pools: {{a: {{ami: {{custom: {pinned}}}}}}}}}}}"
    )
    edit(project, unused, "none")
    world.template(templated, newest)
    world.autoscaling.create_launch_configuration(
        LaunchConfigurationName="old", ImageId=configured, InstanceType="g4dn.xlarge"
    )
    instance = world.ec2.run_instances(ImageId=stopped, MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    world.ec2.stop_instances(InstanceIds=[instance])
    world.ec2.modify_image_attribute(ImageId=shared, LaunchPermission={"Add": [{"UserId": "999988887777"}]})
    removed = {world.snapshot(unused), world.snapshot(failed)}
    kept_snapshots = world.snapshots - removed

    class Ec2(Aws):
        def ask(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
            if parameters.get("ImageId") == failed:  # as EC2 answers; moto does not
                raise AwsError("AWS refused ec2:DescribeImageAttribute", "InvalidAMIID.Unavailable")
            return super().ask(service, operation, **parameters)

    aws = Ec2(REGION, client)
    assert performed(prune, project, PruneAmis(keep=1, yes=True, json=PRINTED_JSON), aws=aws) == 0

    document = json.loads(capsys.readouterr().out)
    assert set(document["removed"]) == {unused, failed}
    assert set(document["deleted"]) == removed
    assert world.images == {pinned, templated, configured, stopped, shared, newest, foreign}
    assert world.snapshots == kept_snapshots
    why = {image["id"]: image["why"] for image in document["kept"]}
    assert why[pinned] == "in use: Pulumi.other.yaml:1"
    assert why[templated].startswith("in use: launch template t4-0 version 1")
    assert why[configured] == "in use: launch configuration old"
    assert why[stopped].startswith("in use: instance i-")
    assert why[shared].startswith("shared with 999988887777")

    assert performed(prune, project, PruneAmis(keep=1, image=(shared,), yes=True), aws=world.aws) == 0
    assert shared not in world.images
    assert newest in world.images


def test_failed_images_are_removed_and_images_under_test_stay(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Image Builder makes the image before it tests it, and leaves it where the test fails."""
    tested = world.image(**TAGS)
    failed, cancelled, testing, unknown = (
        world.untested(status) for status in ("FAILED", "CANCELLED", "TESTING", "AVAILABLE")
    )
    removed = {world.snapshot(failed), world.snapshot(cancelled)}
    with pytest.raises(BuildInputError, match="has no tag paddock:fleet"):
        performed(promote, project, PromoteAmi(id=failed), aws=world.aws)
    performed(list_amis, project, OfStack(json=PRINTED_JSON), aws=world.aws)
    listed = {image["id"]: image["tested"] for image in json.loads(capsys.readouterr().out)["images"]}
    assert listed == {tested: True, failed: False, cancelled: False}
    performed(list_amis, project, OfStack(), aws=world.aws)
    assert capsys.readouterr().out.count("left by a build that failed or was cancelled") == 2

    assert performed(prune, project, PruneAmis(keep=1, yes=True), aws=world.aws) == 0
    assert world.images == {tested, testing, unknown}
    assert not removed & world.snapshots


def test_a_removal_that_was_interrupted_is_finished_by_the_next(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = world.image(**TAGS), world.image(**TAGS)
    snapshots = {world.snapshot(first), world.snapshot(second)}
    backup = world.ec2.create_snapshot(
        VolumeId=world.ec2.create_volume(Size=1, AvailabilityZone=f"{REGION}a")["VolumeId"],
        TagSpecifications=[{"ResourceType": "snapshot", "Tags": [{"Key": "paddock:fleet", "Value": "paddock-dev"}]}],
    )["SnapshotId"]

    class Stopped(Aws):
        def change(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
            if operation == "delete_snapshot":
                raise KeyboardInterrupt
            return super().change(service, operation, **parameters)

    with pytest.raises(KeyboardInterrupt):
        performed(prune, project, PruneAmis(keep=0, yes=True), aws=Stopped(REGION, client))
    assert first in world.images
    assert second not in world.images
    assert snapshots <= world.snapshots

    performed(prune, project, PruneAmis(keep=0), aws=world.aws)
    assert world.snapshot(first) not in (output := capsys.readouterr().out)
    assert f"{second}" in output
    assert performed(prune, project, PruneAmis(keep=0, yes=True), aws=world.aws) == 0
    assert first not in world.images
    assert not snapshots & world.snapshots
    assert backup in world.snapshots  # of a volume, not of an image


def test_an_image_created_during_the_scan_keeps_its_snapshots(world: World, project: Path) -> None:
    world.image(**TAGS)
    come: list[str] = []

    class Busy(Aws):
        def pages(self, service: str, operation: str, key: str, **parameters: Any) -> Iterator[dict[str, Any]]:
            yield from super().pages(service, operation, key, **parameters)
            if operation == "describe_images" and not come:  # a copy, whose snapshots AWS tags as Image Builder does
                come.append(world.image(**TAGS))
                snapshot = world.snapshot(come[0])
                tags = [{"Key": "paddock:fleet", "Value": "paddock-dev"}]
                world.ec2.create_tags(Resources=[snapshot], Tags=tags)
                backend = ec2_backends[DEFAULT_ACCOUNT_ID][REGION].snapshots[snapshot]
                backend.description = (
                    f"Copied for DestinationAmi {come[0]} from SourceAmi ami-1 for SourceSnapshot snap-1"
                )

    assert performed(prune, project, PruneAmis(keep=0, yes=True), aws=Busy(REGION, client)) == 0
    assert come[0] in world.images
    assert world.snapshot(come[0]) in world.snapshots


def test_refusals_of_aws_are_reported_and_the_rest_is_removed(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = world.image(**TAGS), world.image(**TAGS)

    class Refusing(Aws):
        def change(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
            if parameters.get("ImageId") == second:
                raise AwsError("AWS denies ec2:DeregisterImage\n    fix: allow it", "UnauthorizedOperation")
            return super().change(service, operation, **parameters)

    assert performed(prune, project, PruneAmis(keep=0, yes=True), aws=Refusing(REGION, client)) == 1
    assert f"{second} stays: AWS denies ec2:DeregisterImage\n" in capsys.readouterr().err
    assert world.images == {second}
    assert world.snapshot(second) in world.snapshots
    assert first not in world.images


def test_protected_and_disabled_images_are_recognized() -> None:
    """Moto knows neither."""
    ec2, day = client("ec2", "us-east-2"), "2026-08-21T10:40:00.000Z"
    described = [
        {"ImageId": "ami-1", "State": "available", "CreationDate": day, "DeregistrationProtection": protection}
        for protection in ("enabled-with-cooldown", "enabled-without-cooldown", "disabled")
    ]
    with Stubber(ec2) as stub:
        expected = {"Owners": ["self"], "IncludeDeprecated": True, "IncludeDisabled": True}
        stub.add_response("describe_images", {"Images": described}, expected)
        images = owned(Aws("us-east-2", lambda service, _: {"ec2": ec2}[service]))
    assert [image.protected for image in images] == [True, True, False]


def test_invalid_arguments_remove_nothing(world: World, project: Path) -> None:
    world.image(**TAGS)
    foreign = world.image(fleet="another")
    images = world.images
    with pytest.raises(
        BuildInputError,
        match=f"'{foreign}' is not an image of paddock-dev .*\n    expected: .*\n    fix: .*ami.list --stack dev",
    ):
        performed(prune, project, PruneAmis(image=(foreign,), yes=True), aws=world.aws)
    (project / "Pulumi.broken.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(BuildInputError, match=r"Pulumi.broken.yaml cannot be read"):
        performed(prune, project, PruneAmis(keep=0, yes=True), aws=world.aws)
    assert world.images == images
