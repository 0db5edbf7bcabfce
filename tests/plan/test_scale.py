"""Large fleets: nothing is computed twice, and alike runners share what is computed and drawn."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest

from paddock.fleet import Fleet
from paddock.fleet.sizing import capacity, daemonsets
from paddock.plan import fit
from paddock.plan.cost import rightsizing
from paddock.plan.document.builder import build_document
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.resource_types import LAUNCH_TEMPLATE, NODE_GROUP
from paddock.plan.output import html
from paddock.plan.plan import build_plan
from tests.support import fleets


def _data(runners: int, pools: int = 2) -> dict[str, object]:
    return fleets.fleet_data(
        pools={f"pool-{n}": {"instances": ["g4dn.xlarge", "g4dn.2xlarge"], "nodes": {"max": 3}} for n in range(pools)},
        runners={f"runner-{n}": {"pool": f"pool-{n % pools}", "max": 2} for n in range(runners)},
    )


def _fleet(runners: int) -> Fleet:
    return fleets.stack(_data(runners)).fleet


def test_sizes_follow_pools_and_not_the_number_of_runners(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Fleet] = []
    original = daemonsets.node_daemonsets
    monkeypatch.setattr(daemonsets, "node_daemonsets", lambda fleet: calls.append(fleet) or original(fleet))
    counts = []
    for fleet in (_fleet(4), _fleet(40)):
        calls.clear()
        fit.fit(fleet)
        rightsizing.findings(fleet, rightsizing.right_size(fleet))
        counts.append(len(calls))
    assert counts[0] == counts[1]


def test_alike_runners_are_sized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    original = rightsizing.candidates
    monkeypatch.setattr(rightsizing, "candidates", lambda fleet, runner: calls.append("") or original(fleet, runner))
    rightsizing.right_size(_fleet(40))
    assert len(calls) == 1


def test_a_pool_is_a_launch_template_and_its_node_groups() -> None:
    few, more = (
        Counter(resource.type for resource in plan_graph(fleets.stack(_data(4, pools))).resources.values())
        for pools in (2, 3)
    )
    assert more - few == {"paddock:infra:GpuPool": 1, LAUNCH_TEMPLATE: 1, NODE_GROUP: 1}


def test_alike_runners_have_the_same_sizes_under_their_own_names() -> None:
    first, *others = rightsizing.right_size(_fleet(6))
    assert [size.runner for size in others] == [f"runner-{n}" for n in range(1, 6)]
    assert {(size.current, size.cheapest, size.larger) for size in others} == {
        (first.current, first.cheapest, first.larger)
    }


def test_a_copy_of_a_fleet_forgets_what_was_computed() -> None:
    fleet = _fleet(2)
    pool = fleet.pools["pool-0"]
    before = capacity.max_pods(fleet, pool)
    limited = pool.model_copy(update={"max_pods": before + 8})
    changed = fleet.model_copy(update={"pools": {**fleet.pools, "pool-0": limited}, "runners": {}})
    assert capacity.max_pods(changed, limited) == before + 8
    assert list(changed.runners_on(limited)) == []
    assert capacity.max_pods(fleet, limited) == before + 8  # not a pool of this fleet
    assert capacity.max_pods(fleet, pool) == before


def test_alike_runners_are_drawn_once() -> None:
    pages = [
        html.render(build_document(build_plan(fleets.stack(_data(runners, pools=1)), date(2026, 7, 21))))
        for runners in (1, 6)
    ]
    assert pages[0].count('class="lane') == pages[1].count('class="lane')
    assert all(f"runner-{n}" in pages[1] for n in range(6))
