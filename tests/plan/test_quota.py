"""Quota that a fleet needs at its maximum, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.fleet import Fleet
from paddock.fleet.model.cluster import Scale
from paddock.plan import quota
from paddock.plan.finding import Finding
from paddock.plan.quota import QuotaNeed
from tests.support import fleets
from tests.support.fleets import changed as fleet

G_SPOT, G, P, STANDARD = "L-3819A6DF", "L-DB2E81BA", "L-417A185B", "L-1216C47A"
P5_SPOT, P4_SPOT = "L-C4BD4855", "L-7212CCBC"


def by_code(fleet_: Fleet) -> dict[str, QuotaNeed]:
    return {item.code: item for item in quota.quota_needs(fleet_) if item.code}


def test_dev() -> None:
    result = by_code(fleets.example("dev").fleet)
    assert result[G_SPOT].need == 5 * 8  # five nodes, the larger type is g4dn.2xlarge
    assert result[STANDARD].need == 4 * 2  # four system nodes of 2 vCPU
    assert G not in result
    assert (result["L-0263D0A3"].need, result["L-F678F1CE"].need) == (1, 1)
    assert result["L-7A658B76"].need == pytest.approx((5 * 50 + 4 * 50) / 1024)


def test_prod() -> None:
    result = by_code(fleets.example("prod").fleet)
    spot = 20 * 16 + 8 * 96 + 10 * 16  # g4dn.4xlarge, g5.24xlarge, g6.4xlarge
    assert result[G_SPOT].need == spot == 1248
    assert result[G].need == spot + 4  # as a fallback, and the instance that builds images
    assert result[G].need_without_fallback == 4
    assert result[P].need == 2 * 96
    assert result[STANDARD].need == 6 * 2
    assert result["L-0263D0A3"].need == 3  # a NAT gateway in each zone
    block = next(item for item in quota.quota_needs(fleets.example("prod").fleet) if "Capacity Blocks" in item.name)
    assert (block.need, block.default, block.shortfall) == (192, None, 0)


def test_the_subnets_of_prod() -> None:
    (first, second, third) = (item for item in quota.quota_needs(fleets.example("prod").fleet) if item.zones)
    assert first.default == 2**14 - 5  # /18
    parts = {part.who: part.what for part in first.parts}
    # Seven of twenty nodes in a zone of three, three of eight, four of ten, one of two, two of six, each with whole
    # interfaces; four of the control plane, four interface endpoints, and in the first zone the instance for images.
    assert parts["pools.t4"] == "20 nodes x 20 addresses of 2 interfaces"
    assert first.need == 7 * 20 + 3 * 50 + 4 * 30 + 1 * 50 + 2 * 30 + 4 + 4 + 1
    assert second.need == first.need + 50 - 1  # the h100 node lives in us-west-2b alone
    assert third.need == first.need - 1
    # Two nodes of each of two groups a pool, but for a100, which stops old ones first; and EKS's new interfaces.
    assert third.updating == 2 * (2 * 20 + 2 * 50 + 2 * 30 + 30) + 5


def test_interfaces_are_those_that_full_nodes_attach() -> None:
    need = by_code(fleets.example("prod").fleet)["L-DF5E4CA3"]
    assert need.need == 20 * 2 + 8 + 10 * 2 + 2 + 1 + 6 * 3 + 4 + 4 * 3


@pytest.mark.parametrize(("pool", "code"), [
    ({"instances": ["p4d.24xlarge"]}, P4_SPOT),
    ({"instances": ["p5.48xlarge"]}, P5_SPOT),
    ({"instances": ["p5.48xlarge"], "capacity": "on-demand"}, P),
    ({"instances": ["g5.xlarge", "g5.2xlarge"], "capacity": "on-demand"}, G),
    ({"capacity": {"reserved": "cr-0123456789abcdef0"}}, G),  # a reservation counts as on demand
])  # fmt: skip
def test_which_quota_counts(pool: dict[str, Any], code: str) -> None:
    assert code in by_code(fleet(pool))


def test_a_quota_that_nobody_names_is_unknown() -> None:
    needs = quota.quota_needs(fleet({"instances": ["p6-b200.48xlarge"]}))
    (unknown,) = (item for item in needs if item.default is None)
    assert (unknown.need, unknown.note) == (2 * 192, "AWS's table names no quota for it")
    assert {finding.id for finding in quota.findings(needs)} == {"QUO002"}


def test_small_subnets() -> None:
    network = {"cidr": "10.0.0.0/22", "zones": 2}  # private subnets of 256 addresses
    tight = fleet({"nodes": {"max": 15}}, network=network)
    result = [item for item in quota.findings(quota.quota_needs(tight)) if item.id == "QUO003"]
    assert {item.severity for item in result} == {"warning"}  # half of 15 x 20 + 4 x 30 is less than 251, all is not
    assert "while an update starts new nodes" in result[0].message  # 8 x 20 + 2 x 30 + 4, and then 2 x 20 + 2 x 30 + 5
    # The loader refuses more, so the fleet is made without it.
    pool = tight.pools["t4"].model_copy(update={"nodes": Scale(max=40)})
    result = [
        item
        for item in quota.findings(quota.quota_needs(tight.model_copy(update={"pools": {"t4": pool}})))
        if item.id == "QUO003"
    ]
    assert {item.severity for item in result} == {"error"}
    assert result[0].subject == "network.cidr"


def test_an_adopted_network_has_subnets_of_unknown_size() -> None:
    needs = quota.quota_needs(fleets.named("existing-network").fleet)
    assert [item.default for item in needs if item.zones] == [None, None]
    assert "QUO004" in {finding.id for finding in quota.findings(needs)}


def test_nodes_that_are_not_bought_here_need_nothing() -> None:
    for name in ("any-cluster", "runners-only"):
        assert not [item for item in quota.quota_needs(fleets.named(name).fleet) if item.code in {G, G_SPOT}]


@pytest.mark.parametrize("name", fleets.ALL)
def test_no_fleet_of_the_samples_is_an_error(name: str) -> None:
    needs = quota.quota_needs(fleets.named(name).fleet)
    result = quota.findings(needs)
    assert not [finding for finding in result if finding.severity == "error"]
    assert all(finding.fix for finding in result)
    for item in needs:
        assert item.need >= item.need_without_fallback or item.zones


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30), st.integers(0, 10), st.sampled_from(["none", "on-demand"]))
def test_more_nodes_never_need_less(nodes: int, more: int, fallback: str) -> None:
    few, many = (by_code(fleet({"fallback": fallback, "nodes": {"max": most}})) for most in (nodes, nodes + more))
    assert few.keys() == many.keys()
    for code, fewer in few.items():
        assert fewer.need <= many[code].need


def many(count: int, fallback: str = "on-demand", **parts: Any) -> Fleet:
    pool = {"instances": ["g4dn.xlarge"], "fallback": fallback, "nodes": {"max": 1}}
    pools = {f"p{number}": pool for number in range(count)}
    data = fleets.fleet_data(pools=pools, runners={f"r{number}": {"pool": f"p{number}"} for number in range(count)})
    return fleets.stack(data | parts).fleet


def test_node_groups_count_twice_with_fallback_against_the_clusters_quota() -> None:
    assert by_code(many(14))["L-6D54EA21"].need == 29  # two a pool, and that of system nodes
    assert not by_code(many(14))["L-6D54EA21"].shortfall
    assert by_code(many(29, "none"))["L-6D54EA21"].need == 30
    over = by_code(many(15))["L-6D54EA21"]
    assert (over.need, over.default) == (31, 30)
    assert over.request.endswith("--service-code eks --quota-code L-6D54EA21 --desired-value 31")


def test_nodes_of_the_largest_group_count_against_the_quota_of_one() -> None:
    needs = by_code(fleet({"nodes": {"max": 451}}, network={"cidr": "10.0.0.0/16", "zones": 3}))
    assert (needs["L-BD136A63"].need, needs["L-BD136A63"].default) == (451, 450)
    assert [part.who for part in needs["L-BD136A63"].parts] == ["pools.t4"]
    assert "--desired-value 451" in needs["L-BD136A63"].request


def test_an_adopted_cluster_has_further_node_groups() -> None:
    need = by_code(fleets.named("existing-cluster").fleet)["L-6D54EA21"]
    assert (need.need, need.note) == (1, "Those that the cluster has already come on top")


def test_listeners_need_addresses_of_system_nodes() -> None:
    def found(runners: int, nodes: int, **cluster: Any) -> list[Finding]:
        fleet_ = many(runners, "none", cluster={"system": {"nodes": {"min": 1, "max": nodes}}, **cluster})
        return [finding for finding in quota.findings(quota.quota_needs(fleet_)) if finding.id == "QUO005"]

    # An m7i.large has addresses for 29 pods, of which DaemonSets take four; the controllers have twelve, the metrics
    # server two.
    assert found(11, nodes=1) == []
    (finding,) = found(12, nodes=1)
    assert (finding.severity, finding.subject) == ("error", "cluster.system.nodes.max")
    assert "12 listeners, one a runner" in finding.message
    assert finding.fix == "cluster.system.nodes.max: 2, or larger cluster.system.instances"
    assert found(12, nodes=2) == []
    assert found(12, nodes=1, metricsServer=False) == []
