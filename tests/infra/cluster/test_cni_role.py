"""The CNI's role by IAM's semantics: it works in the fleet's VPC, and is of no use elsewhere."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from typing import Any

import pytest

from infra.cluster.control_plane import cni_policy
from tests.support import fleets

FLEET = fleets.named("dev").fleet
VPC, OTHER = (f"arn:aws:ec2:{FLEET.region}:123456789012:vpc/vpc-{end}" for end in ("0a", "0b"))
POLICY = json.loads(cni_policy(FLEET, "vpc-0a"))
Values = Mapping[str, str]


def arn(kind: str) -> str:
    return f"arn:aws:ec2:{FLEET.region}:123456789012:{kind}/x-1"


def of_vpc(vpc: str) -> Values:
    return {"ec2:Vpc": vpc}


def of_fleet(name: str) -> Values:
    return {"aws:ResourceTag/paddock:fleet": name}


MADE: Values = {"ec2:CreateAction": "CreateNetworkInterface"}


def holds(operator: str, key: str, wanted: str, values: Values) -> bool:
    """Return whether one condition holds; a key that the request does not have holds none of these."""
    if key not in values:
        return False
    return {"StringEquals": values[key] == wanted, "ArnEquals": fnmatch.fnmatchcase(values[key], wanted)}[operator]


def allowed(action: str, resources: Mapping[str, Values]) -> bool:
    """Return whether IAM allows a request: each of its resources needs a statement that allows the action on it."""

    def grants(statement: Mapping[str, Any], resource: str, values: Values) -> bool:
        patterns = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
        return (
            f"ec2:{action}" in statement["Action"]
            and any(fnmatch.fnmatchcase(resource, pattern) for pattern in patterns)
            and all(
                holds(operator, key, wanted, values)
                for operator, keys in statement.get("Condition", {}).items()
                for key, wanted in keys.items()
            )
        )

    return all(
        any(grants(statement, arn(kind), values) for statement in POLICY["Statement"])
        for kind, values in resources.items()
    )


# What the Service Authorization Reference of EC2 checks of each action: every resource, with the keys that it has.
def requests(vpc: str, fleet: str) -> dict[str, dict[str, Values]]:
    interface, instance = of_vpc(vpc), of_fleet(fleet)
    return {
        "CreateNetworkInterface": {"network-interface": {}, "subnet": interface, "security-group": interface},
        "AttachNetworkInterface": {"network-interface": interface, "instance": instance},
        "DetachNetworkInterface": {"network-interface": interface, "instance": instance},
        "DeleteNetworkInterface": {"network-interface": interface},
        "AssignPrivateIpAddresses": {"network-interface": interface},
        "UnassignPrivateIpAddresses": {"network-interface": interface},
        "ModifyNetworkInterfaceAttribute": {"network-interface": interface, "security-group": interface},
        "CreateTags": {"network-interface": interface},
    }


@pytest.mark.parametrize("action", requests(VPC, FLEET.name))
def test_the_cni_works_in_its_vpc_and_not_elsewhere(action: str) -> None:
    assert allowed(action, requests(VPC, FLEET.name)[action])
    assert not allowed(action, requests(OTHER, "other")[action])


@pytest.mark.parametrize("action", ["AttachNetworkInterface", "DetachNetworkInterface"])
def test_instances_of_others_in_the_vpc_keep_their_interfaces(action: str) -> None:
    assert not allowed(action, requests(VPC, "other")[action])
    assert not allowed(action, {**requests(VPC, "other")[action], "instance": {}})


def test_tags_go_on_interfaces_alone() -> None:
    assert allowed("CreateTags", {"network-interface": MADE})
    assert not allowed("CreateTags", {"instance": {**of_vpc(VPC), **of_fleet(FLEET.name), **MADE}})


def test_instances_and_their_first_interfaces_have_the_tag() -> None:
    templates = [item for item in fleets.graph("dev").resources.values() if item.type.endswith("LaunchTemplate")]
    assert templates
    for template in templates:
        tags = {entry["resourceType"]: entry["tags"] for entry in template.inputs["tagSpecifications"]}
        assert tags["instance"]["paddock:fleet"] == FLEET.name


def test_nobody_has_the_policy_that_holds_everywhere() -> None:
    given = [item.inputs.get("policyArn") for item in fleets.graph("dev").resources.values()]
    assert not [policy for policy in given if "CNI" in str(policy)]
