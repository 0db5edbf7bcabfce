"""Answers of a real API server to the fleet's own objects: all are accepted, and each permits what it should.

ARC's CRDs are the real ones; its controller and its chart are not here.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.fleet.model.shared_cluster import Arc
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane.servers import Lab
from tests.support import fleets
from tests.support.kubernetes import as_account, lost, objects, of_kind, plain_pod, reread, runner, runner_set, runners
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("cluster")]

RUNNERS, PRIVILEGED, CONTROLLER_NAMESPACE = NAMESPACES = Arc().runners, Arc().privileged, Arc().systems
FLEETS = (
    *fleets.EXAMPLES,
    *("docker", "job-pods", "every-volume", "warm", "foreign-secret", "private", "existing-network", "any-cluster"),
    *("monitoring", "prometheus", "cloudwatch"),
    "job-logs",
)
"""Every form that the cluster's part of a fleet can take."""
FOREIGN = {"PrometheusRule", "PodMonitor"}
"""Kinds whose CRDs come with another project."""


@pytest.fixture(scope="module")
def settled(cluster: Lab) -> Iterator[Api]:
    """Yield a cluster with everything that prod's program puts there, and the namespaces of the other fleets."""
    with lab_api(cluster.kubeconfig) as api:
        prepared = [namespace for name in FLEETS for namespace in of_kind(fleets.graph(name), "Namespace")]
        prepared += [object_ for object_ in objects(fleets.graph("prod")) if object_["kind"] != "Namespace"]
        kinds = ("PriorityClass", "ServiceAccount")
        prepared += [object_ for name in FLEETS for kind in kinds for object_ in of_kind(fleets.graph(name), kind)]
        for object_ in prepared:
            api.apply(object_)
        until(lambda: all(api.find("v1", "ServiceAccount", "default", name) for name in NAMESPACES))
        yield api


@pytest.fixture(scope="module")
def with_arc(settled: Api, reference_data: Path) -> Iterator[Api]:
    """Yield the cluster with ARC's own CRDs, and delete runner sets afterwards, which other tests would find."""
    definitions = sorted((reference_data / "crds").glob("actions.github.com_*.yaml"))
    if not definitions:
        pytest.skip(f"no CRDs of ARC in {reference_data / 'crds'}")
    for path in definitions:
        settled.apply(yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    probe = runner_set(fleets.example("dev").fleet, "gpu")

    def served() -> bool:
        try:
            return bool(settled.create({**probe, "metadata": {"name": "p", "namespace": RUNNERS}}, dry_run=True))
        except ApiError as error:
            if error.status == 404:  # established, but not yet served
                return False
            raise

    until(served)
    yield settled
    for runner_set_ in settled.list(_SET[0], _SET[1]):
        settled.delete(runner_set_)


# Everything is accepted.


def test_every_object_of_a_fleet_is_accepted_to_the_last_field(settled: Api) -> None:
    foreign = set()
    for name in FLEETS:
        for object_ in objects(fleets.graph(name)):
            if object_["kind"] in FOREIGN:
                foreign.add(object_["kind"])
                continue
            created = settled.apply(object_, dry_run=True)
            assert not [*lost(object_, created)], f"{name}: {object_['kind']} {object_['metadata']['name']}"
    assert foreign == FOREIGN


def test_every_pod_of_a_fleet_is_admitted(settled: Api) -> None:
    # The quotas of prod, as each fleet has its own; other tests' namespaces may still be ending.
    own = {namespace["metadata"]["name"] for name in FLEETS for namespace in of_kind(fleets.graph(name), "Namespace")}
    for quota in settled.list("v1", "ResourceQuota"):
        if (namespace := quota["metadata"]["namespace"]) in own:
            settled.delete(quota)
            until(lambda namespace=namespace: _unbounded(settled, namespace))
    for name in FLEETS:
        fleet = fleets.named(name).fleet
        for pod in runners(fleet):
            created = settled.create(pod, dry_run=True)
            assert not [*lost(pod, created)], f"{name}: {pod['metadata']['name']}"


@pytest.mark.parametrize(
    ("name", "kind", "workload"),
    [
        ("prometheus", "StatefulSet", "prometheus"),
        ("prometheus", "Deployment", "kube-state-metrics"),
        ("cloudwatch", "Deployment", "cloudwatch-collector"),
    ],
)
def test_a_reader_of_metrics_needs_no_privilege(settled: Api, name: str, kind: str, workload: str) -> None:
    (reader,) = (it for it in of_kind(fleets.graph(name), kind) if it["metadata"]["name"] == workload)
    spec = reader["spec"]["template"]["spec"]
    metadata = {"name": "reader", "namespace": reader["metadata"]["namespace"]}
    claims = reader["spec"].get("volumeClaimTemplates", [])
    volumes = [{"name": it["metadata"]["name"], "persistentVolumeClaim": {"claimName": "data"}} for it in claims]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "volumes": spec.get("volumes", []) + volumes},
    }
    assert not [*lost(pod, settled.create(pod, dry_run=True))]


def test_the_pod_of_job_logs_is_admitted_in_its_own_namespace_alone(settled: Api) -> None:
    (daemon,) = of_kind(fleets.graph("job-logs"), "DaemonSet")
    spec = daemon["spec"]["template"]["spec"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "logs", "namespace": "job-logs"}, "spec": spec}

    assert not [*lost(pod, settled.create(pod, dry_run=True))]
    elsewhere = {**pod["metadata"], "namespace": RUNNERS}
    ordinary = {key: value for key, value in spec.items() if key not in ("serviceAccountName", "priorityClassName")}
    with pytest.raises(ApiError, match="hostPath volumes"):
        settled.create({**pod, "metadata": elsewhere, "spec": ordinary}, dry_run=True)


def test_every_scale_set_of_a_fleet_is_one(with_arc: Api) -> None:
    for name in FLEETS:
        fleet = fleets.named(name).fleet
        for runner_ in fleet.runners:
            runner_set_ = runner_set(fleet, runner_)
            created = with_arc.create(runner_set_, dry_run=True)
            assert not [*lost(runner_set_, created)], f"{name}: {runner_}"


def test_a_scale_set_of_another_form_is_none(with_arc: Api) -> None:
    runner_set_ = runner_set(fleets.example("dev").fleet, "gpu")
    for change, message in (({"maxRunners": "five"}, r"spec\.maxRunners"), ({"maxRunner": 5}, r'"spec\.maxRunner"')):
        with pytest.raises(ApiError, match=message):
            with_arc.create({**runner_set_, "spec": {**runner_set_["spec"], **change}}, dry_run=True)


# What is refused, and what is given.


@pytest.mark.parametrize(
    "change",
    [
        {"securityContext": {"privileged": True}},
        {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}},
        {"ports": [{"containerPort": 80, "hostPort": 80}]},
    ],
    ids=["privileged", "SYS_ADMIN", "host port"],
)
def test_a_privileged_job_is_refused_among_the_runners(settled: Api, change: dict[str, Any]) -> None:
    pod = runner(fleets.example("dev").fleet, "gpu")
    pod["spec"]["containers"][0].update(change)
    with pytest.raises(ApiError, match="violates PodSecurity") as refused:
        settled.create(pod, dry_run=True)
    assert refused.value.status == 403
    pod["metadata"]["namespace"] = PRIVILEGED
    settled.create(pod, dry_run=True)


@pytest.mark.parametrize("namespace", [RUNNERS, CONTROLLER_NAMESPACE])
def test_a_docker_daemon_runs_in_its_own_namespace_alone(settled: Api, namespace: str) -> None:
    pod = runner(fleets.named("docker").fleet, "gpu")
    assert pod["metadata"]["namespace"] == PRIVILEGED
    settled.create(pod, dry_run=True)
    pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"] = namespace, "default"
    with pytest.raises(ApiError, match="violates PodSecurity"):
        settled.create(pod, dry_run=True)


@pytest.mark.parametrize("volume", [{"hostPath": {"path": "/"}}], ids=["the node's disk"])
def test_a_job_does_not_mount(settled: Api, volume: dict[str, Any]) -> None:
    pod = plain_pod("x", RUNNERS, volumes=[{"name": "v", **volume}])
    with pytest.raises(ApiError, match="hostPath volumes"):
        settled.create(pod, dry_run=True)


def test_a_container_that_asks_for_nothing_gets_a_little(settled: Api) -> None:
    def resources(namespace: str) -> dict[str, Any]:
        created = settled.create(plain_pod("x", namespace), dry_run=True)
        return dict(created["spec"]["containers"][0]["resources"])

    settled.apply(
        next(
            limit_range for limit_range in of_kind(fleets.graph("docker"), "LimitRange") if _in(limit_range, PRIVILEGED)
        )
    )
    for namespace in (RUNNERS, PRIVILEGED):
        until(lambda namespace=namespace: resources(namespace))  # what admits hears of it a moment later
    expected = {"cpu": "100m", "memory": "128Mi"}
    assert resources(RUNNERS) == {"limits": {"memory": "512Mi"}, "requests": expected}
    assert resources(PRIVILEGED) == {"requests": expected}, (
        "a limit on the Docker daemon is one on every container in it"
    )


def test_a_priority_orders_waiting_jobs_and_stops_none(settled: Api) -> None:
    created = settled.create(runner(fleets.example("prod").fleet, "gpu-a100"), dry_run=True)
    assert (created["spec"]["priority"], created["spec"]["preemptionPolicy"]) == (-10, "Never")


# Who may do what.


def test_a_job_may_ask_the_api_for_nothing(settled: Api) -> None:
    """With the account that a pod of the namespace is given when it names none."""
    allowed = _allowed(settled, "default", RUNNERS)
    assert not [rule for rule in allowed if set(rule["apiGroups"]) - {"authorization.k8s.io", "authentication.k8s.io"}]
    with as_account(settled, "default", RUNNERS) as job:
        for kind in ("Secret", "Pod", "ConfigMap"):
            with pytest.raises(ApiError, match="Forbidden"):
                job.list("v1", kind, RUNNERS)


def test_warm_capacity_may_change_its_sets_and_nothing_else(with_arc: Api) -> None:
    fleet = fleets.example("prod").fleet
    warm = {spec.scale_set for spec in fleet.runners.values() if spec.warm}
    cold = sorted({spec.scale_set for spec in fleet.runners.values()} - warm)
    rules = [rule for rule in _allowed(with_arc, "warm-capacity", CONTROLLER_NAMESPACE, RUNNERS) if _about_arc(rule)]
    assert [(set(rule["verbs"]), set(rule["resources"]), set(rule["resourceNames"])) for rule in rules] == [
        ({"get", "patch"}, {"autoscalingrunnersets"}, warm)
    ]
    for name in (*warm, cold[0]):
        with_arc.apply(runner_set(fleet, next(spec.name for spec in fleet.runners.values() if spec.scale_set == name)))
    change = {"spec": {"minRunners": 2}}
    with as_account(with_arc, "warm-capacity", CONTROLLER_NAMESPACE) as account:
        for name in warm:
            assert account.patch(_set(name), change)["spec"]["minRunners"] == 2
        for forbidden in (
            lambda: account.patch(_set(cold[0]), change),
            lambda: account.delete(_set(next(iter(warm)))),
            lambda: account.list("actions.github.com/v1alpha1", "AutoscalingRunnerSet", RUNNERS),
            lambda: account.get("v1", "Secret", "github-credential", RUNNERS),
        ):
            with pytest.raises(ApiError, match="Forbidden"):
                forbidden()


def test_warm_capacity_jobs_run_on_system_nodes(settled: Api) -> None:
    (first, *_) = of_kind(fleets.graph("prod"), "CronJob")
    meta = {"generateName": "warm-", "namespace": first["metadata"]["namespace"]}
    created = settled.create(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": first["spec"]["jobTemplate"]["spec"]}
    )
    completed = until(lambda: (now := reread(settled, created)).get("status", {}).get("succeeded") and now)
    (pod,) = settled.list("v1", "Pod", meta["namespace"], labelSelector=f"job-name={completed['metadata']['name']}")
    assert pod["spec"]["nodeName"].startswith("system-")
    assert pod["spec"]["serviceAccountName"] == "warm-capacity"
    settled.delete(completed)


def test_the_command_of_warm_capacity_changes_its_set(with_arc: Api, cluster: Lab) -> None:
    """The arguments of each CronJob, by the kubectl of this machine, with the rights of its service account."""
    kubectl = shutil.which("kubectl")
    if not kubectl:
        pytest.skip("kubectl is not on PATH")
    fleet = fleets.example("prod").fleet
    account = f"system:serviceaccount:{CONTROLLER_NAMESPACE}:warm-capacity"
    with_arc.apply(runner_set(fleet, "gpu"))
    for warm, job in zip(fleet.runners["gpu"].warm, of_kind(fleets.graph("prod"), "CronJob"), strict=True):
        (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
        command = [kubectl, f"--kubeconfig={cluster.kubeconfig}", f"--as={account}", *container["args"]]
        environment = {"HOME": str(cluster.folder / "run")}
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert ran.returncode == 0, ran.stderr
        assert with_arc.get(*_SET, fleet.runners["gpu"].scale_set, RUNNERS)["spec"]["minRunners"] == warm.min


_SET = ("actions.github.com/v1alpha1", "AutoscalingRunnerSet")


def _set(name: str) -> Object:
    return {"apiVersion": _SET[0], "kind": _SET[1], "metadata": {"name": name, "namespace": RUNNERS}}


def _unbounded(api: Api, namespace: str) -> bool:
    """Return whether a pod may request more GPUs than any quota has; admission learns of its end a moment later."""
    limits = {"nvidia.com/gpu": "1000000"}
    pod = plain_pod("x", namespace)
    pod["spec"]["containers"][0]["resources"] = {"requests": limits, "limits": limits}
    try:
        return bool(api.create(pod, dry_run=True))
    except ApiError as error:
        if "exceeded quota" in str(error):
            return False
        raise


def _in(object_: Object, namespace: str) -> bool:
    return bool(object_["metadata"].get("namespace") == namespace)


def _allowed(api: Api, account: str, namespace: str, where: str = "") -> list[dict[str, Any]]:
    """Return the permissions of a service account in a namespace."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "metadata": {},
        "spec": {"namespace": where or namespace},
    }
    with as_account(api, account, namespace) as account_api:
        return list(account_api.create(review)["status"]["resourceRules"])


def _about_arc(rule: dict[str, Any]) -> bool:
    return "actions.github.com" in rule["apiGroups"] or "*" in rule["apiGroups"]
