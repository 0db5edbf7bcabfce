"""A workflow's kubernetes steps through the real kubectl, against a real API server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.workflow.engine import run
from paddock.gpu.workflow.model import parse
from paddock.kubernetes.client import Api
from paddock.lab.control_plane.servers import Lab

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH"),
]

NAME = "gpu-workflow"


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAME}, "data": data}


def kubernetes(id: str, action: str, *depends_on: str, **parameters: Any) -> dict[str, Any]:
    return {
        "ID": id,
        "TaskType": "kubernetes",
        "DependsOn": [*depends_on],
        "Parameters": {"action": action} | parameters,
    }


def test_what_is_found_reaches_the_cluster_and_is_taken_away_again(cluster: Lab, api: Api, tmp_path: Path) -> None:
    at = {"kubeconfig": str(cluster.kubeconfig)}
    (tmp_path / "namespace.yaml").write_text(f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAME}\n")
    steps = [
        {"ID": "detect", "TaskType": "gpu", "Parameters": {"action": "list"}},
        kubernetes("namespace", "apply", file="namespace.yaml", **at),
        kubernetes(
            "nodes", "apply", "detect", "namespace", manifest=config_map("gpus", backend="nvidia"), **at,
        ),
        kubernetes(
            "there", "wait", "nodes", resource="configmap/gpus", condition="jsonpath={.data.backend}", seconds=20,
            namespace=NAME, **at,
        ),
        kubernetes("away", "delete", "there", file="namespace.yaml", **at),
    ]  # fmt: skip
    result = run(parse({"ID": "w", "Steps": steps[:-1]}, "w", tmp_path), journal=tmp_path / "first")
    assert result["outcome"] == "succeeded", result
    _, _, nodes, _ = (step["result"] for step in result["steps"])
    assert nodes["objects"] == ["configmap/gpus"]
    there = api.get("v1", "ConfigMap", "gpus", NAME)
    assert there["data"] == {"backend": "nvidia"}
    assert {entry["manager"] for entry in there["metadata"]["managedFields"]} == {"paddock"}

    wrong = [kubernetes("wrong", "apply", manifest={**config_map("gpus"), "dta": {}}, **at)]
    failed = run(parse({"ID": "w", "Steps": wrong}, "w", tmp_path), journal=tmp_path / "second")
    assert failed["outcome"] == "failed"
    assert "dta" in failed["steps"][0]["error"]

    result = run(parse({"ID": "w", "Steps": steps}, "w", tmp_path), journal=tmp_path / "third")
    assert result["outcome"] == "succeeded", result
