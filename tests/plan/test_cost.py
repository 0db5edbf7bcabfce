"""Cost of a fleet, against arithmetic written out here."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock import catalog
from paddock.fleet import Fleet, Stack, parse
from paddock.plan.cost import estimate as cost
from paddock.plan.cost import money, nodes, priced_types
from paddock.plan.cost.estimate import Cost, mean_idle
from paddock.plan.document.builder import build_document
from paddock.plan.engine.program import plan_graph
from paddock.plan.fit import fit
from paddock.plan.plan import build_plan
from tests.support import fleets
from tests.support.documents import forms

HOURS = 730
# USD/hour of 50 GiB gp3 with the 3000 IOPS and 125 MB/s that are in its price: the volume next to local NVMe.
ROOT = 50 * 0.08 / HOURS
MORE_SYSTEM_NODES = (4 - 2) * (0.1008 * HOURS + 50 * 0.08)
"""A month of the system nodes beyond the fewest: m7i.large with 50 GiB."""


@cache
def of(name: str) -> Cost:
    fleet = fleets.named(name).fleet
    return cost.estimate(fleet, fleets.graph(name), fit(fleet))


def small(**parts: Any) -> Fleet:
    return fleets.stack(deepcopy(fleets.fleet_data(**parts))).fleet


def estimate(fleet: Fleet, **more: Any) -> Cost:
    return cost.estimate(fleet, fleets.graph("smallest"), fit(fleet), **more)


def spot(name: str) -> float:
    price = catalog.instance(name).price("us-west-2").spot
    assert price is not None
    return price


# --- the month before anything runs


def test_the_fixed_month_of_dev() -> None:
    expected = {
        "EKS control plane": 0.10 * HOURS,  # 73.00
        "NAT gateways": 1 * 0.045 * HOURS,  # 32.85
        "public IPv4 addresses": 1 * 0.005 * HOURS,  # 3.65
        "KMS keys": 4 * 1.00,
        "system nodes": 2 * (0.1008 * HOURS + 50 * 0.08),  # 2 m7i.large with 50 GiB: 155.168
    }
    assert {line.item: line.monthly.value for line in of("dev").fixed} == pytest.approx(expected)
    assert of("dev").fixed_total.value == pytest.approx(73 + 32.85 + 3.65 + 4 + 155.168)


def test_the_fixed_month_of_prod() -> None:
    result = {line.item: line.monthly.value for line in of("prod").fixed}
    assert result["NAT gateways"] == pytest.approx(3 * 32.85)
    assert result["public IPv4 addresses"] == pytest.approx(3 * 3.65)
    assert result["interface endpoints"] == pytest.approx(4 * 3 * 0.01 * HOURS)  # four services in three zones
    assert result["KMS keys"] == 5
    assert of("prod").fixed_total.value == pytest.approx(73 + 98.55 + 10.95 + 87.60 + 5 + 155.168)


def test_extended_support_costs_six_times_as_much() -> None:
    fleet, graph = fleets.named("smallest").fleet, fleets.graph("smallest")
    ended = catalog.eks_versions()[fleet.cluster.version].end_of_standard_support
    line = cost.estimate(fleet, graph, fit(fleet), today=ended).fixed[0]
    assert line.monthly.value == pytest.approx(6 * 73)


# --- nodes, runners, jobs


def test_a_spot_node_of_dev_with_its_volume() -> None:
    pool = of("dev").pools[0]
    assert pool.offers[0].node_hour.value == pytest.approx(spot("g4dn.xlarge") + ROOT)
    assert pool.at_min.expected.value == 0
    assert pool.at_max.expected.value == pytest.approx(5 * (spot("g4dn.xlarge") + ROOT))
    assert pool.at_max.high.value == pytest.approx(5 * (spot("g4dn.2xlarge") + ROOT))


def test_a_fallback_ranges_from_cheapest_spot_to_dearest_on_demand() -> None:
    t4 = next(pool for pool in of("prod").pools if pool.pool == "t4")
    assert [group.capacity for group in t4.groups] == ["spot", "on-demand"]
    assert t4.at_max.low.value == pytest.approx(20 * (spot("g4dn.xlarge") + ROOT))
    assert t4.at_max.high.value == pytest.approx(20 * (1.204 + ROOT))  # g4dn.4xlarge on demand
    assert t4.spot_ratio == pytest.approx(spot("g4dn.xlarge") / 0.526)


def test_a_minimum_with_fallback_is_paid_once_on_spot() -> None:
    pools = {"t4": {"instances": ["g4dn.xlarge"], "fallback": "on-demand", "nodes": {"min": 3, "max": 4}}}
    cost = estimate(small(pools=pools))
    pool = cost.pools[0]
    assert pool.at_min.expected.value == pytest.approx(3 * (spot("g4dn.xlarge") + ROOT))
    assert [group.min_nodes for group in pool.groups] == [3, 0]
    assert cost.month.low.value == pytest.approx(cost.fixed_total.value + 3 * 730 * (spot("g4dn.xlarge") + ROOT))


def test_a_runner_costs_its_share_of_a_node() -> None:
    a100 = next(runner for runner in of("prod").runners if runner.runner == "gpu-a100")
    assert a100.per_hour.expected.value == pytest.approx((spot("p4d.24xlarge") + ROOT) / 8)
    shared = next(runner for runner in of("prod").runners if runner.runner == "gpu-l4")
    assert shared.per_hour.expected.value == pytest.approx((spot("g6.xlarge") + ROOT) / 4)  # four shares of one L4


def test_a_job_of_half_an_hour_warm_cold_and_alone() -> None:
    job = of("dev").runners[0].job
    rate = spot("g4dn.xlarge") + ROOT
    # Node 75 s, device plugin 75 s, 10 GB at 9.35 GB in 39.6 s, assignment 9 s.
    start = 75 + 75 + 39.6 * 10 / 9.35 + 9
    assert job.start_seconds[1] == pytest.approx(start)
    assert job.idle_seconds == 600  # what the autoscaler of the graph is told
    assert job.warm.expected.value == pytest.approx(rate / 2)
    assert job.cold.expected.value == pytest.approx(rate * (1800 + start) / 3600)
    assert job.alone.expected.value == pytest.approx(rate * (1800 + start + 600) / 3600)


@pytest.mark.parametrize(
    "cluster",
    [{"version": "1.35", "scaleDownDelay": "1h"}, {"existing": "shared", "scaleDownDelay": "60m"}],
    ids=["new", "adopted"],
)
def test_an_empty_node_is_kept_and_paid_for_as_long_as_the_fleet_says(cluster: dict[str, Any]) -> None:
    network = {} if "version" in cluster else {"network": fleets.SAMPLES["existing-cluster"]["network"]}
    stack = fleets.stack(fleets.fleet_data(cluster=cluster, **network))
    graph = plan_graph(stack)
    (autoscaler,) = [r for r in graph.of_type("kubernetes:helm.sh/v3:Release") if r.name == "autoscaler"]

    assert autoscaler.inputs["values"]["extraArgs"]["scale-down-unneeded-time"] == "60m"
    assert cost.estimate(stack.fleet, graph, fit(stack.fleet)).runners[0].job.idle_seconds == 3600


def test_githubs_own_t4_beside_ours() -> None:
    hosted = of("dev").runners[0].github_hosted
    assert hosted.job.value == pytest.approx(30 * 0.052)  # 1.56 USD
    assert hosted.comparable
    assert hosted.times_ours == pytest.approx(1.56 / ((spot("g4dn.xlarge") + ROOT) / 2))
    comparable = {r.runner: r.github_hosted.comparable for r in of("prod").runners}
    assert [name for name, same in comparable.items() if same] == ["gpu"]


def test_a_capacity_block_has_no_price_and_no_lower_bound() -> None:
    h100 = next(runner for runner in of("prod").runners if runner.pool == "h100")
    assert h100.per_hour.expected.value is None
    assert "Capacity Block" in h100.per_hour.expected.missing[0]
    assert h100.github_hosted.times_ours is None
    assert any("Capacity Block" in name for name in of("prod").month.expected.missing)


# --- a month


def test_the_month_of_dev_where_nobody_states_its_jobs() -> None:
    result, job = of("dev"), of("dev").runners[0].job
    # Five runners, half of them busy in 40 x 52 / 12 = 173.3 hours, jobs of half an hour: 866.7 jobs.
    jobs = 5 * 0.5 * (40 * 52 / 12) * 60 / 30
    assert result.jobs["gpu"] == pytest.approx(jobs)
    warm, cold = job.warm.expected.value, job.cold.expected.value
    assert warm is not None
    assert cold is not None
    assert result.month.low.value == pytest.approx(268.668)
    assert result.month.expected.value == pytest.approx(268.668 + jobs * (0.7 * warm + 0.3 * cold))
    assert result.month.high.value == pytest.approx(
        268.668 + MORE_SYSTEM_NODES + 5 * (spot("g4dn.2xlarge") + ROOT) * HOURS
    )


def test_a_month_of_stated_jobs() -> None:
    fleet = fleets.named("dev").fleet
    graph = fleets.graph("dev")
    result = cost.estimate(fleet, graph, fit(fleet), jobs_per_month={"gpu": 1000})
    job = result.runners[0].job
    assert job.alone.high.value is not None
    assert result.month.low.value == pytest.approx(268.668 + 1000 * (spot("g4dn.xlarge") + ROOT) / 2)
    assert result.month.high.value == pytest.approx(268.668 + MORE_SYSTEM_NODES + 1000 * job.alone.high.value)
    same = cost.estimate(fleet, graph, fit(fleet), jobs_per_month=1000)
    assert same.month == result.month


@pytest.mark.parametrize("name", ["any-cluster", "runners-only"])
def test_nodes_of_another_stack_cost_nothing_here(name: str) -> None:
    months = of(name).pool_months
    assert {month.high.value for month in months.values()} == {0}


def test_warm_capacity_is_paid_for_while_it_waits() -> None:
    runner = fleets.named("prod").fleet.runners["gpu"]
    assert mean_idle(runner) == pytest.approx(2 * 11 * 5 / 168)  # two of them, 8 to 19 o'clock on five days
    idle = estimate(small(runners={"gpu": {"pool": "t4", "min": 2}}))
    none = estimate(small())
    assert none.month.low.value is not None
    assert idle.month.low.value == pytest.approx(none.month.low.value + 2 * (spot("g4dn.xlarge") + ROOT) * HOURS)


def test_warm_entries_in_two_time_zones_are_ordered_in_time() -> None:
    # 8:00 in Tokyo is 23:00 UTC of the day before: from then until 1:00 UTC two runners wait.
    warm = [{"at": "0 8 * * *", "min": 2, "timeZone": "Asia/Tokyo"}, {"at": "0 1 * * *", "min": 0}]
    fleet = small(runners={"gpu": {"pool": "t4", "warm": warm}})
    assert mean_idle(fleet.runners["gpu"]) == pytest.approx(2 * 2 / 24)


def test_a_schedule_with_day_and_weekday_fires_on_either() -> None:
    warm = [{"at": "0 0 1 * 1", "min": 1}, {"at": "0 12 * * *", "min": 0}]
    fleet = small(runners={"gpu": {"pool": "t4", "warm": warm}})
    assert mean_idle(fleet.runners["gpu"]) == pytest.approx(0.5 * 4 / 28)  # 1 June 2026 is a Monday


# --- what is not known


def _stack_in(region: str) -> Stack:
    config = {"aws:region": region, "paddock:fleet": json.dumps(fleets.fleet_data())}
    return Stack(
        "paddock", "sample", Path("Pulumi.sample.yaml"), parse(config, "paddock", "sample"), config, frozenset()
    )


def _in(region: str) -> Cost:
    stack = _stack_in(region)
    return cost.estimate(stack.fleet, plan_graph(stack), fit(stack.fleet))


def test_a_region_without_prices_is_planned_and_says_so() -> None:
    result = _in("mx-central-1")
    assert result.pools[0].at_max.expected.value is None
    assert result.runners[0].job.warm.expected.value is None
    anywhere = {"KMS keys", "public IPv4 addresses"}
    assert all(line.monthly.value is None for line in result.fixed if line.item not in anywhere)
    assert result.counts["priced"] == 5  # the keys and the address, whose price is one everywhere
    (finding,) = cost.findings(result)
    assert (finding.severity, finding.fix) == ("warning", "./inv catalog.refresh --region mx-central-1")
    # What is mostly unknown is no number.
    assert [amount.value for amount in (result.month.low, result.month.expected, result.month.high)] == [None] * 3
    assert (result.fixed_total.value, result.pool_months["t4"].expected.value) == (None, None)
    assert "eks.control-plane in mx-central-1" in result.month.expected.missing


def test_a_month_that_is_not_known_has_words_for_a_headline() -> None:
    document = build_document(build_plan(_stack_in("mx-central-1"), date(2026, 7, 21)))
    _, *shown = forms(document).values()
    for text in shown:
        assert "What a month costs is not known: there is no price of eks.control-plane in mx-central-1" in text
        assert "a month expected" not in text


@pytest.mark.parametrize("region", ["eu-central-1", "eu-west-1", "ap-northeast-1", "ap-southeast-2", "sa-east-1"])
def test_commercial_regions_have_prices_of_their_own(region: str) -> None:
    result = _in(region)
    assert result.month.expected.value
    assert result.runners[0].per_hour.expected.complete
    gateway, nodes = catalog.fixed_price("vpc.nat-gateway", region), catalog.instance("g4dn.xlarge").price(region)
    assert gateway is not None
    assert (gateway.source, nodes.on_demand_source) == ("cortex", "vantage-regions")
    assert gateway.region == region


def test_a_sum_with_a_missing_part_is_a_lower_bound() -> None:
    priced = money.Money(2.0, "USD/hour", ("a",))
    both = priced + money.unknown("b", "USD/hour")
    assert (both.value, both.missing, both.complete) == (2.0, ("b",), False)
    assert money.total([money.unknown("b", "USD")], "USD").value is None
    assert money.unknown("b", "USD").times(0).value == 0
    dear, cheap = money.Money(2.0, "USD"), money.Money(1.0, "USD")
    for first, expected in ((dear, 2.0), (money.unknown("b", "USD"), 1.0)):
        amounts = nodes.spread([(first, 1.0), (cheap, 1.0), (dear, 1.0)])
        assert (amounts.low.value, amounts.expected.value, amounts.high.value) == (1.0, expected, 2.0)


@pytest.mark.parametrize("name", fleets.ALL)
def test_every_resource_is_counted_and_every_type_classified(name: str) -> None:
    result, graph = of(name), fleets.graph(name)
    # Providers and stack references are nothing that anybody could charge for.
    resources = [item for item in graph.resources.values() if item.custom and not item.type.startswith("pulumi:")]
    assert sum(result.counts.values()) == len(resources)
    for resource in resources:
        assert priced_types.classify(resource.type)[1] != "its cost has not been looked up", resource.type


def test_what_is_unpriced_is_named() -> None:
    unpriced = {entry.type: entry for entry in of("prod").census if entry.kind == "unpriced"}
    assert unpriced["aws:cloudwatch/logGroup:LogGroup"].names == ("gpu-ami-builds", "cluster-logs", "network-flow")
    assert unpriced["aws:eks/nodeGroup:NodeGroup"].names == ("h100-capacity-block",)
    assert priced_types.classify("aws:rds/instance:Instance")[0] == "unpriced"


# --- for every fleet


@settings(max_examples=25)
@given(
    st.integers(1, 20),
    st.integers(0, 5),
    st.sampled_from(["none", "on-demand"]),
    st.lists(st.sampled_from(["g4dn.xlarge", "g4dn.2xlarge", "g4dn.12xlarge"]), min_size=1, max_size=3, unique=True),
)
def test_more_nodes_are_never_cheaper(most: int, more: int, fallback: str, types: list[str]) -> None:
    def at(nodes: int, least: int) -> Cost:
        pool = {"instances": types, "fallback": fallback, "nodes": {"min": least, "max": nodes}}
        return estimate(small(pools={"t4": pool}, runners={"gpu": {"pool": "t4", "max": 1}}))

    few, many = at(most, 0), at(most + more, min(more, 1))
    for fewer, other in (
        (few.pools[0].at_min.high, many.pools[0].at_min.high),
        (few.pools[0].at_max.low, many.pools[0].at_max.low),
        (few.pools[0].at_max.high, many.pools[0].at_max.high),
        (few.month.low, many.month.low),
        (few.month.expected, many.month.expected),
        (few.month.high, many.month.high),
    ):
        assert fewer.value is not None
        assert other.value is not None
        assert fewer.value <= other.value + 1e-9
    assert few.month.low.value is not None
    assert few.month.expected.value is not None
    assert few.month.low.value <= few.month.expected.value + 1e-9
