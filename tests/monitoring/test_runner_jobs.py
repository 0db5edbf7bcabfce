"""Figures of GPUs by job: what kube-state-metrics is told to export, and the join, judged by Prometheus' own tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.monitoring import prometheus
from paddock.monitoring.metrics.runner_jobs import (
    BUSY,
    IDLE,
    POD_LABELS,
    RUNNER_JOB,
    RUNNER_JOB_LABELS,
    SEEN,
    by_job,
    held,
    state_configuration,
)
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.program import plan_graph
from tests.support import promql
from tests.support.exported_metrics import exported
from tests.support.fleets import fleet_data, named, stack
from tests.support.promtool import PROMTOOL, evaluates

pytestmark = pytest.mark.skipif(PROMTOOL is None, reason="no promtool on PATH")

JOB = ("repository", "job_workflow_ref", "scale_set")


def info(runner: str, repository: str, workflow: str = "ci", instance: str = "a") -> str:
    ref = f"{repository}/.github/workflows/{workflow}.yml@refs/heads/main"
    labels = f'namespace="arc-runners", runner="{runner}", scale_set="gpu", repository="{repository}"'
    return f'{RUNNER_JOB}{{{labels}, job_workflow_ref="{ref}", job_name="a job", instance="{instance}"}}'


def of(repository: str, workflow: str = "ci") -> str:
    ref = f"{repository}/.github/workflows/{workflow}.yml@refs/heads/main"
    return f'{{repository="{repository}", job_workflow_ref="{ref}", scale_set="gpu"}}'


def requests(pod: str, node: str = "n", namespace: str = "arc-runners") -> str:
    labels = f'namespace="{namespace}", pod="{pod}", container="runner", node="{node}"'
    return f'kube_pod_container_resource_requests{{{labels}, resource="nvidia_com_gpu", unit="integer"}}'


def phase(pod: str, phase: str, namespace: str = "arc-runners") -> str:
    return f'kube_pod_status_phase{{namespace="{namespace}", pod="{pod}", phase="{phase}"}}'


def util(gpu: str, pod: str, namespace: str = "arc-runners") -> str:
    labels = f'gpu="{gpu}", UUID="GPU-{gpu}", modelName="T4", Hostname="n", namespace="{namespace}", pod="{pod}"'
    return f"DCGM_FI_DEV_GPU_UTIL{{{labels}}}"


WORLD = {
    info("gpu-a-runner-1", "acme/app"): "1x60",
    # A second kube-state-metrics, as for a moment of every rollout.
    info("gpu-a-runner-1", "acme/app", instance="b"): "1x60",
    info("gpu-a-runner-2", "acme/web"): "1x60",
    requests("gpu-a-runner-1"): "2x60",
    phase("gpu-a-runner-1", "Running"): "1x60",
    phase("gpu-a-runner-1", "Pending"): "0x60",
    # In kubernetes mode the job's own pod has the GPU.
    requests("gpu-a-runner-2-workflow"): "1x60",
    phase("gpu-a-runner-2-workflow", "Running"): "1x60",
    # A runner without a job, a pod of somebody else, one of another namespace with a runner's name.
    requests("gpu-a-runner-3"): "1x60",
    phase("gpu-a-runner-3", "Running"): "1x60",
    requests("gpu-a-runner-1", namespace="others"): "1x60",
    phase("gpu-a-runner-1", "Running", "others"): "1x60",
    util("0", "gpu-a-runner-1"): "80x60",
    util("1", "gpu-a-runner-1"): "40x60",
    util("2", "gpu-a-runner-2-workflow"): "0x60",
    util("3", "gpu-a-runner-3"): "0x60",
    util("4", "dcgm-exporter-x", "monitoring"): "0x60",
}


@pytest.mark.parametrize(("vector", "expected"), [
    (held(), {of("acme/app"): 2, of("acme/web"): 1}),
    (held("Running|Pending"), {of("acme/app"): 2, of("acme/web"): 1}),
    (SEEN, {of("acme/app"): 2, of("acme/web"): 1}),
    (BUSY, {of("acme/app"): 1.2, of("acme/web"): 0}),
    (IDLE, {of("acme/web"): 1}),
])  # fmt: skip
def test_figures_of_pods_go_to_their_jobs(vector: str, expected: dict[str, float]) -> None:
    assert evaluates(WORLD, by_job(vector, *JOB), "30m", expected) == ""


def test_workflows_of_one_repository_are_separate_or_summed() -> None:
    world = {**WORLD, info("gpu-a-runner-3", "acme/app", "train"): "1x60"}
    apart = {of("acme/app"): 2, of("acme/app", "train"): 1, of("acme/web"): 1}
    assert evaluates(world, by_job(held(), *JOB), "30m", apart) == ""
    together = {'{repository="acme/app"}': 3, '{repository="acme/web"}': 1}
    assert evaluates(world, by_job(held(), "repository"), "30m", together) == ""


def test_two_of_kube_state_metrics_count_once() -> None:
    second = {
        f'{series[:-1]}, instance="b"}}': values
        for series, values in WORLD.items()
        if series.startswith("kube_pod") and "others" not in series
    }
    expected = {of("acme/app"): 2, of("acme/web"): 1}
    assert evaluates({**WORLD, **second}, by_job(held(), *JOB), "30m", expected) == ""


def test_a_job_that_has_ended_has_no_gpu() -> None:
    world = {**WORLD, info("gpu-a-runner-2", "acme/web"): "1x10 _x50"}
    assert evaluates(world, by_job(held(), *JOB), "30m", {of("acme/app"): 2}) == ""


def test_pulling_an_image_counts_where_it_is_asked_for() -> None:
    world = {**WORLD, phase("gpu-a-runner-1", "Running"): "0x60", phase("gpu-a-runner-1", "Pending"): "1x60"}
    assert evaluates(world, by_job(held(), *JOB), "30m", {of("acme/web"): 1}) == ""
    both = {of("acme/app"): 2, of("acme/web"): 1}
    assert evaluates(world, by_job(held("Running|Pending"), *JOB), "30m", both) == ""


@pytest.mark.parametrize("vector", [held(), SEEN, BUSY, IDLE])
def test_queries_read_only_what_is_exported(vector: str) -> None:
    expression = by_job(vector, *JOB)
    assert promql.metrics(expression) <= set(exported())
    known = RUNNER_JOB_LABELS | POD_LABELS | exported()["kube_pod_container_resource_requests"] | {"phase"}
    assert promql.labels(expression) <= known


# What kube-state-metrics is told. A run of the real program: tests/e2e/test_kube_state_metrics.py.

KEYS = {
    "root": {"kind", "spec"},
    "spec": {"resources"},
    "resource": {"groupVersionKind", "metricNamePrefix", "labelsFromPath", "commonLabels", "metrics", "resourcePlural",
        "errorLogV"},
    "metric": {"name", "help", "each", "labelsFromPath", "commonLabels", "errorLogV"},
    "each": {"type", "info", "gauge", "stateSet"},
    "info": {"path", "labelsFromPath", "labelFromKey"},
}  # fmt: skip
"""Keys of pkg/customresourcestate/config.go and config_metrics_types.go of kube-state-metrics 2.19.1."""


def test_configuration_has_only_keys_of_kube_state_metrics_own_source() -> None:
    document = state_configuration()
    (resource,) = document["spec"]["resources"]
    (metric,) = resource["metrics"]
    assert set(document) <= KEYS["root"]
    assert set(document["spec"]) <= KEYS["spec"]
    assert set(resource) <= KEYS["resource"]
    assert set(metric) <= KEYS["metric"]
    assert set(metric["each"]) <= KEYS["each"]
    assert set(metric["each"]["info"]) <= KEYS["info"]
    assert f"{resource['metricNamePrefix']}_{metric['name']}" == RUNNER_JOB
    labels = {*resource["labelsFromPath"], *metric["each"]["info"]["labelsFromPath"]}
    assert labels == RUNNER_JOB_LABELS


def test_kube_state_metrics_gets_the_file_and_may_export_it() -> None:
    graph = plan_graph(stack(fleet_data(monitoring={"enabled": True, "prometheus": {}})))
    (container,) = prometheus.state_pod(named("smallest").fleet)["containers"]
    (file,) = (a for a in container["args"] if a.startswith("--custom-resource-state-config-file="))
    (mount,) = container["volumeMounts"]
    folder, _, name = file.partition("=")[2].rpartition("/")
    assert folder == mount["mountPath"]
    maps: dict[str, Any] = {m.inputs["metadata"]["name"]: m.inputs["data"] for m in graph.of_type(types.CONFIG_MAP)}
    assert yaml.safe_load(maps["kube-state-metrics"][name]) == state_configuration()
    (allowed,) = (a for a in container["args"] if a.startswith("--metric-allowlist="))
    assert RUNNER_JOB in allowed.partition("=")[2].split(",")


def test_the_guide_has_the_same_configuration_for_another_kube_state_metrics(root: Path) -> None:
    page = (root / "docs/monitoring.md").read_text(encoding="utf-8")
    start = page.index("kind: CustomResourceStateMetrics")
    assert yaml.safe_load(page[start : page.index("```", start)]) == state_configuration()
