"""EC2 Image Builder pipeline for GPU machine images. Building is asked for by a task; `up` never waits for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import pulumi
import pulumi_aws as aws

from infra.component import Component, allow, assumed_by, policy
from infra.images import ami_components
from infra.network.vpc import Network
from paddock.fleet import Fleet

_POLICIES = (
    "arn:aws:iam::aws:policy/EC2InstanceProfileForImageBuilder",
    "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore",
)
LOG_DAYS = 365


class AmiPipeline(Component):
    """Starts from Amazon's EKS NVIDIA image for the cluster's minor, so driver, toolkit and nodeadm match already."""

    def __init__(
        self, name: str, fleet: Fleet, network: Network | None, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, opts)
        build = fleet.images.ami
        key = self.key(name, f"GPU machine images of {fleet.name}", volumes_of=fleet.region, logs_of=fleet.region)
        documents = ami_components.documents(fleet)
        parameters = ami_components.parameters(fleet)
        # The image's version is its recipe's, so it is in the image itself, too.
        version = content_version(
            str(build.disk), json.dumps(parameters, sort_keys=True), *(document.data for document in documents)
        )
        values = {parameter: value for parameter, value in {**parameters, "recipe": version}.items() if value}
        # Names stay automatic: with a fixed one a change would delete first, while the recipe still points at it.
        recipe = aws.imagebuilder.ImageRecipe(
            f"{name}-recipe",
            parent_image=(
                f"ssm:/aws/service/eks/optimized-ami/{fleet.cluster.version}"
                f"/amazon-linux-2023/x86_64/nvidia/{_release(fleet)}/image_id"
            ),
            version=version,
            components=[
                aws.imagebuilder.ImageRecipeComponentArgs(
                    component_arn=self._component(document, key).arn, parameters=_parameters(document, values)
                )
                for document in documents
            ],
            # Image Builder would take the agent away again, by which one gets onto a node without SSH.
            systems_manager_agent={"uninstall_after_build": False},
            block_device_mappings=[
                {
                    "device_name": "/dev/xvda",
                    "ebs": {
                        "volume_type": "gp3",
                        "volume_size": build.disk,
                        "encrypted": "true",
                        "kms_key_id": key.arn,
                        "delete_on_termination": "true",
                    },
                }
            ],
            opts=self.child(),
        )
        role = self.role(f"{name}-builder", assumed_by("ec2.amazonaws.com"), _POLICIES, _pull(fleet))
        profile = aws.iam.InstanceProfile(f"{name}-builder", role=role.name, opts=self.child())
        infrastructure = aws.imagebuilder.InfrastructureConfiguration(
            f"{name}-builder",
            instance_profile_name=profile.name,
            # GPU types only: the test phase then runs on a real GPU.
            instance_types=list(build.instances),
            subnet_id=network.subnet_ids()[0] if network else None,
            security_group_ids=[self._builder_group(name, network).id] if network else None,
            instance_metadata_options={"http_tokens": "required", "http_put_response_hop_limit": 1},
            terminate_instance_on_failure=True,
            resource_tags=fleet.aws_tags,
            opts=self.child(),
        )
        distribution = aws.imagebuilder.DistributionConfiguration(
            f"{name}-distribution",
            distributions=[
                {
                    "region": fleet.region,
                    "ami_distribution_configuration": {
                        "name": f"{fleet.name}-gpu-{fleet.cluster.version}-{{{{ imagebuilder:buildDate }}}}",
                        "ami_tags": {**fleet.tags, **ami_components.tags(fleet)},
                        "kms_key_id": key.arn,
                    },
                }
            ],
            opts=self.child(),
        )
        # Image Builder would make the group without a key, and keep it for ever.
        logs = aws.cloudwatch.LogGroup(
            f"{name}-builds",
            name=recipe.name.apply(lambda recipe_name: f"/aws/imagebuilder/{recipe_name}"),
            retention_in_days=LOG_DAYS,
            kms_key_id=key.arn,
            # The logs of a recipe outlive it: one wants to read why the last build failed.
            opts=self.child(retain_on_delete=True),
        )
        self.pipeline = aws.imagebuilder.ImagePipeline(
            name,
            image_recipe_arn=recipe.arn,
            infrastructure_configuration_arn=infrastructure.arn,
            distribution_configuration_arn=distribution.arn,
            enhanced_image_metadata_enabled=True,
            # Without a time: Image Builder ignores it, and the steps have their own.
            image_tests_configuration={"image_tests_enabled": True},
            schedule={"schedule_expression": build.schedule} if build.schedule else None,
            # So that the one who starts a build can see what it is for.
            tags={"paddock:kubernetes": fleet.cluster.version},
            opts=self.child(depends_on=[logs, *self.permissions]),
        )
        self.register_outputs({"pipelineArn": self.pipeline.arn})

    def _component(self, document: ami_components.Document, key: aws.kms.Key) -> aws.imagebuilder.Component:
        return aws.imagebuilder.Component(
            f"{self.name}-{document.name}",
            platform="Linux",
            supported_os_versions=["Amazon Linux 2023"],
            version=content_version(document.data),
            data=document.data,
            kms_key_id=key.arn,
            opts=self.child(),
        )

    def _builder_group(self, name: str, network: Network) -> aws.ec2.SecurityGroup:
        return aws.ec2.SecurityGroup(
            f"{name}-builder",
            vpc_id=network.vpc_id,
            description="Image builds: HTTPS out, nothing in",
            egress=[
                {
                    "protocol": "tcp",
                    "from_port": 443,
                    "to_port": 443,
                    "cidr_blocks": ["0.0.0.0/0"],
                    "description": "Packages, registries and AWS APIs",
                }
            ],
            opts=self.child(),
        )


def _parameters(
    document: ami_components.Document, values: Mapping[str, str]
) -> list[aws.imagebuilder.ImageRecipeComponentParameterArgs] | None:
    """None rather than an empty list, which Image Builder refuses."""
    return [
        aws.imagebuilder.ImageRecipeComponentParameterArgs(name=name, value=values[name])
        for name in document.parameters
        if name in values
    ] or None


def _pull(fleet: Fleet) -> str | None:
    """May the builder pull the runner image? From one repository, and only where that is in ECR."""
    image = ami_components.runner_image(fleet)
    repository = ami_components.ecr_repository(image) if image else None
    if repository is None:
        return None
    read = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    return policy(allow(["ecr:GetAuthorizationToken"]), allow(read, repository))


def _release(fleet: Fleet) -> str:
    """The pinned release in the form SSM names it, so that a build does not depend on its day."""
    if fleet.eks_release is None:
        return "recommended"
    date = fleet.eks_release.rpartition("-")[2]
    return f"amazon-eks-node-al2023-x86_64-nvidia-{fleet.cluster.version}-v{date}"


def content_version(*contents: str) -> str:
    """A version that changes with the content: Image Builder's versions can never be overwritten."""
    digest = hashlib.sha256("\0".join(contents).encode()).hexdigest()
    return f"1.{int(digest[:6], 16)}.{int(digest[6:12], 16)}"
