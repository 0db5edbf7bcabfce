"""Dry runs of EC2: requests that AWS judges with every policy and carries out none of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from paddock.errors import program
from paddock.fleet import NewNetwork
from paddock.init.permissions.policy import statements
from paddock.operate.doctor.checks import software
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Result
from paddock.operate.sources.unavailable import Unavailable

_result = partial(Result, area="permissions", subject="EC2 dry runs")


@dataclass(frozen=True, slots=True)
class _Request:
    """A request that EC2 takes with DryRun."""

    action: str
    operation: str
    parameters: dict[str, Any] = field(default_factory=dict)
    of: str = ""
    """What it is about, where one action is tried with several things."""

    @property
    def name(self) -> str:
        return f"{self.action} of {self.of}" if self.of else self.action


def dry_runs(context: Context) -> Iterator[Result]:
    """Ask EC2 for what the stack makes there, as dry runs: service control policies and conditions count, too."""
    needed = {action for statement in statements(context.graph(), context.fleet.region) for action in statement.actions}
    requests = [request for request in _requests(context) if request.action in needed]
    allowed: list[_Request] = []
    denied: list[_Request] = []
    for request in requests:
        may = context.aws.may("ec2", request.operation, **request.parameters)
        (allowed if may else denied).append(request)
    if denied:
        listed = ", ".join(request.name for request in denied)
        yield _result(
            status="fail",
            message=f"AWS refuses {listed}: a policy of the role, a boundary or a service control policy",
            fix=f"{program()} init.permissions --stack {context.stack.name} --write policies   # policies to attach",
            permission=", ".join(sorted({request.action for request in denied})),
        )
    elif allowed:
        yield _result(status="pass", message=f"AWS allows {', '.join(request.name for request in allowed)}")


def _requests(context: Context) -> Iterator[_Request]:
    network = context.fleet.network
    if isinstance(network, NewNetwork):
        yield _Request("ec2:CreateVpc", "create_vpc", {"CidrBlock": str(network.cidr), **_tags(context, "vpc")})
        yield _Request("ec2:CreateInternetGateway", "create_internet_gateway", _tags(context, "internet-gateway"))
        yield _Request("ec2:AllocateAddress", "allocate_address", {"Domain": "vpc", **_tags(context, "elastic-ip")})
    for pool in context.fleet.pools.values():
        type_ = pool.types[0].name
        data = {"LaunchTemplateName": f"{context.fleet.name}-doctor", "LaunchTemplateData": {"InstanceType": type_}}
        template = {**data, **_tags(context, "launch-template")}
        yield _Request("ec2:CreateLaunchTemplate", "create_launch_template", template, type_)
        try:
            images = software.images(pool, context).images
        except Unavailable:
            images = []  # the check of the image says so
        if images:
            instance = {"ImageId": images[0]["ImageId"], "InstanceType": type_, "MinCount": 1, "MaxCount": 1}
            yield _Request("ec2:RunInstances", "run_instances", {**instance, **_tags(context, "instance")}, type_)


def _tags(context: Context, kind: str) -> dict[str, Any]:
    """Return the tag that every resource of the fleet has: policies may demand it."""
    tags = {**context.fleet.tags, "paddock:fleet": context.fleet.name}
    return {
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in sorted(tags.items())]}
        ]
    }
