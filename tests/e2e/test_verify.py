"""`inv verify` on a real control plane: simulated GPU nodes, no program runs in a pod, everything else is real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.fleet import Stack
from paddock.fleet import nodes as fleet_nodes
from paddock.kubernetes.client import Api, Object
from paddock.lab.control_plane.servers import Lab
from paddock.labels import VERIFY as LABEL
from paddock.operate.verify.command import Verify, records, verify
from tests.support.aws_account import Account, answering
from tests.support.kubernetes import daemonset, gpu_nodes, runner_set
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e]

ROOT = Path(__file__).resolve().parents[2]
CRDS = ROOT / "paddock/lab/stack/charts/own/gha-runner-scale-set-controller/crds"
RUNNERS = "arc-runners"
CONTEXT = "paddock-lab"


@pytest.fixture
def fleet_at(api: Api, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """Yield the cluster with the stack's scale set and the device plugin's DaemonSet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    plugin = daemonset(
        "nvidia-device-plugin",
        "kube-system",
        {
            "nodeSelector": {f"{fleet_nodes.GPU}.present": "true"},
            "tolerations": [fleet_nodes.TAINT.toleration()],
        },
    )
    # Other tests of this cluster may have left the namespace and the CRDs.
    for item in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": RUNNERS}},
        *(yaml.safe_load(file.read_text()) for file in sorted(CRDS.iterdir())),
    ):
        api.apply(item)
    until(lambda: api.find("v1", "ServiceAccount", "default", RUNNERS))
    until(lambda: _created(api, runner_set(stack.fleet, "gpu")))
    api.create(plugin)
    yield api
    for item in (plugin, runner_set(stack.fleet, "gpu")):
        api.delete(item)
    until(lambda: not gpu_nodes(api))


def _created(api: Api, item: Object) -> bool:
    try:
        api.create(item)
    except Exception:  # its kind is not served yet
        return False
    return True


def of_runs(api: Api) -> list[str]:
    """Return what runs of a verification have left in the cluster."""
    kinds = (("batch/v1", "Job"), ("v1", "Pod"))
    return [item["metadata"]["name"] for v, k in kinds for item in api.list(v, k, labelSelector=LABEL)]


def verified(cluster: Lab, folder: Path) -> tuple[int, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PADDOCK_ROOT", str(ROOT))
        patch.setattr("paddock.operate.verify.command.POLL", 0.2)
        answering(patch, Account({}))
        report = verify(
            Verify(kubeconfig=cluster.kubeconfig, context=CONTEXT, timeout=120.0, junit=folder / "junit.xml")
        )
    return report.exit_code, report.document()


def test_it_passes_and_leaves_nothing_behind(fleet_at: Api, cluster: Lab, tmp_path: Path) -> None:
    code, report = verified(cluster, tmp_path)
    assert code == 0, report
    states = {step["name"]: step["state"] for step in report["steps"]}
    assert states == {
        "GPU nodes and capacity": "pass",
        "nvidia-smi on gpu": "pass",
        "torch on gpu": "pass",
        "canary workflow": "skip",
    }
    assert of_runs(fleet_at) == []
    parts = {part["name"]: part for part in report["steps"][1]["phases"]}
    assert parts["node claimed"]["seconds"] is not None
    assert parts["GPU allocatable"]["seconds"] <= parts["GPU allocatable"]["budget_seconds"]
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "0", "1")
    (record,) = records("dev").read_text().splitlines()
    assert json.loads(record)["run"] == report["run"]


def test_a_missing_device_plugin_fails_and_is_named(fleet_at: Api, cluster: Lab, tmp_path: Path) -> None:
    fleet_at.delete(fleet_at.get("apps/v1", "DaemonSet", "nvidia-device-plugin", "kube-system"))
    code, report = verified(cluster, tmp_path)
    assert code == 1
    first = report["steps"][0]
    assert (first["state"], "no NVIDIA device plugin" in first["message"]) == ("fail", True)
    assert first["fix"] == "pulumi up --stack dev"
    assert of_runs(fleet_at) == []


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing_behind(fleet_at: Api, cluster: Lab, signal_: signal.Signals) -> None:
    command = [sys.executable, "-m", "paddock", "verify", "--stack", "dev", "--context", CONTEXT]
    own = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "KUBECONFIG": str(cluster.kubeconfig)}
    env = {**os.environ, **own}
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        until(lambda: of_runs(fleet_at) or run.poll() is not None)
        run.send_signal(signal_)
        text, errors = run.communicate(timeout=120)
    assert run.returncode == 130, text + errors
    assert "interrupted; failed" in text
    assert "nothing left behind" in text
    assert of_runs(fleet_at) == []
