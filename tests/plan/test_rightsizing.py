"""Cheaper types, more types for spot, and the table of instances."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock import catalog
from paddock.catalog import InstanceType, RegionPrice, table
from paddock.catalog.commands import InstancesListed
from paddock.fleet import Fleet
from paddock.plan.cost import options, rightsizing
from paddock.plan.finding import Finding
from paddock.plan.fit import fit
from tests.support import fleets
from tests.support.fleets import changed as fleet


def findings_by_id(fleet_: Fleet) -> dict[str, Finding]:
    return {finding.id: finding for finding in rightsizing.findings(fleet_, rightsizing.right_size(fleet_))}


@pytest.fixture
def prices(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the price of a type in us-west-2."""

    def put(name: str, **price: Any) -> None:
        instances: dict[str, InstanceType] = dict(catalog.instances())
        old = instances[name].price("us-west-2")
        prices: dict[str, RegionPrice] = {"us-west-2": dataclasses.replace(old, **price)}
        instances[name] = dataclasses.replace(instances[name], prices=prices)
        # The package's function of the same name hides the module.
        monkeypatch.setattr(sys.modules["paddock.catalog.instances"], "instances", lambda: instances)

    return put


# --- sizes


def test_an_option_counts_as_fit_does() -> None:
    for name in fleets.EXAMPLES:
        fleet_ = fleets.example(name).fleet
        for item in fit(fleet_):
            if len(fleet_.pools[item.pool].instances) == 1:
                option = options.option(fleet_, fleet_.runners[item.runner], catalog.instance(item.instance))
                assert option.per_node == item.per_node


def test_one_size_up_and_down_of_a_g4dn() -> None:
    (sized,) = rightsizing.right_size(fleet({"instances": ["g4dn.2xlarge"]}))
    assert sized.current.instance == "g4dn.2xlarge"
    assert sized.smaller is not None
    assert sized.larger is not None
    assert (sized.smaller.instance, sized.larger.instance) == ("g4dn.xlarge", "g4dn.4xlarge")
    # 8 vCPU without 90m of the kubelet and 185m of DaemonSets, in steps of half a CPU
    assert [option.cpu_m for option in (sized.smaller, sized.current, sized.larger)] == [3500, 7500, 15500]


def test_a_runner_that_writes_its_size_keeps_it() -> None:
    (sized,) = rightsizing.right_size(fleet({"instances": ["g4dn.4xlarge"]}, {"cpu": 6, "memory": "20Gi"}))
    assert sized.cheapest is not None
    assert sized.cheapest.instance == "g4dn.2xlarge"
    assert sized.cheapest.cpu_m == 6000
    assert findings_by_id(fleet({"instances": ["g4dn.4xlarge"]}, {"cpu": 6, "memory": "20Gi"}))["RSZ001"].fix == (
        "pools.t4.instances: [g4dn.2xlarge, ...]"
    )


def test_the_cheapest_of_the_pool_is_no_finding() -> None:
    assert not {"RSZ001", "RSZ002"} & set(findings_by_id(fleet({"instances": ["g4dn.xlarge", "g4dn.2xlarge"]})))


def test_another_gpu_has_as_much_memory_and_is_marked(prices: Any) -> None:
    prices("g6.xlarge", spot=0.01)
    finding = findings_by_id(fleet())["RSZ002"]
    assert "another GPU with as much memory, NVIDIA L4 of g6.xlarge" in finding.message
    (sized,) = rightsizing.right_size(fleet())
    assert sized.cheapest_any is not None
    assert not sized.cheapest_any.same_gpu
    assert sized.cheapest is not None
    assert sized.cheapest.gpu == "t4"


def test_a_type_without_a_price_is_never_the_cheapest(prices: Any) -> None:
    prices("g4dn.xlarge", spot=None)
    (sized,) = rightsizing.right_size(fleet({"instances": ["g4dn.2xlarge"]}))
    assert sized.cheapest is not None
    assert sized.cheapest.instance == "g4dn.2xlarge"


def test_a_type_that_the_image_cannot_drive_is_not_proposed(prices: Any) -> None:
    prices("g7.2xlarge", spot=0.01)  # needs driver R595
    fleet_ = fleet()
    assert not any(instance.family == "g7" for instance in options.candidates(fleet_, fleet_.runners["gpu"]))
    assert "RSZ002" not in findings_by_id(fleet())


def test_bought_capacity_is_not_second_guessed() -> None:
    (sized,) = rightsizing.right_size(fleets.named("capacity-block").fleet)
    assert sized.cheapest is None
    assert sized.cheapest_any is None


# --- spot


@pytest.mark.parametrize(("types", "fallback", "severity"), [
    (["g4dn.xlarge"], "none", "warning"),
    (["g4dn.xlarge"], "on-demand", "info"),
    (["g4dn.xlarge", "g4dn.2xlarge"], "none", "info"),
    (["g4dn.xlarge", "g4dn.2xlarge", "g4dn.4xlarge"], "none", None),
])  # fmt: skip
def test_spot_wants_three_types(types: list[str], fallback: str, severity: str | None) -> None:
    finding = findings_by_id(fleet({"instances": types, "fallback": fallback})).get("RSZ003")
    assert (finding.severity if finding else None) == severity
    if finding:
        assert finding.fix == "pools.t4.instances: [g4dn.xlarge, g4dn.2xlarge, g4dn.4xlarge]"


def test_a_model_that_only_one_type_has() -> None:
    finding = findings_by_id(fleet({"instances": ["p4d.24xlarge"]}, {"gpus": 8}))["RSZ003"]
    assert "No other type has 8 NVIDIA A100" in finding.message
    assert finding.fix == "more zones, and pools.t4.fallback: on-demand"


def test_spot_without_a_discount_is_not_placed(prices: Any) -> None:
    prices("g4dn.xlarge", spot=0.90 * 0.526, on_demand=0.526)
    assert "RSZ004" not in findings_by_id(fleet())
    prices("g4dn.xlarge", spot=0.91 * 0.526, on_demand=0.526)
    finding = findings_by_id(fleet())["RSZ004"]
    assert finding.severity == "warning"
    assert finding.message.startswith("do not place g4dn.xlarge on spot")
    assert "RSZ004" not in findings_by_id(fleet({"capacity": "on-demand"}))


def test_often_interrupted_types_are_named(prices: Any) -> None:
    prices("g4dn.xlarge", interruption_band=3)
    assert "RSZ005" not in findings_by_id(fleet())
    prices("g4dn.xlarge", interruption_band=4)
    finding = findings_by_id(fleet())["RSZ005"]
    assert "g4dn.xlarge" in finding.message
    assert finding.fix == "also list g4dn.16xlarge, interrupted less often"


def test_a_fast_root_volume_beside_nvme() -> None:
    fast = {"size": "200Gi", "iops": 6000, "throughput": 600}
    finding = findings_by_id(fleet({"nodes": {"max": 2}, "disk": fast}))["RSZ006"]
    # (16 + 15 + 19) - 50 x 0.08 = 46 USD a month and node
    assert "92 USD a month with 2 nodes" in finding.message
    assert finding.subject == "pools.t4.disk"
    assert "RSZ006" not in findings_by_id(fleet({"nodes": {"max": 2}}))  # the default is lean there
    assert "RSZ006" not in findings_by_id(fleet({"nvme": "none", "disk": fast}))
    assert "RSZ006" not in findings_by_id(fleet({"instances": ["p3.2xlarge"]}))  # has no local disk


@pytest.mark.parametrize("name", fleets.ALL)
def test_no_fleet_is_an_error(name: str) -> None:
    fleet_ = fleets.named(name).fleet
    sized = rightsizing.right_size(fleet_)
    assert not [f for f in rightsizing.findings(fleet_, sized) if f.severity == "error" or not f.fix]


# --- the table


def test_a_24_gb_card_answers_to_24() -> None:
    names = {row.instance.gpu for row in table.choose(min_memory_gib=24)}
    assert {"a10g", "l4"} <= names
    assert "t4" not in names
    sixteen = {row.instance.name for row in table.choose(gpus=1, min_memory_gib=16, region="us-east-1")}
    assert {"g4dn.xlarge", "g4dn.2xlarge", "p3.2xlarge", "p4d.24xlarge"} <= sixteen
    assert {row.instance.gpu for row in table.choose(gpu="h100")} == {"h100"}


def test_unknown_prices_are_shown_as_such_and_last() -> None:
    rows = table.choose(gpus=8, region="us-east-1", sort="price")
    priced = [row.on_demand for row in rows if row.on_demand is not None]
    assert priced == sorted(priced)
    assert rows[len(priced) :] == tuple(row for row in rows if row.on_demand is None)
    text = listed(rows, limit=3)
    assert f"Shown 3 of {len(rows)}. --all shows the rest." in text
    assert any("karpenter of 2026-07-20" in line for line in text)
    assert "Shown 0 of 0." in listed(())
    assert any("  ?" in line for line in listed(table.choose(region="mars-1")))


def listed(rows: tuple[table.Row, ...], limit: int | None = None) -> list[str]:
    return list(InstancesListed(rows=rows, limit=limit).text())


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_a_narrow_table_of_instances_names_the_columns_it_lacks(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    *lines, _, _ = listed(table.choose(region="us-west-2"))
    assert max(map(len, lines)) <= max(columns, 77)
    assert any(line.startswith("not shown for lack of width: pods") for line in lines) == (columns < 100)


def test_a_wrong_question_is_the_users_mistake() -> None:
    with pytest.raises(catalog.UnknownGpu, match="did you mean h100"):
        table.choose(gpu="h10")


@settings(max_examples=50, deadline=None)
@given(
    st.integers(1, 8),
    st.integers(0, 200),
    st.none() | st.floats(0.1, 200),
    st.sampled_from(get_args(table.Sort)),
    st.sampled_from(["us-east-1", "us-west-2", "nowhere-1"]),
)
def test_every_row_is_what_was_asked_for(
    gpus: int, memory: int, most: float | None, sort: table.Sort, region: str
) -> None:
    rows = table.choose(gpus, memory, None, region, most, sort)
    for row in rows:
        assert row.instance.gpu_count >= gpus
        assert row.instance.gpu_memory_mib >= memory * 1024 * 0.92
        assert most is None or row.on_demand is None or row.on_demand <= most
    assert len(listed(rows)) == len(rows) + (3 if rows else 2)
    document = InstancesListed(rows=rows, limit=None).document()
    assert json.loads(json.dumps(document))["count"] == len(rows)
