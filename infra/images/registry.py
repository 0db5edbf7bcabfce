"""ECR repositories: tags never move, every image is scanned, everything is encrypted with our key."""

from __future__ import annotations

import json

import pulumi
import pulumi_aws as aws

from infra.component import Component
from infra.manifests import manifest
from paddock.fleet import Fleet


class Registry(Component):
    """One repository an image, under the fleet's name."""

    repositories: dict[str, aws.ecr.Repository]
    url: pulumi.Output[str]
    """Host and prefix that image names are appended to."""

    def __init__(self, name: str, fleet: Fleet, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        key = self.key(name, f"Container images of {fleet.name}")
        self.repositories = {
            image: aws.ecr.Repository(
                f"{name}-{image}",
                name=f"{fleet.name}/{image}",
                image_tag_mutability="IMMUTABLE",
                image_scanning_configuration={"scan_on_push": True},
                encryption_configurations=[{"encryption_type": "KMS", "kms_key": key.arn}],
                opts=self.child(protect=True),
            )
            for image in fleet.images.repositories
        }
        for image, repository in self.repositories.items():
            aws.ecr.LifecyclePolicy(
                f"{name}-{image}",
                repository=repository.name,
                policy=json.dumps(manifest("lifecycle", keep=fleet.images.keep)),
                opts=self.child(),
            )
        self.url = self.account().apply(lambda account: f"{account}.dkr.ecr.{fleet.region}.amazonaws.com/{fleet.name}")
        self.register_outputs({"url": self.url})
