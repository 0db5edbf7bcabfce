"""What jobs reach: the internet, the Kubernetes API where they need it, and private networks that the fleet names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from paddock.fleet import FleetError
from paddock.fleet.model.network import PRIVATE_RANGES
from paddock.plan.engine import fake_cloud
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from paddock.plan.plan import build_plan
from tests.support.fleets import fleet_data, graph, named, stack

SHUT = ["169.254.0.0/16", *PRIVATE_RANGES]
TODAY = date(2026, 11, 22)


def policies(graph: Graph, namespace: str = "arc-runners") -> dict[str, Any]:
    return {
        resource.inputs["metadata"]["name"]: resource.inputs["spec"]
        for resource in graph.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
        if resource.inputs["metadata"]["namespace"] == namespace
    }


def ranges(rule: Mapping[str, Any]) -> list[str]:
    return [peer["ipBlock"]["cidr"] for peer in rule["to"]]


@pytest.mark.parametrize(
    "sample", ["dev", "prod", "existing-network", "existing-cluster", "any-cluster", "runners-only", "docker"]
)
def test_private_networks_are_shut_to_jobs_of_every_cluster(sample: str) -> None:
    found = policies(graph(sample), "arc-runners-privileged" if sample == "docker" else "arc-runners")

    assert found["default"]["egress"][0]["to"] == [{"ipBlock": {"cidr": "0.0.0.0/0", "except": SHUT}}]
    assert "allowed-networks" not in found
    assert ("interface-endpoints" in found) is bool(getattr(named(sample).fleet.network, "endpoints", ()))


@pytest.mark.parametrize(("sample", "addresses"), [
    ("dev", ["172.20.0.1/32"]),
    ("existing-cluster", ["172.20.0.1/32", "192.0.2.1/32"]),
    ("any-cluster", ["172.20.0.1/32", "192.0.2.1/32"]),
])  # fmt: skip
def test_only_pods_that_need_the_kubernetes_api_reach_it(sample: str, addresses: list[str]) -> None:
    found = policies(graph(sample))
    for name, label in (
        ("kubernetes-api", {"paddock.dev/role": "coordinator"}),
        ("node-mark", {"paddock.dev/role": "runner"}),
    ):
        assert [cidr for rule in found[name]["egress"] for cidr in ranges(rule)] == addresses
        assert all(rule["ports"] == [{"port": 443, "protocol": "TCP"}] for rule in found[name]["egress"])
        assert found[name]["podSelector"] == {"matchLabels": label}


class _SecondaryRange:
    """A cloud whose adopted VPC has a second range, which is no private one."""

    resource_id, outputs = staticmethod(fake_cloud.resource_id), staticmethod(fake_cloud.outputs)

    @staticmethod
    def lookup(token: str, arguments: Mapping[str, Any], account: str) -> Mapping[str, Any] | None:
        if token != "aws:ec2/getVpc:getVpc":
            return fake_cloud.lookup(token, arguments, account)
        blocks = ("10.0.0.0/16", "100.70.0.0/16", "198.18.0.0/16")
        return {"id": arguments["id"], "cidrBlockAssociations": [{"cidrBlock": block} for block in blocks]}


def test_every_range_of_an_adopted_vpc_is_looked_up_and_shut() -> None:
    found = policies(plan_graph(named("existing-network"), answers=_SecondaryRange))

    assert found["default"]["egress"][0]["to"][0]["ipBlock"]["except"] == [*SHUT, "198.18.0.0/16"]


def test_networks_that_the_fleet_names_are_open() -> None:
    network = {"zones": 2, "egress": {"allow": ["10.20.0.0/16", "192.168.7.9/32"]}}
    plan = build_plan(stack(fleet_data(network=network)), TODAY)
    (rule,) = policies(plan.graph)["allowed-networks"]["egress"]

    assert ranges(rule) == network["egress"]["allow"]
    assert "ports" not in rule
    assert not [f for f in plan.findings if f.id == "PAD037"]
    (finding,) = [f for f in plan.findings if f.id == "CFG006"]
    assert all(cidr in finding.message for cidr in network["egress"]["allow"])


@pytest.mark.parametrize("open_", ["10.0.0.0/8", "10.0.0.0/16", "192.168.0.0/16"])
def test_a_whole_private_network_is_a_warning(open_: str) -> None:
    plan = build_plan(stack(fleet_data(network={"zones": 2, "egress": {"allow": [open_]}})), TODAY)

    (finding,) = [f for f in plan.findings if f.id == "PAD037"]
    assert open_ in finding.message


@pytest.mark.parametrize(("allow", "reached"), [
    (["10.0.0.0/17", "10.0.128.0/17"], "all of 10.0.0.0/16"),
    (["172.20.0.0/16"], "all of 172.20.0.0/16"),
    (["172.20.0.0/24"], "the Kubernetes API"),
])  # fmt: skip
def test_a_whole_network_in_parts_and_all_services_are_warnings(allow: list[str], reached: str) -> None:
    plan = build_plan(stack(fleet_data(network={"zones": 2, "egress": {"allow": allow}})), TODAY)

    (finding,) = [f for f in plan.findings if f.id == "PAD037"]
    assert reached in finding.message


@pytest.mark.parametrize("sample", ["existing-cluster", "any-cluster"])
def test_enforcement_of_policies_in_a_foreign_cluster_is_unknown(sample: str) -> None:
    assert [f.id for f in build_plan(named(sample), TODAY).findings if f.id == "CFG007"] == ["CFG007"]


def test_a_server_of_ones_own_may_be_behind_a_shut_network() -> None:
    server = {"url": "https://git.example.com/acme", "token": "config", "serverVersion": "3.21"}
    (finding,) = [f for f in build_plan(stack(fleet_data(github=server)), TODAY).findings if f.id == "CFG006"]

    assert "git.example.com" in finding.message


@pytest.mark.parametrize("network", [
    {"existing": named("existing-network").fleet.network.existing.model_dump(mode="json")},
    {"zones": 2, "cidr": "203.0.112.0/20"},
], ids=["adopted", "public-vpc"])  # fmt: skip
def test_a_public_range_is_allowed_in_a_vpc_that_has_it(network: dict[str, Any]) -> None:
    assert stack(fleet_data(network={**network, "egress": {"allow": ["203.0.113.0/24"]}}))


def test_the_whole_internet_is_never_allowed() -> None:
    with pytest.raises(FleetError, match="credentials"):
        stack(fleet_data(network={"zones": 2, "egress": {"allow": ["0.0.0.0/0"]}}))
