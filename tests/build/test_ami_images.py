"""`inv ami.list`, `ami.promote` and `ami.prune` against moto's EC2."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from paddock.build import command_ami
from paddock.build.ami import uses
from paddock.build.aws import Aws, AwsError
from paddock.build.errors import BuildError, BuildInputError
from paddock.fleet import load

REGION = "us-west-2"
DRIVER = "580.159.03"
TAGS = {"fleet": "paddock-dev", "kubernetes": "1.35", "driver": DRIVER, "cuda": "13.0", "kernel": "6.12.30"}


@functools.cache
def client(service: str, region: str = REGION) -> Any:
    """Made once: a client of EC2 takes as long as a test."""
    return boto3.client(service, region_name=region, aws_access_key_id="none", aws_secret_access_key="none")


class World:
    """An account in moto. Images are made an hour apart, each a day younger than the one before."""

    def __init__(self) -> None:
        self.ec2 = client("ec2")
        self.autoscaling = client("autoscaling")
        run = self.ec2.run_instances(ImageId="ami-0aaaaaaaaaaaaaaaa", MinCount=1, MaxCount=1)
        self.builder = run["Instances"][0]["InstanceId"]
        self.made = 0

    def image(self, **tags: str) -> str:
        self.made += 1
        id: str = self.ec2.create_image(InstanceId=self.builder, Name=f"gpu-{self.made}")["ImageId"]
        told = [{"Key": f"paddock:{key}", "Value": value} for key, value in tags.items()]
        if told:
            self.ec2.create_tags(Resources=[id], Tags=told)
        self.backend(id).creation_date = datetime(2026, 8, 1, tzinfo=UTC).replace(tzinfo=None) + timedelta(self.made)
        return id

    def backend(self, id: str) -> Any:
        return ec2_backends[DEFAULT_ACCOUNT_ID][REGION].amis[id]

    def snapshot(self, id: str) -> str:
        return str(self.ec2.describe_images(ImageIds=[id])["Images"][0]["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"])

    def template(self, *images: str) -> str:
        """A launch template with a version for each image."""
        first, *others = images
        name = f"t4-{len(self.ec2.describe_launch_templates()['LaunchTemplates'])}"
        self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData={"ImageId": first})
        for other in others:
            self.ec2.create_launch_template_version(LaunchTemplateName=name, LaunchTemplateData={"ImageId": other})
        return name

    @property
    def aws(self) -> Aws:
        return Aws(REGION, client, client)

    @property
    def images(self) -> set[str]:
        return {each["ImageId"] for each in self.ec2.describe_images(Owners=["self"])["Images"]}

    @property
    def snapshots(self) -> set[str]:
        return {each["SnapshotId"] for each in self.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # hundreds, which no test looks at
    with mock_aws():
        yield World()


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Path:
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml", "Pulumi.prod.yaml"):
        shutil.copy(root / name, tmp_path)
    return tmp_path


def edit(project: Path, old: str, new: str) -> Path:
    file = project / "Pulumi.dev.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return file


def listed(aws: Aws, project: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    command_ami.list_images(project, "dev", as_json=True, aws=aws)
    return {each["id"]: each for each in json.loads(capsys.readouterr().out)["images"]}


# --- ami.list


def test_the_fleets_images_are_listed_with_what_uses_them(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer = world.image(**TAGS), world.image(fleet="paddock-dev")
    world.image(fleet="another"), world.image()
    name = world.template(older, newer, older)
    edit(project, "nodes: {min: 0, max: 5}", f"nodes: {{min: 0, max: 5}}  # before: {newer}")

    found = listed(world.aws, project, capsys)

    assert list(found) == [newer, older]
    assert found[older]["facts"] == {
        **{key: TAGS[key] for key in ("driver", "cuda", "kubernetes", "kernel")},
        **dict.fromkeys(("toolkit", "release", "runner_image")),
    }
    assert found[older]["in_use_by"] == [f"launch template {name} versions 1, 3 (latest)"]
    assert found[newer]["in_use_by"] == ["Pulumi.dev.yaml:16", f"launch template {name} version 2"]
    assert (found[older]["gib"], found[older]["usd_month_at_most"]) == (15, None)  # no source has us-west-2's price


def test_a_price_that_the_catalogue_has_is_told(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    id = world.image(**TAGS)
    edit(project, "aws:region: us-west-2", "aws:region: us-east-1")
    copied = client("ec2", "us-east-1")
    copy = copied.copy_image(SourceImageId=id, SourceRegion=REGION, Name="copy")["ImageId"]
    copied.create_tags(Resources=[copy], Tags=[{"Key": "paddock:fleet", "Value": "paddock-dev"}])
    east = Aws("us-east-1", lambda service: client(service, "us-east-1"))
    assert listed(east, project, capsys)[copy]["usd_month_at_most"] == 0.75


@pytest.mark.parametrize("columns", ["40", "120"])
def test_people_see_each_image_with_its_uses(
    columns: str, world: World, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    command_ami.list_images(project, "dev", aws=world.aws)
    assert "build-ami --stack dev makes one" in capsys.readouterr().out
    id = world.image(**TAGS)
    name = world.template(id)
    command_ami.list_images(project, "dev", aws=world.aws)
    said = capsys.readouterr().out.splitlines()
    assert said[0].split()[0::3] == [id, "available"]
    assert said[1:] == [
        f"    driver {DRIVER}, cuda 13.0, kubernetes 1.35, kernel 6.12.30",
        "    at most 15 GiB of snapshots; what they cost in us-west-2 the catalogue does not know",
        f"    used by launch template {name} version 1 (latest)",
    ]


def test_without_the_right_to_see_what_uses_them_the_list_says_so(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    id = world.image(**TAGS)

    class Blind(Aws):
        def pages(self, service: str, operation: str, key: str, **asked: Any) -> Iterator[dict[str, Any]]:
            if operation == "describe_launch_templates":
                raise AwsError("AWS denies ec2:DescribeLaunchTemplates", "UnauthorizedOperation")
            return super().pages(service, operation, key, **asked)

    command_ami.list_images(project, "dev", as_json=True, aws=Blind(REGION, client, client))
    told = json.loads(capsys.readouterr().out)
    assert (told["images"][0]["id"], told["images"][0]["in_use_by"]) == (id, None)
    assert told["uses_unknown"] == "AWS denies ec2:DescribeLaunchTemplates"
    with pytest.raises(BuildError, match="denies"):  # what is not known to be unused stays
        command_ami.prune_images(project, "dev", keep=0, yes=True, aws=Blind(REGION, client, client))
    assert id in world.images


def test_a_launch_template_counts_in_every_version_on_every_page(tmp_path: Path) -> None:
    """Moto ends after the first page."""
    ec2 = boto3.client("ec2", region_name=REGION, aws_access_key_id="none", aws_secret_access_key="none")
    autoscaling = client("autoscaling")
    id, template = "ami-0123456789abcdef0", {"LaunchTemplateId": "lt-0123456789abcdef0", "LaunchTemplateName": "gpu-t4"}
    pages = [range(500, 300, -1), range(300, 100, -1), range(100, 0, -1)]
    with Stubber(ec2) as asked, Stubber(autoscaling) as others:
        asked.add_response("describe_launch_templates", {"LaunchTemplates": [template | {"LatestVersionNumber": 500}]})
        for number, page in enumerate(pages):
            versions = [
                {"VersionNumber": each, "LaunchTemplateData": {"ImageId": id if each <= 200 else "ami-0"}}
                for each in page
            ]
            more = {"NextToken": f"{number + 1}"} if page is not pages[-1] else {}
            asked.add_response("describe_launch_template_versions", {"LaunchTemplateVersions": versions, **more})
        others.add_response("describe_launch_configurations", {"LaunchConfigurations": []})
        asked.add_response("describe_instances", {"Reservations": []})
        found = uses.used(Aws(REGION, {"ec2": ec2, "autoscaling": autoscaling}.__getitem__), [id], tmp_path)
    assert found == {id: ("launch template gpu-t4 versions 200, 199, 198, 197, 196 and 195 more",)}


# --- ami.promote


def test_an_image_that_fits_is_pinned_and_nothing_else_changes(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    id = world.image(**TAGS)
    file = project / "Pulumi.dev.yaml"
    before = file.read_text()

    command_ami.promote_image(project, "dev", id, aws=world.aws)

    said = capsys.readouterr().out
    assert f"Pulumi.dev.yaml names {id} for t4" in said
    assert "t4: nodes that run are replaced, 1 at a time, new ones start first" in said
    assert said.endswith("next: ./inv plan --stack dev\n")
    after = file.read_text()
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert [line for line in after.splitlines() if line not in added] == before.splitlines()
    pool = load(project, "dev").fleet.pools["t4"]
    assert pool.ami is not None
    assert pool.ami.model_dump() == {"custom": id, "driver": DRIVER, "kubernetes": "1.35"}

    command_ami.promote_image(project, "dev", id, aws=world.aws)
    assert f"names {id} already for t4" in capsys.readouterr().out
    assert file.read_text() == after


def test_only_the_pools_asked_for_are_pinned(world: World, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(project, "    runners:", "      spare: {instances: [g4dn.xlarge], nodes: {max: 1}}\n    runners:")
    id = world.image(**TAGS)
    command_ami.promote_image(project, "dev", id, pools=["spare"], as_json=True, aws=world.aws)
    told = json.loads(capsys.readouterr().out)
    assert told["changed"] == ["spare"]
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
    command_ami.promote_image(project, "dev", id, aws=world.aws)
    pools = load(project, "dev").fleet.pools
    assert pools["t4"].ami is not None
    assert BOTTLEROCKET in (project / "Pulumi.dev.yaml").read_text()
    command_ami.promote_image(project, "dev", id, pools=["b"], aws=world.aws)
    assert BOTTLEROCKET not in (project / "Pulumi.dev.yaml").read_text()


@pytest.mark.parametrize(
    ("tags", "old", "new", "said"),
    [
        ({"kubernetes": "1.36"}, "", "", "pools.t4: kubelet 1.36, the cluster runs 1.35: a kubelet may not be newer"),
        ({"kubernetes": "1.34"}, "", "", "pools.t4: kubelet 1.34, the cluster runs 1.35"),
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
            "does not yet drive .*: it speaks CUDA 12.2",
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
            "nodes: {min: 0, max: 5}\n        disk: {size: 10Gi}",
            "15 GiB, the pool's .* 10",
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
    tags: dict[str, str], old: str, new: str, said: str, world: World, project: Path
) -> None:
    file = edit(project, old, new) if old else project / "Pulumi.dev.yaml"
    before = file.read_bytes()
    id = world.image(**TAGS | tags)
    with pytest.raises(BuildError, match=said) as raised:
        command_ami.promote_image(project, "dev", id, aws=world.aws)
    assert raised.value.exit_code == 1
    assert file.read_bytes() == before


def test_every_pool_that_does_not_fit_is_told_and_none_is_written(world: World, project: Path) -> None:
    pools = "".join(
        f"      p{n}: {{instances: [p4d.24xlarge], capacity: on-demand, nodes: {{max: 1}}}}\n" for n in (1, 2)
    )
    file = edit(project, "    runners:", f"{pools}    runners:")
    before = file.read_bytes()
    id = world.image(**TAGS | {"kubernetes": "1.34"})
    with pytest.raises(BuildError) as raised:
        command_ami.promote_image(project, "dev", id, aws=world.aws)
    refused = [line.split(":")[0].strip() for line in str(raised.value).splitlines()[1:-1]]
    assert refused == ["pools.t4", "pools.p1", "pools.p2"]
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("tags", "state", "said"),
    [
        (TAGS, "pending", "is pending in us-west-2\n    fix: wait"),
        (TAGS, "failed", "is failed in us-west-2\n    fix: choose another"),
        (TAGS | {"fleet": "another"}, "available", "belongs to another, and stack dev uses images of paddock-dev"),
        ({}, "available", "has no tag paddock:fleet"),
        ({"fleet": "paddock-dev"}, "available", "has no tag paddock:driver and paddock:kubernetes"),
        (TAGS | {"driver": "newest"}, "available", "no versions: paddock:driver = 'newest'"),
    ],
)
def test_an_image_that_is_not_usable_is_refused(
    tags: dict[str, str], state: str, said: str, world: World, project: Path
) -> None:
    before = (project / "Pulumi.dev.yaml").read_bytes()
    id = world.image(**tags)
    world.backend(id).state = state
    with pytest.raises(BuildInputError, match=said):
        command_ami.promote_image(project, "dev", id, aws=world.aws)
    assert (project / "Pulumi.dev.yaml").read_bytes() == before


def test_an_image_that_is_not_there_names_those_that_are(world: World, project: Path) -> None:
    id = world.image(**TAGS)
    missing = "ami-00000000000000000"
    with pytest.raises(BuildInputError, match=f"{missing} is not in us-west-2.*\n.*paddock-dev in us-west-2: {id}\n"):
        command_ami.promote_image(project, "dev", missing, aws=world.aws)
    with pytest.raises(BuildInputError, match="'latest' is no image ID"):
        command_ami.promote_image(project, "dev", "latest", aws=world.aws)


def test_a_pool_that_is_not_there_is_named_before_aws_is_asked(project: Path) -> None:
    with pytest.raises(BuildInputError, match=r"there is no pool 't5' in stack dev\n.*one of t4$"):
        command_ami.promote_image(project, "dev", "ami-00000000000000000", pools=["t5"])


# --- ami.prune


def test_nothing_goes_without_yes(world: World, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = [world.image(**TAGS) for _ in range(4)]
    images, snapshots = world.images, world.snapshots
    assert command_ami.prune_images(project, "dev", as_json=True, aws=world.aws)
    told = json.loads(capsys.readouterr().out)
    assert told["dry_run"] is True
    assert [each["id"] for each in told["images"]] == [made[1], made[0]]
    assert (told["gib"], told["usd_month_at_most"]) == (30, None)
    assert (world.images, world.snapshots) == (images, snapshots)
    command_ami.prune_images(project, "dev", aws=world.aws)
    assert "Nothing is removed without --yes" in capsys.readouterr().out


def test_what_nothing_uses_goes_with_its_snapshots(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pinned, templated, configured, running, shared, unused, newest = (world.image(**TAGS) for _ in range(7))
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
    world.ec2.run_instances(ImageId=running, MinCount=1, MaxCount=1)
    world.ec2.modify_image_attribute(ImageId=shared, LaunchPermission={"Add": [{"UserId": "999988887777"}]})
    gone = {world.snapshot(unused), world.snapshot(failed)}
    kept_snapshots = world.snapshots - gone

    class Ec2(Aws):
        def ask(self, service: str, operation: str, **asked: Any) -> dict[str, Any]:
            if asked.get("ImageId") == failed:  # as EC2 answers; moto does not
                raise AwsError("AWS refused ec2:DescribeImageAttribute", "InvalidAMIID.Unavailable")
            return super().ask(service, operation, **asked)

    aws = Ec2(REGION, client, client)
    assert command_ami.prune_images(project, "dev", keep=1, yes=True, as_json=True, aws=aws)

    told = json.loads(capsys.readouterr().out)
    assert set(told["removed"]) == {unused, failed}
    assert set(told["deleted"]) == gone
    assert world.images == {pinned, templated, configured, running, shared, newest, foreign}
    assert world.snapshots == kept_snapshots
    why = {each["id"]: each["why"] for each in told["kept"]}
    assert why[pinned] == "in use: Pulumi.other.yaml:1"
    assert why[templated].startswith("in use: launch template t4-0 version 1")
    assert why[configured] == "in use: launch configuration old"
    assert why[running].startswith("in use: instance i-")
    assert why[shared].startswith("shared with 999988887777")

    assert command_ami.prune_images(project, "dev", keep=1, named=[shared], yes=True, aws=world.aws)
    assert shared not in world.images
    assert newest in world.images


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
        def change(self, service: str, operation: str, **asked: Any) -> dict[str, Any]:
            if operation == "delete_snapshot":
                raise KeyboardInterrupt
            return super().change(service, operation, **asked)

    with pytest.raises(KeyboardInterrupt):
        command_ami.prune_images(project, "dev", keep=0, yes=True, aws=Stopped(REGION, client, client))
    assert first in world.images
    assert second not in world.images
    assert snapshots <= world.snapshots

    command_ami.prune_images(project, "dev", keep=0, aws=world.aws)
    assert world.snapshot(first) not in (said := capsys.readouterr().out)
    assert f"{second}" in said
    assert command_ami.prune_images(project, "dev", keep=0, yes=True, aws=world.aws)
    assert first not in world.images
    assert not snapshots & world.snapshots
    assert backup in world.snapshots  # of a volume, not of an image


def test_what_aws_refuses_is_told_and_the_rest_goes(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = world.image(**TAGS), world.image(**TAGS)

    class Refusing(Aws):
        def change(self, service: str, operation: str, **asked: Any) -> dict[str, Any]:
            if asked.get("ImageId") == second:
                raise AwsError("AWS denies ec2:DeregisterImage\n    fix: allow it", "UnauthorizedOperation")
            return super().change(service, operation, **asked)

    assert not command_ami.prune_images(project, "dev", keep=0, yes=True, aws=Refusing(REGION, client, client))
    assert f"{second} stays: AWS denies ec2:DeregisterImage\n" in capsys.readouterr().err
    assert world.images == {second}
    assert world.snapshot(second) in world.snapshots
    assert first not in world.images


def test_bad_wishes_remove_nothing(world: World, project: Path) -> None:
    world.image(**TAGS)
    foreign = world.image(fleet="another")
    images = world.images
    with pytest.raises(BuildInputError, match="--keep: -1"):
        command_ami.prune_images(project, "dev", keep=-1, yes=True, aws=world.aws)
    with pytest.raises(BuildInputError, match=f"'{foreign}' is no image of paddock-dev"):
        command_ami.prune_images(project, "dev", named=[foreign], yes=True, aws=world.aws)
    (project / "Pulumi.broken.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(BuildInputError, match=r"Pulumi.broken.yaml cannot be read"):
        command_ami.prune_images(project, "dev", keep=0, yes=True, aws=world.aws)
    assert world.images == images
