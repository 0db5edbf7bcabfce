"""An account of AWS in moto with machine images of a fleet, and a project whose stacks may use them."""

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
from botocore.awsrequest import AWSResponse
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from paddock.aws.client import Aws

REGION = "us-west-2"
DRIVER = "580.159.03"
TAGS = {"fleet": "paddock-dev", "kubernetes": "1.36", "driver": DRIVER, "cuda": "13.0", "kernel": "6.12.30"}


PIPELINE = f"arn:aws:imagebuilder:{REGION}:{DEFAULT_ACCOUNT_ID}:image-pipeline/gpu-ami-1a2b3c4"
BUILDS: dict[str, str] = {}
"""Status by ARN of what the fleet's pipeline has built."""


@functools.cache
def client(service: str, region: str = REGION) -> Any:
    """Return a shared client: a client of EC2 takes as long as a test."""
    boto_client = boto3.client(service, region_name=region, aws_access_key_id="none", aws_secret_access_key="none")
    if service == "imagebuilder":
        boto_client.meta.events.register("before-call.imagebuilder", _image_builder)
    return boto_client


def _image_builder(model: Any, params: dict[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
    """Answers that moto lacks: one pipeline of the fleet and one of another, whose builds nobody may ask for."""
    if model.name == "ListImagePipelines":
        fleets = {PIPELINE: "paddock-dev", f"{PIPELINE}-another": "another"}
        listed = [{"arn": arn, "name": "gpu-ami", "tags": {"paddock:fleet": fleet}} for arn, fleet in fleets.items()]
        answer = {"imagePipelineList": listed}
    else:
        assert model.name == "ListImagePipelineImages"
        assert json.loads(params["body"])["imagePipelineArn"] == PIPELINE
        answer = {"imageSummaryList": [{"arn": arn, "state": {"status": status}} for arn, status in BUILDS.items()]}
    return AWSResponse("", 200, {}, None), answer


class World:
    """An account in moto. Images are made an hour apart, each a day younger than the one before."""

    def __init__(self) -> None:
        self.ec2 = client("ec2")
        self.autoscaling = client("autoscaling")
        run = self.ec2.run_instances(ImageId="ami-0aaaaaaaaaaaaaaaa", MinCount=1, MaxCount=1)
        self.builder = run["Instances"][0]["InstanceId"]
        self.image_count = 0

    def image(self, **tags: str) -> str:
        self.image_count += 1
        id: str = self.ec2.create_image(InstanceId=self.builder, Name=f"gpu-{self.image_count}")["ImageId"]
        image_tags = [{"Key": f"paddock:{key}", "Value": value} for key, value in tags.items()]
        if image_tags:
            self.ec2.create_tags(Resources=[id], Tags=image_tags)
        self.backend(id).creation_date = datetime(2026, 8, 1, tzinfo=UTC).replace(tzinfo=None) + timedelta(
            self.image_count
        )
        return id

    def untested(self, status: str) -> str:
        """An image whose build has ended so, or goes on, and is not through its tests."""
        build = f"arn:aws:imagebuilder:{REGION}:{DEFAULT_ACCOUNT_ID}:image/gpu-ami-recipe-5d6e7f8/1.4.2/{len(BUILDS)}"
        BUILDS[build] = status
        id = self.image()
        tags = {"CreatedBy": "EC2 Image Builder", "Ec2ImageBuilderArn": build}
        self.ec2.create_tags(Resources=[id], Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
        return id

    def backend(self, id: str) -> Any:
        return ec2_backends[DEFAULT_ACCOUNT_ID][REGION].amis[id]

    def snapshot(self, id: str) -> str:
        return str(self.ec2.describe_images(ImageIds=[id])["Images"][0]["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"])

    def template(self, *images: str) -> str:
        """A launch template with a version for each image."""
        first, *later = images
        name = f"t4-{len(self.ec2.describe_launch_templates()['LaunchTemplates'])}"
        self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData={"ImageId": first})
        for other in later:
            self.ec2.create_launch_template_version(LaunchTemplateName=name, LaunchTemplateData={"ImageId": other})
        return name

    @property
    def aws(self) -> Aws:
        return Aws(REGION, client)

    @property
    def images(self) -> set[str]:
        return {image["ImageId"] for image in self.ec2.describe_images(Owners=["self"])["Images"]}

    @property
    def snapshots(self) -> set[str]:
        return {snapshot["SnapshotId"] for snapshot in self.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # hundreds, which no test looks at
    BUILDS.clear()
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
