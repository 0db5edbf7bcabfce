"""A world of objects as an API server over HTTP, for processes; a kubeconfig leads to it.

It lists, pages nothing, merges changes into the version that was read, deletes, and runs the pod of a Job at once.
"""

from __future__ import annotations

import copy
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.chain_objects import NODE
from tests.support.chain_world import World
from tests.support.changes import merge
from tests.support.http_server import Handler, serving

Object = dict[str, Any]
_ARC = "apis/actions.github.com/v1alpha1"
_KINDS = {
    "api/v1": {
        "Event": "events", "Namespace": "namespaces", "Node": "nodes", "Pod": "pods",
        "PersistentVolume": "persistentvolumes", "PersistentVolumeClaim": "persistentvolumeclaims",
        "ResourceQuota": "resourcequotas", "Service": "services", "Secret": "secrets",
    },
    "apis/apps/v1": {"DaemonSet": "daemonsets", "Deployment": "deployments"},
    "apis/batch/v1": {"Job": "jobs"},
    "apis/rbac.authorization.k8s.io/v1": {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"},
    "apis/apiextensions.k8s.io/v1": {"CustomResourceDefinition": "customresourcedefinitions"},
    _ARC: {
        "AutoscalingListener": "autoscalinglisteners", "AutoscalingRunnerSet": "autoscalingrunnersets",
        "EphemeralRunner": "ephemeralrunners", "EphemeralRunnerSet": "ephemeralrunnersets",
    },
}  # fmt: skip
_OF_CLUSTER = {
    "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace", "Node", "PersistentVolume",
}  # fmt: skip
_PATH = re.compile(r"/(apis?/(?:[\w.-]+/)?v\w+)(?:/namespaces/([\w.-]+))?/(\w+)(?:/([\w.-]+))?(?:/(\w+))?")


def write_kubeconfig(path: Path, server: str, cluster: str = "paddock-dev", context: str = "paddock-dev") -> Path:
    """Write a kubeconfig of one cluster with a token."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context,
        "contexts": [{"name": context, "context": {"cluster": cluster, "user": "me"}}],
        "clusters": [{"name": cluster, "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": "t"}}],
    }
    path.write_text(json.dumps(document))
    return path


@dataclass
class KubernetesApi:
    """State of the stand-in: the objects are those of the world."""

    world: World
    log: str = "GPU 0: Tesla T4 (UUID: GPU-1)"
    phase: str = "Succeeded"
    """Phase of a Job's pod."""
    changed: Callable[[str, Object], None] = lambda verb, item: None
    """Called after each change: what controllers do then."""
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def kubeconfig(self, path: Path, context: str = "paddock-dev") -> Path:
        """Write a kubeconfig whose current context is this server, under the name of the fleet's cluster."""
        return write_kubeconfig(path, self.url, self.world.fleet.cluster_name, context)

    def answer(self, method: str, target: str, body: Object) -> tuple[int, Any]:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        self.requests.append(f"{method} {parts.path}")
        if (base := parts.path.strip("/")) in _KINDS:
            names = ((name, kind) for kind, name in _KINDS[base].items())
            return 200, {"resources": [{"name": n, "kind": k, "namespaced": k not in _OF_CLUSTER} for n, k in names]}
        match = _PATH.fullmatch(parts.path)
        if match is None:
            return _refusal(404, "NotFound")
        base, namespace, plural, name, part = match.groups()
        kind = {plural: kind for kind, plural in _KINDS.get(base, {}).items()}.get(plural)
        if kind is None:
            return _refusal(404, "NotFound")
        if part == "log":
            return 200, self.log
        if method == "POST":
            return 201, self._create(kind, base, body)
        if not name:
            return 200, {"metadata": {}, "items": [self._shown(item) for item in self._list(kind, namespace, query)]}
        item = next((item for item in self._list(kind, namespace, {}) if item["metadata"]["name"] == name), None)
        if item is None:
            return _refusal(404, "NotFound")
        if method in ("PATCH", "DELETE"):
            return self._change(method, item, body)
        return 200, self._shown(item)

    def _list(self, kind: str, namespace: str | None, query: Mapping[str, str]) -> list[Object]:
        items = [item for item in self.world.objects if item["kind"] == kind]
        if namespace:
            items = [item for item in items if item["metadata"].get("namespace") == namespace]
        for selector in filter(None, query.get("labelSelector", "").split(",")):
            key, _, value = selector.partition("=")
            items = [item for item in items if (item["metadata"].get("labels") or {}).get(key) == value]
        for selector in filter(None, query.get("fieldSelector", "").split(",")):
            key, no, value = re.split(r"(!?=)", selector)
            items = [item for item in items if (str(_at(item, key)) == value) == (no == "=")]
        return items

    def _create(self, kind: str, base: str, body: Object) -> Object:
        item = {**body, "kind": kind, "apiVersion": base.removeprefix("apis/").removeprefix("api/")}
        self.world.objects.append(item)
        if kind == "Job":
            meta, template = item["metadata"], item["spec"]["template"]
            labels = {**meta.get("labels", {}), **(template.get("metadata") or {}).get("labels", {})}
            owner = {"kind": "Job", "name": meta["name"], "uid": "1", "apiVersion": "batch/v1"}
            place = {"name": f"{meta['name']}-x", "namespace": meta["namespace"]}
            status = {"phase": self.phase, "conditions": []}
            spec = {**copy.deepcopy(template["spec"]), "nodeName": NODE}
            pod_meta = {**place, "labels": labels, "ownerReferences": [owner]}
            self.world.objects.append(
                {"apiVersion": "v1", "kind": "Pod", "metadata": pod_meta, "spec": spec, "status": status}
            )
        self.changed("POST", item)
        return self._shown(item)

    def _change(self, method: str, item: Object, body: Object) -> tuple[int, Any]:
        meta = item["metadata"]
        wanted = (body.get("metadata") or body.get("preconditions") or {}).get("resourceVersion")
        if wanted not in (None, str(meta.get("resourceVersion", "1"))):
            return _refusal(409, "Conflict")
        if method == "DELETE":
            self.world.objects.remove(item)
        else:
            merge(item, body)
            meta["resourceVersion"] = str(int(meta.get("resourceVersion") or 1) + 1)
        self.changed(method, item)
        return 200, self._shown(item)

    def _shown(self, item: Object) -> Object:
        shown = dict(self.world.dated(item))
        shown["metadata"] = {"resourceVersion": "1", "uid": "1", **shown["metadata"]}
        return shown


def _at(item: Object, key: str) -> Any:
    value: Any = item
    for part in key.split("."):
        value = (value or {}).get(part)
    return value


def _refusal(status: int, reason: str) -> tuple[int, Object]:
    return status, {"kind": "Status", "reason": reason, "message": reason, "code": status}


@contextmanager
def serve(api: KubernetesApi) -> Iterator[KubernetesApi]:
    """Serve it on loopback; `url` is then its address."""
    lock = threading.Lock()

    class Requests(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            sent = self.body()
            with lock:
                status, answer = api.answer(self.command, self.path, json.loads(sent or b"{}"))
                text = answer if isinstance(answer, str) else json.dumps(answer)
            self.send(status, text)

        do_POST = do_PATCH = do_DELETE = do_GET

    with serving(Requests) as api.url:
        yield api
