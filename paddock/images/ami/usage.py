"""Users of a machine image: stack files, launch templates, launch configurations and instances."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from paddock.aws.client import Aws
from paddock.aws.errors import AwsError
from paddock.images.pin import stack_lines

_AMI_ID = re.compile(r"\bami-[0-9a-f]{8,17}\b")
_FILTER_VALUES = 200
"""Values that EC2 takes in one filter."""
_WHOLE_PAGES = {"PageSize": 200}
_VERSIONS_TOLD = 5


def pins(root: Path) -> dict[str, tuple[str, ...]]:
    """`file:line` of every image named anywhere in a stack file, in comments too: a way back counts as a use."""
    places_by_id: dict[str, list[str]] = {}
    for place, line in stack_lines(root):
        for id in _AMI_ID.findall(line):
            places_by_id.setdefault(id, []).append(place)
    return {id: tuple(places) for id, places in places_by_id.items()}


def used(aws: Aws, ids: Collection[str], root: Path) -> dict[str, tuple[str, ...]]:
    """The uses of each image that has any.

    A launch template counts in every version, as an Auto Scaling group may name an old one. Raises BuildError where
    one of the sources cannot be read: what is not known to be unused is in use.
    """
    if not ids:
        return {}
    uses_by_id = {id: list(places) for id, places in pins(root).items() if id in ids}
    for id, use in (*_templates(aws, ids), *_configurations(aws, ids), *_instances(aws, ids)):
        uses_by_id.setdefault(id, []).append(use)
    return {id: tuple(uses) for id, uses in uses_by_id.items()}


def _templates(aws: Aws, ids: Collection[str]) -> Iterator[tuple[str, str]]:
    for template in aws.pages("ec2", "describe_launch_templates", "LaunchTemplates", PaginationConfig=_WHOLE_PAGES):
        versions: dict[str, list[str]] = {}
        for version in _versions(aws, template["LaunchTemplateId"]):
            id, number = version["LaunchTemplateData"].get("ImageId", ""), version["VersionNumber"]
            if id in ids:
                latest = " (latest)" if number == template["LatestVersionNumber"] else ""
                versions.setdefault(id, []).append(f"{number}{latest}")
        for id, numbers in versions.items():
            many, more = "versions" if len(numbers) > 1 else "version", len(numbers) - _VERSIONS_TOLD
            listed = ", ".join(numbers[:_VERSIONS_TOLD]) + (f" and {more} more" if more > 0 else "")
            yield id, f"launch template {template['LaunchTemplateName']} {many} {listed}"


def _versions(aws: Aws, template: str) -> list[dict[str, Any]]:
    """Return the versions of a launch template; none where it was deleted since it was listed."""
    try:
        # ResolveAlias: a template may name its image by a parameter of Systems Manager.
        return list(
            aws.pages(
                "ec2",
                "describe_launch_template_versions",
                "LaunchTemplateVersions",
                LaunchTemplateId=template,
                ResolveAlias=True,
                PaginationConfig=_WHOLE_PAGES,
            )
        )
    except AwsError as error:
        if error.code == "InvalidLaunchTemplateId.NotFound":
            return []
        raise


def _configurations(aws: Aws, ids: Collection[str]) -> Iterator[tuple[str, str]]:
    for configuration in aws.pages("autoscaling", "describe_launch_configurations", "LaunchConfigurations"):
        if configuration["ImageId"] in ids:
            yield configuration["ImageId"], f"launch configuration {configuration['LaunchConfigurationName']}"


def _instances(aws: Aws, ids: Collection[str]) -> Iterator[tuple[str, str]]:
    counted: dict[str, list[str]] = {}
    living = {"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}
    listed = sorted(ids)
    for start in range(0, len(listed), _FILTER_VALUES):
        filters = [{"Name": "image-id", "Values": listed[start : start + _FILTER_VALUES]}, living]
        for reservation in aws.pages("ec2", "describe_instances", "Reservations", Filters=filters):
            for instance in reservation["Instances"]:
                counted.setdefault(instance["ImageId"], []).append(instance["InstanceId"])
    for id, instances in counted.items():
        more = f" and {len(instances) - 1} more" if len(instances) > 1 else ""
        yield id, f"instance {instances[0]}{more}"
