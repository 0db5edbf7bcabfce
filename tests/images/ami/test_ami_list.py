"""`inv ami.list` against moto's EC2."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from paddock.aws.client import Aws
from paddock.aws.errors import AwsError
from paddock.console.output import PRINTED_JSON
from paddock.console.project import OfStack
from paddock.images.ami import usage
from paddock.images.commands.ami_list import list_amis
from paddock.images.commands.ami_prune import PruneAmis, prune
from tests.support.ami_account import DRIVER, REGION, TAGS, World, client, edit
from tests.support.performing import performed


def listed(aws: Aws, project: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    performed(list_amis, project, OfStack(json=PRINTED_JSON), aws=aws)
    return {image["id"]: image for image in json.loads(capsys.readouterr().out)["images"]}


def test_the_fleets_images_are_listed_with_what_uses_them(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older, newer = world.image(**TAGS), world.image(fleet="paddock-dev")
    world.image(fleet="another"), world.image()
    name = world.template(older, newer, older)
    edit(project, "nodes: {min: 0, max: 5}", f"nodes: {{min: 0, max: 5}}  # before: {newer}")

    images = listed(world.aws, project, capsys)

    assert list(images) == [newer, older]
    assert images[older]["facts"] == {
        **{key: TAGS[key] for key in ("driver", "cuda", "kubernetes", "kernel")},
        **dict.fromkeys(("toolkit", "release", "runner_image")),
    }
    assert images[older]["in_use_by"] == [f"launch template {name} versions 1, 3 (latest)"]
    assert images[newer]["in_use_by"] == ["Pulumi.dev.yaml:16", f"launch template {name} version 2"]
    assert (images[older]["gib"], images[older]["usd_month_at_most"]) == (15, None)  # no source has us-west-2's price


def test_a_price_of_the_catalogue_is_shown(world: World, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    id = world.image(**TAGS)
    edit(project, "aws:region: us-west-2", "aws:region: us-east-1")
    copied = client("ec2", "us-east-1")
    copy = copied.copy_image(SourceImageId=id, SourceRegion=REGION, Name="copy")["ImageId"]
    copied.create_tags(Resources=[copy], Tags=[{"Key": "paddock:fleet", "Value": "paddock-dev"}])
    east = Aws("us-east-1", client)
    assert listed(east, project, capsys)[copy]["usd_month_at_most"] == 0.75


@pytest.mark.parametrize("columns", ["40", "120"])
def test_the_text_lists_each_image_with_its_uses(
    columns: str, world: World, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    performed(list_amis, project, OfStack(), aws=world.aws)
    assert "ami.build --stack dev makes one" in capsys.readouterr().out
    id = world.image(**TAGS)
    name = world.template(id)
    performed(list_amis, project, OfStack(), aws=world.aws)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0::3] == [id, "available"]
    assert lines[1:] == [
        f"    driver {DRIVER}, cuda 13.0, kubernetes 1.36, kernel 6.12.30",
        "    at most 15 GiB of snapshots; what they cost in us-west-2 the catalogue does not know",
        f"    used by launch template {name} version 1 (latest)",
    ]


def test_the_list_says_when_uses_cannot_be_read(
    world: World, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    id = world.image(**TAGS)

    class Blind(Aws):
        def pages(self, service: str, operation: str, key: str, **parameters: Any) -> Iterator[dict[str, Any]]:
            if operation == "describe_launch_templates":
                raise AwsError("AWS denies ec2:DescribeLaunchTemplates", "UnauthorizedOperation")
            return super().pages(service, operation, key, **parameters)

    performed(list_amis, project, OfStack(json=PRINTED_JSON), aws=Blind(REGION, client))
    document = json.loads(capsys.readouterr().out)
    assert (document["images"][0]["id"], document["images"][0]["in_use_by"]) == (id, None)
    assert document["uses_unknown"] == "AWS denies ec2:DescribeLaunchTemplates"
    with pytest.raises(AwsError, match="denies"):  # what is not known to be unused stays
        performed(prune, project, PruneAmis(keep=0, yes=True), aws=Blind(REGION, client))
    assert id in world.images


def test_a_launch_template_that_was_deleted_meanwhile_names_nothing(world: World, project: Path) -> None:
    """Such as one of Karpenter's, which come and go."""
    id = world.image(**TAGS)
    remaining = world.template(id)
    world.template(id)

    class Late(Aws):
        def pages(self, service: str, operation: str, key: str, **parameters: Any) -> Iterator[dict[str, Any]]:
            for item in super().pages(service, operation, key, **parameters):
                if operation == "describe_launch_templates" and item["LaunchTemplateName"] != remaining:
                    world.ec2.delete_launch_template(LaunchTemplateId=item["LaunchTemplateId"])
                yield item

    uses = usage.used(Late(REGION, client), [id], project)
    assert [use for use in uses[id] if "launch template" in use] == [f"launch template {remaining} version 1 (latest)"]


def test_a_launch_template_counts_in_every_version_on_every_page(tmp_path: Path) -> None:
    """Moto ends after the first page."""
    ec2 = boto3.client("ec2", region_name=REGION, aws_access_key_id="none", aws_secret_access_key="none")
    autoscaling = client("autoscaling")
    id, template = "ami-0123456789abcdef0", {"LaunchTemplateId": "lt-0123456789abcdef0", "LaunchTemplateName": "gpu-t4"}
    pages = [range(500, 300, -1), range(300, 100, -1), range(100, 0, -1)]
    with Stubber(ec2) as ec2_stub, Stubber(autoscaling) as autoscaling_stub:
        ec2_stub.add_response(
            "describe_launch_templates", {"LaunchTemplates": [template | {"LatestVersionNumber": 500}]}
        )
        for number, page in enumerate(pages):
            versions = [
                {"VersionNumber": version, "LaunchTemplateData": {"ImageId": id if version <= 200 else "ami-0"}}
                for version in page
            ]
            more = {"NextToken": f"{number + 1}"} if page is not pages[-1] else {}
            # EC2 resolves a parameter of Systems Manager only where it is told to.
            resolved = {"LaunchTemplateId": ANY, "ResolveAlias": True, "MaxResults": ANY}
            resolved |= {"NextToken": f"{number}"} if number else {}
            answer = {"LaunchTemplateVersions": versions, **more}
            ec2_stub.add_response("describe_launch_template_versions", answer, resolved)
        autoscaling_stub.add_response("describe_launch_configurations", {"LaunchConfigurations": []})
        ec2_stub.add_response("describe_instances", {"Reservations": []})
        uses = usage.used(
            Aws(REGION, lambda service, _: {"ec2": ec2, "autoscaling": autoscaling}[service]), [id], tmp_path
        )
    assert uses == {id: ("launch template gpu-t4 versions 200, 199, 198, 197, 196 and 195 more",)}
