"""DCGM Exporter: its list of metrics, its engine, and what else is scraped for the rules."""

from __future__ import annotations

from typing import Any

import pytest

from infra.monitoring import dcgm as monitoring
from paddock import catalog
from paddock.monitoring.metrics.dcgm import DCGM_METRICS, dcgm_metrics
from tests.support.fleets import fleet_data, graph, named, stack


def test_each_line_of_the_list_is_a_metric_of_dcgm() -> None:
    assert {kind for kind, _ in dcgm_metrics().values()} == {"gauge", "counter", "label"}
    assert all(name.startswith("DCGM_FI_") and text for name, (_, text) in dcgm_metrics().items())


def test_the_exporter_is_given_the_list() -> None:
    values = monitoring.values(named("monitoring").fleet)
    assert values["customMetrics"] == DCGM_METRICS


def test_a_node_of_a_new_cluster_has_one_dcgm_engine() -> None:
    values = monitoring.values(named("monitoring").fleet)
    assert values["arguments"][-2:] == ["-r", "$(HOST_IP):5555"]
    assert {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}} in values["extraEnv"]


@pytest.mark.parametrize("own", [True, False])
def test_a_cluster_of_others_says_whether_it_has_an_engine(own: bool) -> None:
    cluster = {"kubeconfig": "~/.kube/config", "context": "lab"}
    data = fleet_data(cluster=cluster, monitoring={"enabled": True, "hostEngine": own})
    assert ("-r" in monitoring.values(stack(data).fleet)["arguments"]) is own


def test_what_alerts_read_of_arc_is_scraped_too() -> None:
    (monitor,) = (r for r in graph("monitoring").resources.values() if r.inputs.get("kind") == "PodMonitor")
    assert monitor.inputs["spec"]["namespaceSelector"] == {"matchNames": ["arc-systems"]}


AGENT_FAMILIES = (
    "g3 g3s g4dn g5 g5g g6 g6e g6f g7 g7e gr6 gr6f p2 p3 p3dn p4d p4de p5 p5e p5en p6-b200 p6-b300 p6e-gb200 p6e-gb300"
)
"""Families on which the node monitoring agent runs its DCGM engine (charts of v1.6.7 and v1.7.0, values.yaml; read
2026-11-23)."""


def test_the_node_monitoring_agent_knows_every_gpu_family() -> None:
    families = {name.split(".")[0] for name, instance in catalog.instances().items() if instance.gpu}
    assert families <= set(AGENT_FAMILIES.split())
    agents = {addons["eks-node-monitoring-agent"] for addons in catalog.eks_addons().values()}
    assert all(catalog.version(agent.removeprefix("v").partition("-")[0]) >= (1, 6, 7) for agent in agents)


def dcgm_policies(sample: str) -> list[dict[str, Any]]:
    """Return the specs of network policies for the engine's pods."""
    policies = graph(sample).of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")
    engine = {"matchLabels": {"k8s-app": "dcgm-server"}}
    return [dict(item.inputs["spec"]) for item in policies if item.inputs["spec"]["podSelector"] == engine]


def test_nobody_but_the_exporter_reaches_the_engine() -> None:
    (policy,) = dcgm_policies("monitoring")
    (rule,) = policy["ingress"]
    (peer,) = rule["from"]
    assert policy["policyTypes"] == ["Ingress"]
    assert rule["ports"] == [{"port": 5555, "protocol": "TCP"}]
    assert peer["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    assert peer["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "dcgm-exporter"}}


def test_without_an_exporter_nobody_reaches_the_engine() -> None:
    (policy,) = dcgm_policies("smallest")
    assert policy["policyTypes"] == ["Ingress"]
    assert "ingress" not in policy


@pytest.mark.parametrize("sample", ["existing-cluster", "any-cluster"])
def test_an_engine_of_others_is_theirs_to_close(sample: str) -> None:
    assert dcgm_policies(sample) == []
