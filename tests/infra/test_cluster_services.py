"""What a cluster has for its users beside nodes and runners: metrics, and the logs of jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra import versions
from paddock.fleet import nodes
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.program import plan_graph
from tests.support import fleets
from tests.support.fleets import fleet_data, graph

ADDON = "aws:eks/addon:Addon"


def addons(planned: Graph) -> dict[str, Resource]:
    return {addon.inputs["addonName"]: addon for addon in planned.of_type(ADDON)}


@pytest.mark.parametrize("version", sorted(versions.EKS_ADDONS))
def test_a_new_cluster_serves_metrics_from_its_system_nodes(version: str) -> None:
    stack = fleets.stack(fleet_data(cluster={"version": version}))
    addon = addons(plan_graph(stack))["metrics-server"].inputs

    assert addon["addonVersion"] == versions.EKS_ADDONS[version]["metrics-server"]
    assert json.loads(addon["configurationValues"]) == {"nodeSelector": nodes.system_selector(stack.fleet)}


def test_no_metrics_server_where_it_is_off_or_another_owns_it() -> None:
    off: dict[str, Any] = {"version": "1.35", "metricsServer": False}

    assert "metrics-server" not in addons(plan_graph(fleets.stack(fleet_data(cluster=off))))
    assert "metrics-server" not in addons(graph("existing-cluster"))
