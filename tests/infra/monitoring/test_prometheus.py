"""The fleet's own Prometheus: what it reads, keeps and may, and who reaches it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import versions
from paddock.fleet import FleetError
from paddock.plan.cost import fixed
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from paddock.plan.quota import quota_needs
from tests.support.fleets import SERVING, fleet_data, stack
from tests.support.promtool import PROMTOOL, config_objections

SMALL = fleet_data(monitoring={"enabled": True, "prometheus": {}})
FULL = fleet_data(
    monitoring={
        "enabled": True,
        "prometheus": {
            "days": 30,
            "disk": "100Gi",
            "storageClass": "fast",
            "alertmanager": "http://alertmanager.ops:9093",
            "clients": ["grafana"],
        },
    },
    serving=SERVING,
)


@cache
def planned(full: bool = False) -> Graph:
    return plan_graph(stack(FULL if full else SMALL))


def objects(graph: Graph, type_: str) -> dict[str, Any]:
    """Inputs by name, of the namespace of Prometheus or of none."""
    metadata = [(resource.inputs["metadata"], resource.inputs) for resource in graph.of_type(type_)]
    return {about["name"]: it for about, it in metadata if about.get("namespace", "prometheus") == "prometheus"}


def files(graph: Graph) -> dict[str, Any]:
    return {
        name: yaml.safe_load(text) for name, text in objects(graph, types.CONFIG_MAP)["configuration"]["data"].items()
    }


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.skipif(PROMTOOL is None, reason="no promtool on PATH")
def test_promtool_takes_the_configuration_with_fixed_targets(full: bool, tmp_path: Path) -> None:
    documents = files(planned(full))
    for job in documents["prometheus.yaml"]["scrape_configs"]:
        # Debian builds its Prometheus without Kubernetes' discovery.
        if job.pop("kubernetes_sd_configs", None):
            job["static_configs"] = [{"targets": ["10.0.0.1:8080"]}]
    for name, document in documents.items():
        (tmp_path / name).write_text(yaml.safe_dump(document))
    assert config_objections(tmp_path, "prometheus.yaml") == ""


def test_it_reads_exporters_listeners_and_served_models() -> None:
    jobs = {job["job_name"]: job for job in files(planned(full=True))["prometheus.yaml"]["scrape_configs"]}
    places = {
        name: job["kubernetes_sd_configs"][0]["namespaces"]["names"]
        for name, job in jobs.items()
        if "kubernetes_sd_configs" in job
    }
    assert places == {"dcgm": ["monitoring"], "actions-runner-controller": ["arc-systems"], "serving": ["serving"]}
    assert all(job["honor_labels"] for job in jobs.values())
    assert "serving" not in {job["job_name"] for job in files(planned())["prometheus.yaml"]["scrape_configs"]}


def test_rules_go_to_it_and_nowhere_else() -> None:
    alerts = {
        rule["alert"]
        for group in files(planned())["rules.yaml"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert {"GpuLost", "ListenerAbsent", "QueueSlow"} <= alerts
    names = [resource.inputs["metadata"]["name"] for resource in planned().of_type(types.CONFIG_MAP)]
    assert "gpu-alerts" not in names


def test_metrics_are_kept_on_an_encrypted_volume() -> None:
    (claim,) = objects(planned(), types.STATEFUL_SET)["prometheus"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "gp3-encrypted"
    assert claim["spec"]["resources"]["requests"]["storage"] == "20480Mi"
    (storage,) = (r.inputs for r in planned().of_type(types.STORAGE_CLASS))
    assert storage["metadata"]["name"] == "gp3-encrypted"
    assert storage["parameters"]["encrypted"] == "true"


@pytest.mark.parametrize(("full", "days", "size"), [(False, "15d", "16384MB"), (True, "30d", "81920MB")])
def test_retention_leaves_room_on_the_disk(full: bool, days: str, size: str) -> None:
    (container,) = objects(planned(full), types.STATEFUL_SET)["prometheus"]["spec"]["template"]["spec"]["containers"]
    assert f"--storage.tsdb.retention.time={days}" in container["args"]
    assert f"--storage.tsdb.retention.size={size}" in container["args"]


def test_images_are_pinned_by_digest() -> None:
    pods = {**objects(planned(), types.STATEFUL_SET), **objects(planned(), types.DEPLOYMENT)}
    images = {name: pod["spec"]["template"]["spec"]["containers"][0]["image"] for name, pod in pods.items()}
    assert images["prometheus"].endswith(f":{versions.PROMETHEUS}@{versions.PROMETHEUS_DIGEST}")
    assert images["kube-state-metrics"].endswith(f":{versions.KUBE_STATE_METRICS}@{versions.KUBE_STATE_METRICS_DIGEST}")


def test_each_program_has_a_service_and_writes_no_root() -> None:
    programs = {**objects(planned(), types.STATEFUL_SET), **objects(planned(), types.DEPLOYMENT)}
    assert (
        set(objects(planned(), "kubernetes:core/v1:Service")) == set(programs) == {"prometheus", "kube-state-metrics"}
    )
    for program in programs.values():
        for container in program["spec"]["template"]["spec"]["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_accounts_may_list_nodes_pods_and_runners_alone() -> None:
    roles = {name: role["rules"] for name, role in objects(planned(), types.CLUSTER_ROLE).items()}
    del roles["paddock-node-mark"]
    assert roles == {
        "paddock-prometheus": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}],
        "paddock-kube-state-metrics": [
            {"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]}
            for group, resources in (
                ("", ["nodes", "pods"]),
                ("actions.github.com", ["ephemeralrunners"]),
                ("apiextensions.k8s.io", ["customresourcedefinitions"]),
            )
        ],
    }


def ingress(graph: Graph) -> dict[str, list[Any]]:
    policies = objects(graph, types.NETWORK_POLICY)
    assert all(set(policy["spec"]["policyTypes"]) == {"Ingress", "Egress"} for policy in policies.values())
    return {name: policy["spec"].get("ingress") or [] for name, policy in policies.items()}


def test_nobody_queries_it_but_its_clients() -> None:
    assert ingress(planned())["default"] == []
    assert ingress(planned())["prometheus"] == []
    (rule,) = ingress(planned(full=True))["prometheus"]
    assert rule["ports"] == [{"port": 9090, "protocol": "TCP"}]
    assert "grafana" in json.dumps(rule["from"])


def test_what_it_reads_lets_it_in() -> None:
    for name in ("arc-metrics", "serving-metrics"):
        (policy,) = (r.inputs for r in planned(full=True).of_type(types.NETWORK_POLICY) if r.name == name)
        assert '"kubernetes.io/metadata.name": "prometheus"' in json.dumps(policy["spec"]["ingress"])


def test_the_plan_prices_its_volume() -> None:
    read = stack(SMALL)
    (line,) = (line for line in fixed.lines(read.fleet, planned(), None) if line.item == "Prometheus' volume")
    assert line.urns
    assert line.monthly.value is not None
    assert 1 < line.monthly.value < 5


def test_the_plan_counts_its_pods() -> None:
    def pods(data: dict[str, Any]) -> float:
        (need,) = (need for need in quota_needs(stack(data).fleet) if need.name == "Pods on system nodes")
        return need.need

    assert pods(SMALL) == pods(fleet_data(monitoring={"enabled": True})) + 2


@pytest.mark.parametrize(("settings", "said"), [
    ({"enabled": False}, "monitoring is not enabled"),
    ({"rules": "prometheus-rule"}, "remove rules, or remove prometheus"),
    ({"serviceMonitor": True}, "remove serviceMonitor, or remove prometheus"),
    ({"prometheus": {"day": 3}}, 'did you mean "?days'),
    ({"prometheus": {"alertmanager": "alertmanager.ops"}}, "such as http://alertmanager.ops:9093"),
    ({"prometheus": {"disk": "1Gi"}}, "1Gi is too small for Prometheus"),
])  # fmt: skip
def test_settings_that_cannot_be_are_explained(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(FleetError) as caught:
        stack(fleet_data(monitoring={"enabled": True, "prometheus": {}} | settings))
    assert said.replace('"?', "") in str(caught.value).replace('"', "")
