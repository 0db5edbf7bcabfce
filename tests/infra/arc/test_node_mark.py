"""Tokens that mark nodes: who gets one, and its bounds."""

from __future__ import annotations

from typing import Any

import pytest

from infra.arc import runner_pod
from infra.arc.runner_pod import MARKS_NODE_AS
from paddock.gpu.job_hooks import node
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.program import plan_graph
from tests.support.fleets import SAMPLES, fleet_data, graph, named, stack

OURS = (
    "core/v1:ServiceAccount",
    "networking.k8s.io/v1:NetworkPolicy",
    "admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy",
    "admissionregistration.k8s.io/v1:ValidatingAdmissionPolicyBinding",
    "rbac.authorization.k8s.io/v1:ClusterRole",
    "rbac.authorization.k8s.io/v1:ClusterRoleBinding",
)


def made(graph: Graph) -> dict[str, Resource]:
    """By the end of its type: what is there for marks."""
    resources = graph.resources.values()
    marks = [
        resource for resource in resources if "-node-mark" in resource.name and resource.type.startswith("kubernetes:")
    ]
    assert len({resource.type for resource in marks}) == len(marks)
    return {resource.type.removeprefix("kubernetes:"): resource for resource in marks}


def tokens(pod: dict[str, Any]) -> list[str]:
    """Containers that a token is mounted into."""
    spec = pod["spec"]
    held = {
        volume["name"]
        for volume in spec["volumes"]
        if any("serviceAccountToken" in source for source in volume.get("projected", {}).get("sources", ()))
    }
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    return [
        container["name"]
        for container in containers
        for mount in container.get("volumeMounts", [])
        if mount["name"] in held
    ]


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_pod_has_the_token_where_its_hooks_see_the_gpu(sample: str) -> None:
    fleet = named(sample).fleet
    for runner in fleet.runners.values():
        pod = runner_pod.runner_template(fleet, runner)
        steers = runner.container == "kubernetes-novolume"
        assert tokens(pod) == ([] if steers else ["runner"])
        assert pod["spec"].get("serviceAccountName") == (None if steers else MARKS_NODE_AS)
        if steers:
            job = runner_pod.job_template(fleet, runner)
            assert not tokens(job)
            assert "serviceAccountName" not in job["spec"]
            assert "labels" not in job["metadata"]


def test_the_name_of_the_node_is_kubernetes_word() -> None:
    fleet = stack(fleet_data(runners={"gpu": {"pool": "t4", "environment": {"NODE_NAME": "another"}}})).fleet
    env = runner_pod.runner_template(fleet, fleet.runners["gpu"])["spec"]["containers"][0]["env"]
    (node_name,) = (variable for variable in env if variable["name"] == "NODE_NAME")
    assert node_name["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_the_policy_precedes_the_binding_and_the_pods() -> None:
    there = made(graph("smallest"))
    assert set(there) == set(OURS)
    account, _, policy, bound, role, binding = (there[kind] for kind in OURS)
    assert policy.urn in bound.dependencies
    assert {bound.urn, role.urn} <= set(binding.dependencies)
    (scale_set,) = (
        resource
        for resource in graph("smallest").resources.values()
        if resource.name == "gpu" and "Release" in resource.type
    )
    assert account.urn in scale_set.dependencies


@pytest.mark.parametrize("runner", [{"markNode": False}, {"container": "kubernetes-novolume"}], ids=str)
def test_where_no_pod_marks_there_is_no_account_and_no_right(runner: dict[str, Any]) -> None:
    fleet = stack(fleet_data(runners={"gpu": {"pool": "t4", **runner}}))
    assert not tokens(runner_pod.runner_template(fleet.fleet, fleet.fleet.runners["gpu"]))
    assert made(plan_graph(fleet)) == {}


def test_only_the_namespaces_of_pods_that_mark_have_the_account() -> None:
    runners = {
        "gpu": {"pool": "t4", "markNode": False},
        "docker": {"pool": "t4", "container": "dind", "labels": ["docker"]},
    }
    there = made(plan_graph(stack(fleet_data(runners=runners))))
    policy, binding = there[OURS[2]].inputs["spec"], there[OURS[5]].inputs
    assert [subject["namespace"] for subject in binding["subjects"]] == ["arc-runners-privileged"]
    (condition,) = policy["matchConditions"]
    assert condition["expression"].count("system:serviceaccount:") == 1
    assert "system:serviceaccount:arc-runners-privileged:node-mark" in condition["expression"]


def test_the_hook_and_the_policy_mean_the_same() -> None:
    fleet = named("smallest").fleet
    pod = runner_pod.runner_template(fleet, fleet.runners["gpu"])
    (mount,) = (mount for mount in pod["spec"]["containers"][0]["volumeMounts"] if mount["name"] == "node-mark")
    assert mount["mountPath"] == f"/{node.SECRETS}"
