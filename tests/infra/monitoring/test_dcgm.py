"""Alerts read only what is exported, with the labels it has."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.monitoring import dcgm as monitoring
from infra.monitoring.alerts import RULES
from infra.monitoring.metrics import DCGM_METRICS
from paddock import catalog
from tests.support.fleets import fleet_data, graph, named, stack

PROMTOOL = shutil.which("promtool")

# Of the exporter's GPU metrics (dcgm-exporter 4.8.2, internal/pkg/rendermetrics; read 2026-11-23). `Hostname` is the
# name of the node also where the exporter asks another engine (internal/pkg/hostname); the release after it calls the
# label `hostname`.
GPU_LABELS = {"gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"}
RESOURCE_LABELS = {"node", "resource", "unit"}
SCALE_SET_LABELS = {"name", "namespace", "repository", "organization", "enterprise"}
OTHERS = {
    # kube-state-metrics 2.x exports them without a flag (docs/metrics/cluster/node-metrics.md; read 2026-11-23).
    "kube_node_status_capacity": RESOURCE_LABELS,
    "kube_node_status_allocatable": RESOURCE_LABELS,
    # ARC 0.14.2: cmd/ghalistener/metrics and controllers/actions.github.com/metrics (read 2026-11-23).
    "gha_assigned_jobs": SCALE_SET_LABELS,
    "gha_running_jobs": SCALE_SET_LABELS,
    "gha_controller_failed_ephemeral_runners": SCALE_SET_LABELS,
}
WORDS = {"unless", "and", "or", "on", "ignoring", "by", "without", "group_left", "group_right", "bool", "offset"}


def rules() -> Iterator[dict[str, Any]]:
    for group in RULES["groups"]:
        yield from group["rules"]


def listed() -> dict[str, tuple[str, str]]:
    """Type and help by name of DCGM's metrics."""
    lines = [line for line in DCGM_METRICS.splitlines() if line and not line.startswith("#")]
    return {name: (kind, text) for name, kind, text in (re.split(r",\s*", line, maxsplit=2) for line in lines)}


def metrics(expression: str) -> set[str]:
    """Names of the metrics in an expression of PromQL."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(on|ignoring|by|without)\s*\([^)]*\)', " ", expression)
    return set(re.findall(r"[a-zA-Z_:][\w:]*(?![\w:]*\s*\()", bare)) - WORDS


def test_metrics_are_told_from_the_rest_of_an_expression() -> None:
    assert metrics(
        'sum by (a) (rate(x_total{b="c"}[5m])) > 0 unless on(d) label_replace(y, "d", "$1", "e", "(.+)")'
    ) == {
        "x_total",
        "y",
    }


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_each_alert_reads_metrics_and_labels_that_are_exported(rule: dict[str, Any]) -> None:
    exported = OTHERS | dict.fromkeys(listed(), GPU_LABELS)
    used = metrics(rule["expr"])
    assert used
    assert used <= set(exported)
    labels = set().union(*(exported[name] for name in used))
    spelled = str(rule["annotations"])
    asked = {*re.findall(r"\$labels\.(\w+)", spelled), *re.findall(r"\bon\((\w+)\)", rule["expr"])}
    assert asked <= labels


def test_each_line_of_the_list_is_a_metric_of_dcgm() -> None:
    assert {kind for kind, _ in listed().values()} == {"gauge", "counter", "label"}
    assert all(name.startswith("DCGM_FI_") and text for name, (_, text) in listed().items())


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


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool on PATH")
def test_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    (tmp_path / "tests.yaml").write_text(FIRE)
    result = subprocess.run(
        [str(PROMTOOL), "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


FIRE = """
rule_files: [rules.yaml]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {series: 'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0", Hostname="a"}', values: '0x10 1x20'}
  - {series: 'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="1", Hostname="a"}', values: '0x30'}
  - {series: 'DCGM_FI_DEV_XID_ERRORS{gpu="1", Hostname="a"}', values: '0x10 79x20'}
  - {series: 'DCGM_FI_DEV_XID_ERRORS{gpu="2", Hostname="a"}', values: '31x30'}
  - {series: 'DCGM_FI_DEV_GPU_TEMP{gpu="0", Hostname="a"}', values: '50x30'}
  - {series: 'kube_node_status_capacity{node="a", resource="nvidia_com_gpu", unit="integer"}', values: '4x30'}
  - {series: 'kube_node_status_capacity{node="b", resource="nvidia_com_gpu", unit="integer"}', values: '1x30'}
  - {series: 'kube_node_status_capacity{node="c", resource="nvidia_com_gpu", unit="integer"}', values: '0x30'}
  - {series: 'kube_node_status_allocatable{node="a", resource="nvidia_com_gpu", unit="integer"}', values: '3x30'}
  - {series: 'kube_node_status_allocatable{node="b", resource="nvidia_com_gpu", unit="integer"}', values: '1x30'}
  - {series: 'gha_assigned_jobs{name="gpu", namespace="arc-runners"}', values: '3x30'}
  - {series: 'gha_running_jobs{name="gpu", namespace="arc-runners"}', values: '2x30'}
  - {series: 'gha_assigned_jobs{name="cpu", namespace="arc-runners"}', values: '2x30'}
  - {series: 'gha_running_jobs{name="cpu", namespace="arc-runners"}', values: '2x30'}
  promql_expr_test:
  - {expr: 'ALERTS{alertname="GpuUncorrectableEccError", alertstate="firing"}', eval_time: 13m, exp_samples: [
      {labels: 'ALERTS{alertname="GpuUncorrectableEccError", alertstate="firing", severity="critical", gpu="0",
        Hostname="a"}', value: 1}]}
  - {expr: 'ALERTS{alertname="GpuXidError", alertstate="firing"}', eval_time: 13m, exp_samples: [
      {labels: 'ALERTS{alertname="GpuXidError", alertstate="firing", severity="warning", gpu="1", Hostname="a"}',
       value: 1}]}
  - {expr: 'ALERTS{alertname="GpuMetricsMissing", alertstate="firing"}', eval_time: 20m, exp_samples: [
      {labels: 'ALERTS{alertname="GpuMetricsMissing", alertstate="firing", severity="warning", node="b",
        resource="nvidia_com_gpu", unit="integer"}', value: 1}]}
  - {expr: 'ALERTS{alertname="GpuNotAllocatable", alertstate="firing"}', eval_time: 20m, exp_samples: [
      {labels: 'ALERTS{alertname="GpuNotAllocatable", alertstate="firing", severity="warning", node="a"}', value: 1}]}
  - {expr: 'ALERTS{alertname="GpuJobsWaiting", alertstate="firing"}', eval_time: 25m, exp_samples: [
      {labels: 'ALERTS{alertname="GpuJobsWaiting", alertstate="firing", severity="warning", name="gpu",
        namespace="arc-runners"}', value: 1}]}
"""
