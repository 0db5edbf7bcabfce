"""Serving's objects before a real API server with KubeRay's definitions: their formats, defaults and rules, too."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.serving import pods
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane.servers import Lab
from paddock.plan.engine.program import plan_graph
from tests.support.fleets import SERVING, fleet_data, stack
from tests.support.kubernetes import objects
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

FULL = {
    "weights": "models", "clients": ["web"], "redis": {"address": "rediss://ray.example.com:6379"},
    "head": {"cpu": 2, "memory": "6Gi"}, "upgrade": "none", "limits": {"body": "16Mi", "userRequests": 8},
    "models": {
        "chat": {
            "model": "qwen3-0.6b", "checkpoint": "qwen/0.6b", "pools": ["t4"],
            "replicas": {"min": 3, "max": 5, "idle": "1h"}, "engineArgs": {"compilation_config": {"level": 3}},
        },
        "code": {
            "model": "qwen3-0.6b", "checkpoint": "qwen/0.6b", "pools": ["t4"], "quantization": "fp8", "mode": "default",
        },
    },
}  # fmt: skip
SERVICE = "RayService"
HEAD = ("rayClusterConfig", "headGroupSpec", "template", "spec")


@pytest.fixture(scope="module")
def definitions(cluster: Lab, reference_data: Path) -> Iterator[None]:
    """Put KubeRay's definition of a RayService into the cluster, and take it out again."""
    definition = yaml.safe_load((reference_data / "crds/ray.io_rayservices.yaml").read_text(encoding="utf-8"))
    with lab_api(cluster.kubeconfig) as api:
        api.create(definition)
        name = definition["metadata"]["name"]
        until(lambda: _established(api.get(definition["apiVersion"], definition["kind"], name)))
        yield
        api.delete(definition)


def _established(definition: Object) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or []
    return any(row["type"] == "Established" and row["status"] == "True" for row in conditions)


@pytest.fixture
def namespace(api: Api, definitions: None) -> Iterator[str]:
    """Yield the namespace of serving, with nothing in it: what is tried in it is not kept."""
    namespace = api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": pods.NAMESPACE}})
    until(lambda: api.find("v1", "ServiceAccount", "default", pods.NAMESPACE))
    yield pods.NAMESPACE
    api.delete(namespace)
    until(lambda: api.find("v1", "Namespace", pods.NAMESPACE) is None)


def declared(**serving: Any) -> list[Object]:
    """Return what the program declares in the namespace of serving."""
    fleet = stack(fleet_data(serving=deepcopy(SERVING) | serving))
    return [item for item in objects(plan_graph(fleet)) if item["metadata"].get("namespace") == pods.NAMESPACE]


@pytest.mark.parametrize("serving", [{}, FULL], ids=["smallest", "full"])
def test_the_api_server_takes_every_object_of_serving(api: Api, namespace: str, serving: dict[str, Any]) -> None:
    items = declared(**serving)
    assert SERVICE in {item["kind"] for item in items}
    for item in items:
        taken = api.create(item, dry_run=True)
        if item["kind"] == SERVICE:
            groups = taken["spec"]["rayClusterConfig"]["workerGroupSpecs"]
            assert [group["minReplicas"] for group in groups] == [0] * len(groups)


def test_pod_security_admits_the_pods_of_serving(api: Api, namespace: str) -> None:
    """At the level that the program gives their namespace."""
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.patch(api.get("v1", "Namespace", namespace), {"metadata": {"labels": level}})
    items = {item["kind"]: item["spec"] for item in declared(**FULL) if "spec" in item}
    cluster = items[SERVICE]["rayClusterConfig"]
    templates = [items["Deployment"]["template"]]
    templates += [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    for number, template in enumerate(templates):
        spec = {**template["spec"], "serviceAccountName": "default"}
        metadata = {"name": f"pod-{number}", "namespace": namespace}
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, dry_run=True)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("rayClusterConfig", "managedBy"), "somebody", "must be either 'ray.io/kuberay-operator'"),
        ((*HEAD, "containers", 0, "resources", "limits", "memory"), "much", "should match"),
        (("rayClusterConfig", "workerGroupSpecs", 0, "maxReplica"), 1, "unknown field"),
        (("rayClusterConfig", "authOptions", "mode"), "none", "Unsupported value"),
    ],
)
def test_the_api_server_refuses_what_kuberay_does(
    api: Api, namespace: str, path: tuple[Any, ...], value: Any, words: str
) -> None:
    (service,) = [item for item in declared() if item["kind"] == SERVICE]
    place = service["spec"]
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    with pytest.raises(ApiError, match=words):
        api.create(service, dry_run=True)
