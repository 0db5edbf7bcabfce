"""An account of AWS in moto with machine images of a fleet, and a project whose stacks may use them."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends

from paddock.build.aws import Aws

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
