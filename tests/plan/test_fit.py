"""Fit of runners on nodes, and the message when a runner does not fit."""

from __future__ import annotations

import re
from dataclasses import astuple, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from paddock import catalog
from paddock.fleet import Fleet, FleetError
from paddock.fleet.model.quantity import parse_cpu, parse_memory
from paddock.fleet.sizing import capacity
from paddock.fleet.sizing.daemonsets import gpu_node_daemonsets
from paddock.plan.finding import Finding
from paddock.plan.fit import Fit, fit
from paddock.plan.fit_findings import findings
from tests.support.explore import examples
from tests.support.fleets import fleet_data, stack

Pools = dict[str, dict[str, Any]]


def fleet(pools: Pools, runners: Pools, **more: Any) -> Fleet:
    pools = {name: {"nodes": {"max": 4}, **pool} for name, pool in pools.items()}
    return stack(fleet_data(pools=pools, runners=runners, **more)).fleet


def fleet_of(pool: dict[str, Any], runner: dict[str, Any], **more: Any) -> Fleet:
    """One pool `p`, one runner `gpu`."""
    return fleet({"p": pool}, {"gpu": {"pool": "p", **runner}}, **more)


def findings_by_id(fleet_: Fleet) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings(fleet_, fit(fleet_)) if finding.id != "FIT008"}


# --- the seed case: a runner as large as its node


def test_a_runner_of_its_nodes_nominal_size_is_an_error() -> None:
    nominal = fleet_of({"instances": ["g4dn.xlarge"]}, {"cpu": 4, "memory": "16Gi"})
    (only,) = fit(nominal)
    assert only.per_node == 0
    # 4000 - 80 - 185 = 3735m; 15785 - 431 - 100 - 222 = 15032 MiB.
    assert (only.deficit.cpu_m, only.deficit.memory_mib) == (265, 16384 - 15032)
    finding = findings_by_id(nominal)["FIT001"]
    assert (finding.severity, finding.subject) == ("error", "runners.gpu")
    assert "g4dn.xlarge lacks 265m CPU of 4, 1352Mi memory of 16Gi" in finding.message
    assert "The largest that fits is cpu 3735m, memory 15032Mi on g4dn.xlarge" in finding.message
    assert finding.fix == ("runners.gpu.cpu: 3500m and runners.gpu.memory: 14Gi; or pools.p.instances: [g4dn.2xlarge]")


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("container", ["none", "dind", "kubernetes-novolume"])
@pytest.mark.parametrize("instances", [["g4dn.xlarge"], ["g4dn.2xlarge", "g4dn.xlarge"], ["g4dn.12xlarge"]])
def test_the_largest_that_fits_is_accepted_and_nothing_larger(instances: list[str], container: str, least: int) -> None:
    gpus = catalog.instance(instances[0]).gpu_count if container == "dind" else 1
    pool = {"instances": instances, "nodes": {"min": least, "max": 2}}

    def errors(cpu: int, memory: int) -> dict[str, Finding]:
        runner = {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "gpus": gpus, "container": container}
        return {
            id_: finding
            for id_, finding in findings_by_id(fleet_of(pool, runner)).items()
            if finding.severity == "error"
        }

    message = errors(900_000, 9_000_000)["FIT001"].message
    text = re.search(r"The largest that fits is cpu (\S+), memory (\S+) on", message)
    assert text
    cpu, memory = parse_cpu(text[1]), parse_memory(text[2])
    assert errors(cpu, memory) == {}
    assert errors(cpu + 1, memory).keys() & {"FIT001", "FIT002"}
    assert errors(cpu, memory + 1).keys() & {"FIT001", "FIT002"}


@pytest.mark.parametrize("runner", [{"cpu": "3500m", "memory": "14Gi"}, {}])
def test_the_proposed_edit_ends_every_finding(runner: dict[str, Any]) -> None:
    assert findings_by_id(fleet_of({"instances": ["g4dn.xlarge"]}, runner)) == {}
    assert findings_by_id(fleet_of({"instances": ["g4dn.2xlarge"]}, {"cpu": 4, "memory": "16Gi"})) == {}


def test_only_what_is_lacking_is_named() -> None:
    finding = findings_by_id(fleet_of({"instances": ["g4dn.xlarge"]}, {"cpu": 4}))["FIT001"]
    assert "memory of" not in finding.message
    assert finding.fix.startswith("runners.gpu.cpu: 3500m;")


def test_no_instance_is_proposed_where_none_is_large_enough() -> None:
    finding = findings_by_id(fleet_of({"instances": ["p4d.24xlarge"]}, {"gpus": 8, "cpu": 96}))["FIT001"]
    assert finding.fix == "runners.gpu.cpu: 95500m"


def test_scratch_space_larger_than_the_disk() -> None:
    volumes = {"cache": {"scratch": "500Gi", "mount": "/cache"}}
    finding = findings_by_id(fleet_of({"instances": ["g4dn.xlarge"]}, {"volumes": volumes}))["FIT001"]
    assert "disk of" in finding.message
    assert "pools.p.disk.size" in finding.fix


# --- other findings


def test_a_runner_for_some_types_only_is_never_bought_from_zero() -> None:
    pool = {"instances": ["g4dn.xlarge", "g4dn.2xlarge"]}
    cold = findings_by_id(fleet_of(pool, {"cpu": 6}))["FIT002"]
    assert cold.severity == "error"
    assert "fits on g4dn.2xlarge only" in cold.message
    assert cold.fix == "give it a pool with pools.<name>.instances: [g4dn.2xlarge], or runners.gpu.cpu: 3500m"
    findings_ = findings_by_id(fleet_of({**pool, "nodes": {"min": 1, "max": 4}}, {"cpu": 6}))["FIT002"]
    assert findings_.severity == "warning"
    # The minimum is on spot: the on-demand group starts from zero still.
    fallback = {**pool, "nodes": {"min": 1, "max": 4}, "fallback": "on-demand"}
    assert findings_by_id(fleet_of(fallback, {"cpu": 6}))["FIT002"].severity == "error"


def test_types_without_enough_gpus_are_named() -> None:
    finding = findings_by_id(fleet_of({"instances": ["g5.xlarge", "g5.12xlarge"]}, {"gpus": 4}))["FIT002"]
    assert "g5.xlarge lacks 3 GPUs of 4" in finding.message
    assert finding.fix == "give it a pool with pools.<name>.instances: [g5.12xlarge]"


@pytest.mark.parametrize(("instance", "memory", "cluster", "severity"), [
    ("g4dn.xlarge", "14600Mi", {}, "info"),  # measured, and Paddock's autoscaler is told so
    ("g4dn.xlarge", "14600Mi", {"existing": "shared"}, "warning"),
    ("g5.xlarge", "14600Mi", {}, "warning"),  # estimated
])  # fmt: skip
def test_memory_that_karpenter_would_refuse(instance: str, memory: str, cluster: dict[str, Any], severity: str) -> None:
    network = {
        "existing": {
            "vpc": "vpc-0123456789abcdef0",
            "subnets": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
        }
    }
    more = {"cluster": cluster, "network": network} if cluster else {}
    finding = findings_by_id(fleet_of({"instances": [instance]}, {"memory": memory}, **more))["FIT003"]
    assert finding.severity == severity
    assert "14402Mi" in finding.message  # 15155 - 431 - 100 - 222
    assert ("15032Mi" if instance == "g4dn.xlarge" else "14724Mi") in finding.message
    assert finding.fix == "runners.gpu.memory: 14Gi"


def test_gpus_that_no_job_can_reach_for_lack_of_cpu() -> None:
    finding = findings_by_id(fleet_of({"instances": ["g5.12xlarge"]}, {"cpu": 20}))["FIT004"]
    assert finding.severity == "warning"
    assert "2 of its jobs fill a g5.12xlarge by cpu: 2 of its 4 GPUs cannot be used" in finding.message
    assert finding.fix == "runners.gpu.cpu: 11500m, its share of the node"


def test_gpus_that_do_not_divide() -> None:
    finding = findings_by_id(fleet_of({"instances": ["p4d.24xlarge"]}, {"gpus": 3}))["FIT004"]
    assert "2 of its 8 GPUs" in finding.message
    assert finding.fix == "runners.gpu.gpus: one of 1, 2, 4, 8"


def test_gpus_left_to_another_runner_are_no_waste() -> None:
    both = fleet({"p": {"instances": ["p4d.24xlarge"]}}, {"three": {"pool": "p", "gpus": 3}, "one": {"pool": "p"}})
    finding = findings_by_id(both)["FIT004"]
    assert (finding.severity, "left to jobs of one" in finding.message) == ("info", True)


def test_shares_without_addresses_are_stranded_as_parts_of_a_gpu() -> None:
    (only,) = fit(fleet_of({"instances": ["g4dn.xlarge"], "sharing": {"timeSlicing": 48}}, {}))
    assert (only.limiting, only.per_node) == ("pods", 29 - 8)
    assert only.stranded_gpus == pytest.approx((48 - 21) / 48)


def test_a_maximum_that_the_pool_cannot_hold() -> None:
    finding = findings_by_id(fleet_of({"instances": ["g4dn.xlarge"], "nodes": {"max": 3}}, {"max": 5}))["FIT005"]
    assert finding.fix == "runners.gpu.max: 3, or pools.p.nodes.max: 5"
    assert findings_by_id(fleet_of({"instances": ["g4dn.xlarge"], "nodes": {"max": 5}}, {"max": 5})) == {}


@pytest.mark.parametrize(
    "runner",
    [{"min": 5}, {"warm": [{"at": "0 8 * * 1-5", "min": 5}]}, {"min": 1, "warm": [{"at": "0 8 * * *", "min": 5}]}],
)
def test_idle_runners_beyond_the_pool(runner: dict[str, Any]) -> None:
    finding = findings_by_id(fleet_of({"instances": ["g4dn.xlarge"]}, runner))["FIT006"]
    assert finding.severity == "error"
    assert finding.fix.startswith("pools.p.nodes.max: 5")


def test_idle_runners_of_two_kinds_add_up() -> None:
    pool = {"p": {"instances": ["g5.12xlarge"], "nodes": {"max": 2}}}
    runners = {"a": {"pool": "p", "gpus": 2, "min": 2}, "b": {"pool": "p", "gpus": 2, "min": 3}}
    assert "hold 3 nodes" in findings_by_id(fleet(pool, runners))["FIT006"].message


def test_idle_coordinators_hold_no_gpu_node() -> None:
    assert "FIT006" not in findings_by_id(
        fleet_of({"instances": ["g4dn.xlarge"]}, {"container": "kubernetes-novolume", "min": 5, "max": 5})
    )


def test_coordinators_beyond_the_system_nodes() -> None:
    # An m7i.large has (1930 - 160)m: two of 750m; the controllers and the listener take two of the eight.
    pool = {"instances": ["g4dn.xlarge"], "nodes": {"max": 40}}
    finding = findings_by_id(fleet_of(pool, {"container": "kubernetes-novolume", "max": 40}))["FIT007"]
    assert "4 of m7i.large hold" in finding.message
    assert findings_by_id(fleet_of(pool, {"container": "kubernetes-novolume", "max": 4})) == {}


def test_a_pod_limit_beyond_the_addresses() -> None:
    assert (
        "g4dn.xlarge 29"
        in findings_by_id(fleet_of({"instances": ["g4dn.xlarge"], "maxPods": 110}, {}))["FIT009"].message
    )


def test_a_pod_limit_below_the_daemonsets() -> None:
    limited = fleet_of({"instances": ["g4dn.xlarge"], "maxPods": 8}, {})
    assert findings_by_id(limited)["FIT001"].severity == "error"
    assert findings_by_id(limited)["FIT009"].fix == "leave pools.p.maxPods out, or write at least 9"


def test_estimates_are_said_once() -> None:
    two = fleet(
        {"p": {"instances": ["g5.xlarge", "g4dn.xlarge"][:1]}},
        {"a": {"pool": "p"}, "b": {"pool": "p", "memory": "4Gi"}},
    )
    estimated = [item for item in findings(two, fit(two)) if item.id == "FIT008"]
    assert [item.severity for item in estimated] == ["info"]
    assert "g5.xlarge" in estimated[0].message


# --- for every fleet

GPU_TYPES = [name for name, instance in catalog.instances().items() if instance.gpu]


@st.composite
def fleets(draw: st.DrawFn, sized: bool = True) -> Fleet:
    """Any valid fleet of one pool and one to three runners; `sized` lets them ask for CPU, memory and disk."""
    first = catalog.instance(draw(st.sampled_from(GPU_TYPES)))
    same = [name for name in GPU_TYPES if catalog.instance(name).gpu == first.gpu]
    pool: dict[str, Any] = {
        "instances": draw(st.lists(st.sampled_from(same), min_size=1, max_size=4, unique=True)),
        "nodes": {"min": draw(st.integers(0, 2)), "max": draw(st.integers(2, 9))},
        "nvme": draw(st.sampled_from(["auto", "none"])),
    }
    ways = st.integers(2, 48)
    sharing = [st.just("none"), st.just("none"), ways.map(lambda n: {"timeSlicing": n}), ways.map(lambda n: {"mps": n})]
    profiles = [profile.name for profile in catalog.gpu(str(first.gpu)).mig]
    if profiles:
        sharing.append(st.sampled_from(profiles).map(lambda profile: {"mig": profile}))
    pool["sharing"] = draw(st.one_of(sharing))
    runners: dict[str, dict[str, Any]] = {}
    for index in range(draw(st.integers(1, 3))):
        runner: dict[str, Any] = {
            "pool": "p",
            "gpus": draw(st.integers(1, 8)) if pool["sharing"] == "none" else 1,
            "container": draw(st.sampled_from(["none", "dind", "kubernetes-novolume"])),
            "min": draw(st.integers(0, 3)),
        }
        if sized:
            runner |= draw(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "cpu": st.integers(1, 200),
                        "memory": st.integers(1, 2000).map("{}Gi".format),
                        "max": st.integers(3, 99),
                        "volumes": st.integers(1, 3000).map(lambda n: {"v": {"scratch": f"{n}Gi", "mount": "/v"}}),
                    },
                )
            )
            pool |= draw(st.fixed_dictionaries({}, optional={"maxPods": st.integers(8, 737)}))
        runners[f"r{index}"] = runner
    try:
        return fleet({"p": pool}, runners, monitoring={"enabled": draw(st.booleans())})
    except FleetError:
        assume(False)
        raise


often = examples(30, 200, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


@often
@given(fleets())
def test_per_node_is_exactly_what_fits(fleet_: Fleet) -> None:
    for item in fit(fleet_):
        has = capacity.available(fleet_, fleet_.pools[item.pool], catalog.instance(item.instance))
        if item.per_node:
            assert min((has - item.request * item.per_node).amounts()) >= 0
            assert not any(item.deficit.amounts())
        else:
            assert any(item.deficit.amounts())
        assert min((has - item.request * (item.per_node + 1)).amounts()) < 0
        assert has - item.request * item.per_node == item.slack
        assert item.cautious_per_node <= item.per_node


@often
@given(fleets())
def test_every_valid_fleet_gets_findings_that_can_be_read(fleet_: Fleet) -> None:
    fits = fit(fleet_)
    for finding in findings(fleet_, fits):
        assert finding.message
        assert finding.fix or finding.id == "FIT008"
        assert "None" not in finding.message + finding.fix
        # A negative amount would be a size that nobody can write.
        assert not re.search(r"\s-\d", finding.fix)
    unfit = {item.runner for item in fits} - {item.runner for item in fits if item.per_node}
    errors = {finding.subject for finding in findings(fleet_, fits) if finding.id == "FIT001"}
    assert errors == {f"runners.{name}" for name in unfit}


@often
@given(fleets(sized=False))
def test_the_default_share_fits_as_often_as_the_gpus_allow(fleet_: Fleet) -> None:
    for item in fit(fleet_):
        gpus = item.available.gpus // item.request.gpus
        assert item.cautious_per_node >= min(gpus, item.available.pods), item


@often
@given(fleets(sized=False))
def test_nothing_written_means_nothing_to_complain_of(fleet_: Fleet) -> None:
    everywhere = all(item.available.gpus >= item.request.gpus for item in fit(fleet_))
    complaints = {"FIT001", "FIT003", "FIT009"} | ({"FIT002"} if everywhere else set())
    assert not complaints & set(findings_by_id(fleet_))


@often
@given(fleets(sized=False))
def test_the_derived_pod_limit_never_limits_before_addresses_do(fleet_: Fleet) -> None:
    daemonsets = len(gpu_node_daemonsets(fleet_, fleet_.pools["p"]))
    for item in fit(fleet_):
        limit = capacity.max_pods(fleet_, fleet_.pools["p"])
        assert limit >= item.per_node + daemonsets
        smallest = min(min(t.max_pods, 110 if t.vcpus < 30 else 250) for t in fleet_.pools["p"].types)
        assert limit <= smallest
        if item.limiting == "pods":
            assert limit == smallest


@often
@given(fleets(), st.integers(0, 2**21))
def test_more_memory_never_holds_fewer(fleet_: Fleet, more: int) -> None:
    for runner in fleet_.runners.values():
        for instance in fleet_.pools[runner.pool].types:
            small = replace(instance, name="x.small")  # a name without a measurement
            large = replace(small, name="x.large", memory_mib=instance.memory_mib + more)
            request = capacity.runner_request(fleet_, runner)
            assert goes_into(fleet_, small, request) <= goes_into(fleet_, large, request)


def goes_into(fleet_: Fleet, instance: catalog.InstanceType, request: capacity.Resources) -> int:
    has = capacity.available(fleet_, fleet_.pools["p"], instance)
    return max(
        0, min(there // needed for there, needed in zip(has.amounts(), request.amounts(), strict=True) if needed)
    )


@pytest.mark.parametrize("name", GPU_TYPES)
@pytest.mark.parametrize("container", ["none", "dind", "kubernetes-novolume"])
def test_the_whole_of_every_gpu_type_can_be_asked_for(name: str, container: str) -> None:
    whole = fleet_of(
        {"instances": [name]}, {"gpus": catalog.instance(name).gpu_count, "container": container, "max": 1}
    )
    (only,) = fit(whole)
    assert (only.per_node, only.stranded_gpus) == (1, 0)
    assert not {"FIT001", "FIT002", "FIT003", "FIT004"} & set(findings_by_id(whole))


def test_fits_are_plain_values() -> None:
    (only,) = fit(fleet_of({"instances": ["g4dn.xlarge"]}, {}))
    assert isinstance(only, Fit)
    assert only == replace(only)
    assert hash(only) == hash(replace(only))
    assert astuple(only)[0] == "gpu"
