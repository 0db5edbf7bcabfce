"""Dependencies between resources at creation and removal; and what keeps jobs alive between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from paddock.fleet import nodes
from paddock.fleet.model.runner import LOWEST_PRIORITY
from paddock.plan.engine.graph import Graph, Resource
from tests.infra.test_golden import parts, user_data
from tests.support.fleets import ALL, ROOT, graph

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
WAYS_OUT = (
    "aws:ec2/route:Route",
    "aws:ec2/routeTableAssociation:RouteTableAssociation",
    "aws:ec2/vpcEndpoint:VpcEndpoint",
)


def needed(planned: Graph, resource: Resource) -> set[str]:
    """URNs of all that is made before a resource and goes after it."""
    visited: set[str] = set()
    pending = {resource.parent, resource.provider.rpartition("::")[0], *resource.dependencies}
    while pending:
        urn = pending.pop()
        if urn in planned.resources and urn not in visited:
            visited.add(urn)
            other = planned.resources[urn]
            pending |= {other.parent, other.provider.rpartition("::")[0], *other.dependencies}
    return visited


def of(sample: str, *types: str) -> list[Resource]:
    return [resource for type_ in types for resource in graph(sample).of_type(type_)]


@pytest.mark.parametrize("sample", ALL)
def test_nodes_have_their_permissions_as_long_as_they_live(sample: str) -> None:
    policies = {r.urn for r in of(sample, "aws:iam/rolePolicyAttachment:RolePolicyAttachment") if "-node-" in r.name}

    for group in of(sample, NODE_GROUP):
        assert policies
        assert policies <= needed(graph(sample), group), group.name


@pytest.mark.parametrize("sample", ["prod", "smallest", "private"])
def test_nodes_and_releases_depend_on_the_route_out(sample: str) -> None:
    ways = {r.urn for r in of(sample, *WAYS_OUT)}

    assert ways
    for resource in of(sample, NODE_GROUP, "kubernetes:helm.sh/v3:Release"):
        assert ways <= needed(graph(sample), resource), resource.name


@pytest.mark.parametrize(("sample", "gateways"), [("smallest", 1), ("prod", 3), ("private", 0)])
def test_a_network_has_the_gateways_that_it_asks_for(sample: str, gateways: int) -> None:
    assert len(of(sample, "aws:ec2/natGateway:NatGateway")) == gateways


def test_health_of_gpus_is_watched_on_tainted_nodes() -> None:
    (agent,) = [
        r for r in of("smallest", "aws:eks/addon:Addon") if r.inputs["addonName"] == "eks-node-monitoring-agent"
    ]

    assert json.loads(agent.inputs["configurationValues"]) == {"dcgmAgent": {"tolerations": [nodes.TAINT.toleration()]}}


@pytest.mark.parametrize("sample", ["custom-image", "adopted-own-image"])
def test_a_custom_image_gets_labels_and_taint_by_user_data(sample: str) -> None:
    kubelet = yaml.safe_load(parts(user_data(sample, "t4"))[0][1])["spec"]["kubelet"]
    (group,) = [r for r in of(sample, NODE_GROUP) if r.name.startswith("t4-")]
    labels, taint = (flag.partition("=")[2] for flag in kubelet["flags"])

    assert dict(pair.split("=") for pair in labels.split(",")) == group.inputs["labels"]
    assert taint == "nvidia.com/gpu=true:NoSchedule"


def test_autoscaler_buys_nodes_for_the_least_of_runners() -> None:
    (release,) = [r for r in of("smallest", "kubernetes:helm.sh/v3:Release") if r.name == "autoscaler"]

    assert release.inputs["values"]["extraArgs"]["expendable-pods-priority-cutoff"] <= LOWEST_PRIORITY


def test_size_of_a_pool_is_read_before_it_is_written() -> None:
    project = yaml.safe_load((Path(ROOT) / "Pulumi.yaml").read_text(encoding="utf-8"))
    ignoring = [r for r in of("prod", NODE_GROUP) if "scalingConfig.desiredSize" in r.ignore_changes]

    assert ignoring
    assert project["options"] == {"refresh": "always"}


def test_only_what_holds_data_or_all_else_is_protected() -> None:
    protected = {resource.type for resource in graph("prod").resources.values() if resource.protect}

    assert protected == {
        "aws:ec2/vpc:Vpc", "aws:ecr/repository:Repository", "aws:eks/cluster:Cluster", "aws:kms/key:Key"
    }  # fmt: skip
    assert graph("prod").of_type("aws:eks/accessEntry:AccessEntry")
