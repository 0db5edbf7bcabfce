"""Whose controller serves a fleet's scale sets, what it sees, and what becomes of CRDs that others use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from paddock.fleet import FleetError
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.resource_types import CUSTOM_RESOURCE_DEFINITION, RELEASE
from tests.support import fleets

KUBECONFIG = {"kubeconfig": "~/.kube/config"}
BOTH = {"gpu": {"pool": "t4"}, "docker": {"pool": "t4", "container": "dind"}}
THEIRS = "team-ci/arc-gha-rs-controller"


def planned(cluster: Mapping[str, Any] | None = None, runners: Mapping[str, Any] | None = None, **more: Any) -> Graph:
    """Return the graph of a small fleet in a cluster that a kubeconfig reaches."""
    data = {"cluster": {**KUBECONFIG, **(cluster or {})}, **more}
    return plan_graph(fleets.stack(fleets.fleet_data(**data, **({"runners": runners} if runners else {}))))


def controllers(graph: Graph) -> dict[str, Resource]:
    """Return the releases of ARC's controller by their namespace."""
    found = [item for item in graph.of_type(RELEASE) if "gha-runner-scale-set-controller" in item.inputs["chart"]]
    return {str(item.inputs["namespace"]): item for item in found}


def scale_sets(graph: Graph) -> dict[str, Any]:
    """Return, by the set's name, its namespace and its controller's service account."""
    found = [item for item in graph.of_type(RELEASE) if "RunnerScaleSet" in item.parent]
    return {
        str(item.inputs["name"]): (item.inputs["namespace"], item.inputs["values"]["controllerServiceAccount"])
        for item in found
    }


def crds(graph: Graph, group: str) -> list[Resource]:
    return [item for item in graph.of_type(CUSTOM_RESOURCE_DEFINITION) if item.name.endswith(group)]


def namespaces(graph: Graph) -> set[str]:
    return {item.inputs["metadata"]["name"] for item in graph.of_type("kubernetes:core/v1:Namespace")}


def test_in_a_cluster_of_others_ours_sees_its_own_namespace() -> None:
    (release,) = controllers(planned()).values()
    assert release.inputs["values"]["flags"]["watchSingleNamespace"] == "arc-runners"


def test_in_a_cluster_of_our_own_it_sees_everything() -> None:
    graph = fleets.graph("docker")
    (release,) = controllers(graph).values()
    assert "watchSingleNamespace" not in release.inputs["values"]["flags"]
    assert all("patchForce" in str(item.inputs["metadata"]) for item in crds(graph, "actions.github.com"))


def test_privileged_runners_have_a_controller_of_their_own() -> None:
    graph = planned(runners=BOTH)
    found = controllers(graph)
    watched = {place: item.inputs["values"]["flags"]["watchSingleNamespace"] for place, item in found.items()}
    assert watched == {"arc-systems": "arc-runners", "arc-systems-privileged": "arc-runners-privileged"}
    assert len(crds(graph, "actions.github.com")) == 4
    for place, account in scale_sets(graph).values():
        controller = found[account["namespace"]].inputs["values"]
        assert controller["serviceAccount"]["name"] == account["name"]
        assert controller["flags"]["watchSingleNamespace"] == place


@pytest.mark.parametrize(
    ("cluster", "forced"),
    [
        ({}, False),
        ({"crds": {"arc": "replace"}}, True),
        ({"crds": {"arc": "keep"}}, None),
        ({"arc": {"controller": THEIRS}}, None),
    ],
)
def test_crds_of_others_are_taken_by_a_key_alone(cluster: Mapping[str, Any], forced: bool | None) -> None:
    found = crds(planned(cluster), "actions.github.com")
    assert {"patchForce" in str(item.inputs["metadata"]) for item in found} == (set() if forced is None else {forced})


def test_another_teams_controller_serves_our_scale_sets() -> None:
    warm = {"gpu": {"pool": "t4", "warm": [{"at": "0 8 * * *", "min": 1}]}}
    for runners, systems in ((None, set()), (warm, {"arc-systems"})):
        graph = planned({"arc": {"controller": THEIRS}}, runners)
        assert controllers(graph) == {}
        assert scale_sets(graph)["gpu"][1] == {"namespace": "team-ci", "name": "arc-gha-rs-controller"}
        assert {name for name in namespaces(graph) if name.startswith("arc-")} == {"arc-runners", *systems}


def test_a_suffix_renames_all_that_the_fleet_has_of_arc() -> None:
    graph = planned({"arc": {"suffix": "gpus"}}, BOTH, monitoring={"enabled": True, "prometheus": {}})
    own = {"arc-systems-gpus", "arc-systems-gpus-privileged", "arc-runners-gpus", "arc-runners-gpus-privileged"}
    assert {name for name in namespaces(graph) if name.startswith("arc-")} == own
    assert {item.inputs["name"] for item in controllers(graph).values()} == {"arc-gpus", "arc-gpus-privileged"}
    roles = graph.of_type("kubernetes:rbac.authorization.k8s.io/v1:ClusterRole")
    named = {str(item.inputs["metadata"]["name"]) for item in roles}
    assert {"paddock-node-mark-gpus", "paddock-node-mark"} & named == {"paddock-node-mark-gpus"}
    policies = [item.inputs for item in graph.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")]
    (prometheus,) = (item for item in policies if item["metadata"]["name"] == "prometheus")
    assert "arc-systems-gpus-privileged" in str(prometheus["spec"]["egress"])
    assert "'arc-systems'" not in str(prometheus["spec"]["egress"])


def test_the_device_plugin_of_others_leaves_ours_out() -> None:
    graph = planned({"devicePlugin": "theirs"})
    assert [item for item in graph.of_type(RELEASE) if "device-plugin" in item.inputs["chart"]] == []
    assert crds(graph, "nfd.k8s-sigs.io") == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"cluster": {**KUBECONFIG, "arc": {"controller": "arc-systems/x"}}}, "deletes with itself"),
        ({"cluster": {**KUBECONFIG, "arc": {"controller": "theirs"}}}, "own, everywhere, or NAMESPACE/ACCOUNT"),
        ({"cluster": {**KUBECONFIG, "arc": {"suffix": "Team"}}}, "lower-case letters"),
        ({"cluster": {**KUBECONFIG, "crds": {"arc": "steal"}}}, "share"),
        ({"cluster": {**KUBECONFIG, "crds": {"arcs": "keep"}}}, 'did you mean "arc"'),
    ],
)
def test_a_wrong_key_is_refused_with_what_to_write(data: Mapping[str, Any], message: str) -> None:
    with pytest.raises(FleetError, match=message):
        fleets.stack(fleets.fleet_data(**data))


def test_sharing_needs_a_device_plugin_of_our_own() -> None:
    pool = {"instances": ["g4dn.xlarge"], "nodes": {"max": 2}, "sharing": {"timeSlicing": 4}}
    data = fleets.fleet_data(cluster={**KUBECONFIG, "devicePlugin": "theirs"}, pools={"t4": pool})
    with pytest.raises(FleetError, match=r"cluster\.devicePlugin: theirs leaves it to others"):
        fleets.stack(data)
