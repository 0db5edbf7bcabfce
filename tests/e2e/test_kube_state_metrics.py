"""kube-state-metrics itself on a real API server, with the arguments, file and rights that the program gives it."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.monitoring import prometheus
from paddock.console.progress import Progress
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane import servers
from paddock.lab.simulators import nodes as simulated
from paddock.monitoring.metrics.runner_jobs import RUNNER_JOB, RUNNER_JOB_LABELS
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from tests.support.fleets import ROOT, fleet_data, stack
from tests.support.kubernetes import applied, as_account
from tests.support.waiting import until

PATH = os.pathsep.join(filter(None, (os.environ.get("PADDOCK_LAB_BIN"), os.environ.get("PATH"))))
PROGRAM = shutil.which("kube-state-metrics", path=PATH)
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.xdist_group("kube-state-metrics"),
    pytest.mark.usefixtures("control_plane_programs"),
    pytest.mark.skipif(PROGRAM is None, reason="kube-state-metrics is not on PATH, nor in PADDOCK_LAB_BIN"),
]

CRDS = ROOT / "paddock/lab/stack/charts/own/gha-runner-scale-set-controller/crds"
NAMESPACE = "prometheus"


@pytest.fixture(scope="module")
def graph() -> Graph:
    return plan_graph(stack(fleet_data(monitoring={"enabled": True, "prometheus": {}})))


def declared(graph: Graph, type_: str) -> Object:
    """Return the one object of a type that is kube-state-metrics'."""
    (found,) = (r.inputs for r in graph.of_type(type_) if "kube-state-metrics" in r.inputs["metadata"]["name"])
    return found


@pytest.fixture(scope="module")
def metrics(
    graph: Graph, tmp_path_factory: pytest.TempPathFactory, control_plane_programs: None
) -> Iterator[list[str]]:
    """What it exports of two runners, one of which has a job."""
    folder = tmp_path_factory.mktemp("lab")
    lab, _ = servers.up(folder, progress=Progress(quiet=True))
    try:
        with lab_api(lab.kubeconfig) as api:
            _fill(api, graph)
            account = as_account(api, "kube-state-metrics", NAMESPACE)
            with running(graph, lab.kubeconfig, account._token, folder) as url:
                until(lambda: {RUNNER_JOB, "kube_pod_status_phase"} <= _families(_read(url)), seconds=120)
                yield _read(url).splitlines()
    finally:
        servers.down(lab.folder)


def _fill(api: Api, graph: Graph) -> None:
    for name in (NAMESPACE, "arc-runners"):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for file in sorted(CRDS.iterdir()):
        api.create(yaml.safe_load(file.read_text()))
    kinds = {
        types.CLUSTER_ROLE: ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        types.CLUSTER_ROLE_BINDING: ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    }
    for type_, (version, kind) in kinds.items():
        inputs = declared(graph, type_)
        fields = {key: value for key, value in inputs.items() if key in ("metadata", "rules", "roleRef", "subjects")}
        for subject in fields.get("subjects") or []:
            subject["namespace"] = NAMESPACE
        api.create({"apiVersion": version, "kind": kind, **fields})
    where = {"name": "kube-state-metrics", "namespace": NAMESPACE}
    api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": where})
    for runner in ("gpu-abc12-runner-x1y2z", "gpu-abc12-runner-idle1"):
        meta = {"name": runner, "namespace": "arc-runners", "labels": {"actions.github.com/scale-set-name": "gpu"}}
        spec = {"githubConfigUrl": "https://github.com/acme", "githubConfigSecret": "s", "runnerScaleSetId": 7}
        item = {"apiVersion": "actions.github.com/v1alpha1", "kind": "EphemeralRunner", "metadata": meta, "spec": spec}
        made = until(lambda item=item: applied(api, item))
        status: dict[str, Any] = {"phase": "Running", "runnerId": 9, "runnerName": runner, "ready": True}
        if runner.endswith("x1y2z"):
            status |= {
                "jobRepositoryName": "acme/app",
                "jobWorkflowRef": "acme/app/.github/workflows/ci.yml@refs/heads/main",
                "jobDisplayName": "train (3.12)",
                "workflowRunId": 71,
                "failures": {"0b": "2026-11-24T11:00:00Z"},
            }
        api.patch(made, {"status": status}, "status")
    api.create(simulated.system_nodes(stack(fleet_data()).fleet)[0])
    until(lambda: api.find("v1", "ServiceAccount", "default", "arc-runners"))
    container = {"name": "runner", "image": "any"}
    pod = {
        "metadata": {"name": "gpu-abc12-runner-x1y2z", "namespace": "arc-runners"},
        "spec": {"containers": [container]},
    }
    api.create({"apiVersion": "v1", "kind": "Pod", **pod})


@contextmanager
def running(graph: Graph, kubeconfig: Path, token: str, folder: Path) -> Iterator[str]:
    """Run the program as the Deployment's container does, with the rights of its account alone; yield its address."""
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"] = [{"name": "state", "user": {"token": token}}]
    config["contexts"][0]["context"]["user"] = "state"
    (folder / "state-kubeconfig").write_text(yaml.safe_dump(config))
    for name, text in declared(graph, types.CONFIG_MAP)["data"].items():
        (folder / name).write_text(text)
    (container,) = prometheus.state_pod(stack(fleet_data()).fleet)["containers"]
    (mount,) = container["volumeMounts"]
    port, telemetry = servers.free_ports(2)
    own = ("--port=", "--telemetry-port=")
    command = [
        str(PROGRAM),
        *(text.replace(mount["mountPath"], str(folder)) for text in container["args"] if not text.startswith(own)),
        *(f"--port={port}", f"--telemetry-port={telemetry}", "--host=127.0.0.1", "--telemetry-host=127.0.0.1"),
        f"--kubeconfig={folder / 'state-kubeconfig'}",
    ]
    log = folder / "kube-state-metrics.log"
    with log.open("w") as file, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file) as process:
        try:
            yield f"http://127.0.0.1:{port}/metrics"
        finally:
            process.terminate()
    text = log.read_text()
    assert "forbidden" not in text, text[-2000:]


def _families(text: str) -> set[str]:
    return {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")}


def _read(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_runner_with_a_job_has_one_series_with_its_labels(metrics: list[str]) -> None:
    (series,) = (line for line in metrics if line.startswith(f"{RUNNER_JOB}{{"))
    labels = dict(
        part.split("=", 1) for part in series[len(RUNNER_JOB) + 1 : series.rindex("}")].replace('",', '"\n').split("\n")
    )
    own = {key: value.strip('"') for key, value in labels.items() if not key.startswith("customresource_")}
    assert own == {
        "namespace": "arc-runners",
        "runner": "gpu-abc12-runner-x1y2z",
        "scale_set": "gpu",
        "repository": "acme/app",
        "job_workflow_ref": "acme/app/.github/workflows/ci.yml@refs/heads/main",
        "job_name": "train (3.12)",
    }
    assert set(own) == RUNNER_JOB_LABELS
    assert series.endswith("} 1")


def test_what_rules_read_is_exported_too(metrics: list[str]) -> None:
    families = _families("\n".join(metrics))
    assert {RUNNER_JOB, "kube_node_status_allocatable", "kube_pod_status_phase"} <= families
    assert not {family for family in families if family.startswith(("kube_secret", "kube_deployment"))}
