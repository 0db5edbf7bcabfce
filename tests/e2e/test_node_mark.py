"""Rights of a job's token on a real API server: to mark its own node, and nothing else.

The tokens are bound to pods, as the kubelet asks for them; the nodes are objects without a machine.
"""

from __future__ import annotations

import base64
import itertools
import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.arc import node_mark
from infra.arc.runner_pod import MARKS_NODE_AS
from paddock.fleet.arc import NODE_MARK
from paddock.fleet.model.shared_cluster import Arc
from paddock.gpu.job_hooks import node
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane.servers import Lab
from tests.support import fleets
from tests.support.kubernetes import as_account, objects, plain_pod
from tests.support.waiting import until

PRIVILEGED, SHARED = Arc().privileged, Arc().named(NODE_MARK)
pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("cluster")]

OURS, OTHERS, SYSTEM = "mark-ours", "mark-others", "mark-system"
ORDER = (
    "Namespace", "NetworkPolicy", "ServiceAccount", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
    "ClusterRole", "ClusterRoleBinding",
)  # fmt: skip
Nodes = Callable[[str], Object]
Start = Callable[..., "Job"]
REASON = "NVRM Xid 79: GPU · has fallen off the bus\n(GPU-1)"


@pytest.fixture(scope="module")
def admin(cluster: Lab) -> Iterator[Api]:
    """Yield a cluster with a fleet's objects for marks; its runners are privileged: there a token could do most."""
    with lab_api(cluster.kubeconfig) as api:
        declared = objects(fleets.graph("docker"))
        marks = [item for item in declared if item["metadata"]["name"] in (PRIVILEGED, MARKS_NODE_AS, SHARED)]
        for item in sorted(marks, key=lambda item: ORDER.index(item["kind"])):
            api.apply(item)
        yield api


@pytest.fixture
def nodes(admin: Api) -> Iterator[Nodes]:
    """Three nodes; how one is now."""
    gpu = {"nvidia.com/gpu.present": "true"}
    for name, labels in ((OURS, gpu), (OTHERS, gpu), (SYSTEM, {})):
        unrelated = {"example.com/kept": "yes"}
        admin.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": labels, "annotations": unrelated},
                "spec": {"taints": [{"key": "example.com/kept", "effect": "NoSchedule"}]},
            }
        )
    # What the control plane itself writes on a new node is there before anything is compared.
    ttl = "node.alpha.kubernetes.io/ttl"
    here = (OURS, OTHERS, SYSTEM)
    until(lambda: all(ttl in admin.get("v1", "Node", name)["metadata"].get("annotations", {}) for name in here))
    yield lambda name: admin.get("v1", "Node", name)
    for name in (OURS, OTHERS, SYSTEM):
        admin.delete({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


@pytest.fixture
def pod(admin: Api, cluster: Lab, tmp_path: Path, nodes: Nodes) -> Iterator[Start]:
    """Yield a runner's pod on a node."""
    jobs: list[Job] = []

    def start(on: str = OURS, account: str = MARKS_NODE_AS) -> Job:
        where = {"nodeName": on, "serviceAccountName": account}
        pod = admin.create(plain_pod(f"mark-{len(jobs)}", PRIVILEGED, **where))
        jobs.append(Job(admin, cluster, pod, tmp_path))
        return jobs[-1]

    until(lambda: admin.find("v1", "ServiceAccount", "default", PRIVILEGED))
    yield start
    for job in jobs:
        job.api.close()
        admin.delete(job.pod, gracePeriodSeconds="0")


class Job:
    """A job, with the token in its pod."""

    def __init__(self, admin: Api, cluster: Lab, pod: Object, folder: Path) -> None:
        self.pod, spec, meta = pod, pod["spec"], pod["metadata"]
        self.node, self.folder, self.server = spec["nodeName"], folder, admin.server
        bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
        token_request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound},
        }
        account = f"/api/v1/namespaces/{meta['namespace']}/serviceaccounts/{spec['serviceAccountName']}"
        token = admin.request("POST", f"{account}/token", token_request)["status"]["token"]
        config = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
        authority = base64.b64decode(config["certificate-authority-data"]).decode()
        self.api = Api(admin.server, token, ssl.create_default_context(cadata=authority))
        mounted = folder / "var/run/paddock/kubernetes"
        mounted.mkdir(parents=True, exist_ok=True)
        (mounted / "token").write_text(token)
        (mounted / "ca.crt").write_text(authority)

    def mark(self, name: str = "", reason: str = REASON) -> str:
        host, _, port = self.server.removeprefix("https://").partition(":")
        environ = {"NODE_NAME": name or self.node, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        return node.mark(reason, environ=environ, root=self.folder, timeout_s=10)

    def change(self, change: Mapping[str, Any], name: str = "") -> Object:
        return self.api.patch({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name or self.node}}, change)

    def ask(self, content: str, change: Any, name: str = "", *, dry_run: bool = False) -> Object:
        """Return a patch of another kind."""
        name = name or self.node
        if content.startswith("apply"):
            about = {**change.get("metadata", {}), "name": name}
            change = {**change, "apiVersion": "v1", "kind": "Node", "metadata": about}
        query = {"fieldManager": "job", "force": "true"} if content.startswith("apply") else {}
        query |= {"dryRun": "All"} if dry_run else {}
        return self.api.request("PATCH", f"/api/v1/nodes/{name}", change, query=query, content=f"application/{content}")


@pytest.fixture(autouse=True, scope="module")
def in_force(admin: Api) -> None:
    """Wait until the policy is in force: the API would let the token do more before."""
    probe = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mark-probe"}}
    admin.apply(probe)

    def refused() -> bool:
        with as_account(admin, MARKS_NODE_AS, PRIVILEGED) as account:
            try:
                account.patch(probe, {})
            except ApiError as error:
                return "node that it runs on" in str(error)
        return False

    until(refused)
    admin.delete(probe)


def test_a_mark_says_why_and_keeps_further_jobs_away(pod: Start, nodes: Nodes) -> None:
    before = nodes(OURS)
    assert pod().mark() == f"node {OURS} is marked for replacement, and takes no more jobs"
    after = nodes(OURS)
    assert after["spec"]["unschedulable"] is True
    annotations = after["metadata"]["annotations"]
    assert annotations[node_mark.ANNOTATIONS[0]] == "NVRM Xid 79: GPU   has fallen off the bus (GPU-1)"
    assert set(node_mark.ANNOTATIONS) == set(annotations) - set(before["metadata"]["annotations"])
    assert after["metadata"]["labels"] == before["metadata"]["labels"]


def test_a_second_job_that_finds_the_same_changes_nothing(pod: Start, nodes: Nodes) -> None:
    pod().mark()
    first = nodes(OURS)["metadata"]["annotations"]
    assert pod().mark(reason="another") == (
        f"node {OURS} was marked for replacement already (NVRM Xid 79: GPU   has fallen off the bus (GPU-1))"
    )
    assert nodes(OURS)["metadata"]["annotations"] == first


def test_another_node_is_neither_marked_nor_seen(pod: Start, nodes: Nodes) -> None:
    job = pod()
    refused = job.mark(OTHERS)
    assert refused.startswith("the node was not marked for replacement: the Kubernetes API refused")
    assert "the node that it runs on, and no other" in refused
    assert "unschedulable" not in nodes(OTHERS)["spec"]
    with pytest.raises(ApiError, match="the node that it runs on"):
        job.change({}, OTHERS)
    with pytest.raises(ApiError, match="Forbidden"):
        job.api.get("v1", "Node", OURS)


REPLACE, SINCE = node_mark.ANNOTATIONS
REFUSED: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "label": ({"metadata": {"labels": {"a": "b"}}}, "nothing else"),
    "label taken away": ({"metadata": {"labels": {"nvidia.com/gpu.present": None}}}, "nothing else"),
    "finalizer": ({"metadata": {"finalizers": ["example.com/stay"]}}, "nothing else"),
    "owner": (
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": OTHERS, "uid": "1"}]}},
        "nothing else",
    ),
    "taint": ({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, "nothing else"),
    "no taint": ({"spec": {"taints": None}}, "nothing else"),
    "provider": ({"spec": {"providerID": "aws:///us-west-2a/i-0"}}, "nothing else"),
    "annotation": ({"metadata": {"annotations": {"example.com/new": "x"}}}, "of the annotations"),
    "annotation changed": ({"metadata": {"annotations": {"example.com/kept": "no"}}}, "of the annotations"),
    "annotation taken away": ({"metadata": {"annotations": {"example.com/kept": None}}}, "of the annotations"),
    "autoscaler": (
        {"metadata": {"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}}},
        "of the annotations",
    ),
    "long": ({"metadata": {"annotations": {REPLACE: "x" * 257}}}, "256 printable"),
    "control characters": ({"metadata": {"annotations": {REPLACE: "\x1b[2J"}}}, "256 printable"),
    "two lines": ({"metadata": {"annotations": {REPLACE: "a\nb"}}}, "256 printable"),
    "taints with the cordon": ({"spec": {"unschedulable": True, "taints": []}}, "nothing else"),
    "annotation of a name like ours": ({"metadata": {"annotations": {f"{REPLACE}-x": "y"}}}, "of the annotations"),
    "uncordon": ({"spec": {"unschedulable": None}}, "taken back by people"),
    "mark taken away": ({"metadata": {"annotations": {REPLACE: None, SINCE: None}}}, "taken back by people"),
}


def refusal(ask: Callable[[], object]) -> tuple[int, str]:
    """Return status and message; nothing where the API does what it is asked for."""
    try:
        ask()
    except ApiError as error:
        return error.status, str(error)
    return 0, ""


def test_nothing_else_of_the_own_node_is_changed(pod: Start, nodes: Nodes) -> None:
    job = pod()
    job.mark()
    for attempt, (change, message) in REFUSED.items():
        status, said = refusal(partial(job.change, change))
        assert (status, message in said) == (403, True), (attempt, said)


LABEL = "/metadata/labels/nvidia.com~1gpu.present"
WAYS: Mapping[str, tuple[str, Any, str]] = {
    "JSON patch": ("json-patch+json", [{"op": "add", "path": "/metadata/labels/a", "value": "b"}], "nothing else"),
    "JSON patch that takes away": ("json-patch+json", [{"op": "remove", "path": LABEL}], "nothing else"),
    "JSON patch that moves": (
        "json-patch+json",
        [{"op": "move", "from": LABEL, "path": f"/metadata/annotations/{REPLACE.replace('/', '~1')}"}],
        "nothing else",
    ),
    "strategic merge": (
        "strategic-merge-patch+json",
        {"metadata": {"annotations": {"$patch": "replace", REPLACE: "x"}}},
        "of the annotations",
    ),
    "apply": ("apply-patch+yaml", {"metadata": {"labels": {"a": "b"}}}, "nothing else"),
}


def test_nor_by_another_way_of_asking(pod: Start, nodes: Nodes) -> None:
    job = pod()
    for (method, (content, change, message)), dry_run in itertools.product(WAYS.items(), (True, False)):
        status, said = refusal(partial(job.ask, content, change, dry_run=dry_run))
        assert (status, message in said) == (403, True), (method, dry_run, said)


@pytest.mark.parametrize("content", ["strategic-merge-patch+json", "apply-patch+yaml"])
def test_a_mark_by_another_way_is_a_mark(content: str, pod: Start, nodes: Nodes) -> None:
    change = {"metadata": {"annotations": {REPLACE: "x"}}, "spec": {"unschedulable": True}}
    pod().ask(content, change, dry_run=True)
    assert "unschedulable" not in nodes(OURS)["spec"]
    pod().ask(content, change)
    assert nodes(OURS)["spec"]["unschedulable"] is True
    assert {"example.com/kept": "yes", REPLACE: "x"}.items() <= nodes(OURS)["metadata"]["annotations"].items()


def test_a_node_without_annotations_is_marked(admin: Api, pod: Start, nodes: Nodes) -> None:
    admin.patch(nodes(OURS), {"metadata": {"annotations": None}})
    assert "is marked" in pod().mark()
    assert {REPLACE, SINCE} <= set(nodes(OURS)["metadata"]["annotations"])


def test_a_job_may_not_write_its_nodes_status(pod: Start, nodes: Nodes) -> None:
    job = pod()
    status = {"status": {"capacity": {"nvidia.com/gpu": "8"}}}
    assert "nvidia.com/gpu" not in job.change(status)["status"].get("capacity", {})
    with pytest.raises(ApiError, match="Forbidden"):
        job.api.patch(nodes(OURS), status, "status")


def test_a_node_without_gpus_is_not_marked(pod: Start, nodes: Nodes) -> None:
    assert "only nodes with GPUs" in pod(on=SYSTEM).mark()
    assert "unschedulable" not in nodes(SYSTEM)["spec"]


def test_the_token_of_another_account_marks_nothing(pod: Start, nodes: Nodes) -> None:
    refused = pod(account="default").mark()
    assert 'cannot patch resource "nodes"' in refused
    assert "unschedulable" not in nodes(OURS)["spec"]


def test_a_token_that_is_bound_to_no_pod_marks_nothing(admin: Api, nodes: Nodes) -> None:
    with (
        as_account(admin, MARKS_NODE_AS, PRIVILEGED) as account,
        pytest.raises(ApiError, match="the node that it runs on"),
    ):
        account.patch(nodes(OURS), {"spec": {"unschedulable": True}})


def test_the_token_does_nothing_but_mark(pod: Start, nodes: Nodes) -> None:
    job = pod()
    tried: tuple[Callable[[], object], ...] = (
        lambda: job.api.list("v1", "Node"),
        lambda: job.api.delete(nodes(OURS)),
        lambda: job.api.list("v1", "Secret", PRIVILEGED),
        lambda: job.api.list("v1", "Pod", PRIVILEGED),
        lambda: job.api.apply({**nodes(OURS), "metadata": {"name": "mark-new"}}),
        lambda: job.api.request("DELETE", "/api/v1/nodes"),
        lambda: job.api.request("GET", f"/api/v1/nodes/{OURS}/proxy/"),
        lambda: job.api.request("PATCH", f"/api/v1/nodes/{OURS}/scale", {}, content="application/merge-patch+json"),
    )
    for forbidden in tried:
        with pytest.raises(ApiError, match="Forbidden"):
            forbidden()


def test_the_policy_has_no_mistakes_of_type(admin: Api) -> None:
    """The API server checks expressions against the kinds they are for, and only notes what it finds."""
    name = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", SHARED)
    checked = until(lambda: (now := admin.get(*name).get("status", {})).get("observedGeneration") and now)
    assert checked["typeChecking"] == {}
