"""What others have in a cluster: each thing that `up` would touch is named before it, with the key that mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from infra import versions
from paddock import clock
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.examination import _results, checks
from paddock.operate.doctor.report import Result
from paddock.operate.sources.aws import AwsReader
from paddock.plan.engine.resource_types import RELEASE
from paddock.pulumi_cli.stack import Resource as Held
from tests.operate.conftest import AT, planned_once
from tests.support import fleets, kubernetes_api
from tests.support.aws_account import REGION, Account, Refusal, healthy
from tests.support.chain_world import World
from tests.support.kubernetes_api import KubernetesApi

Object = dict[str, Any]
Asked = Callable[..., dict[str, Result]]
CRDS = tuple(
    f"{kind}.actions.github.com"
    for kind in ("autoscalinglisteners", "autoscalingrunnersets", "ephemeralrunners", "ephemeralrunnersets")
)
OLDER, NEXT = "0.13.1", "0.14.1"
ACCOUNT = "arc-gha-rs-controller"


def thing(kind: str, name: str, *managers: str, **more: Any) -> Object:
    """Return an object without a namespace, with who set its fields."""
    fields = [{"manager": manager, "operation": "Apply"} for manager in managers]
    version = "v1" if kind == "Namespace" else "apiextensions.k8s.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "managedFields": fields}, **more}


def crd(name: str, *managers: str, labels: bool = True) -> Object:
    fields: Object = {"maxRunners": {}, **({"runnerScaleSetLabels": {}} if labels else {})}
    schema = {"properties": {"spec": {"properties": fields}}}
    return thing(
        "CustomResourceDefinition", name, *managers, spec={"versions": [{"schema": {"openAPIV3Schema": schema}}]}
    )


def workload(
    place: str,
    container: str,
    image: str,
    *arguments: str,
    kind: str = "Deployment",
    labels: Mapping[str, str],
    **pod: Any,
) -> Object:
    namespace, name = place.split("/")
    containers = [{"name": container, "image": image, "args": list(arguments)}]
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"namespace": namespace, "name": name, "labels": dict(labels)},
        "spec": {"template": {"spec": {"containers": containers, **pod}}},
    }


def arc(version: str, watches: str = "", namespace: str = "team-ci") -> Object:
    """Return another team's controller of ARC."""
    labels = {"app.kubernetes.io/part-of": "gha-rs-controller", "app.kubernetes.io/version": version}
    flags = [f"--watch-single-namespace={watches}"] if watches else []
    image = f"ghcr.io/actions/gha-runner-scale-set-controller:{version}"
    return workload(f"{namespace}/arc", "manager", image, *flags, labels=labels, serviceAccountName=ACCOUNT)


def scale_set(version: str, namespace: str = "team-runners") -> Object:
    labels = {"app.kubernetes.io/version": version}
    meta = {"namespace": namespace, "name": "linux", "labels": labels}
    return {"apiVersion": "actions.github.com/v1alpha1", "kind": "AutoscalingRunnerSet", "metadata": meta, "spec": {}}


def plugin(**pod: Any) -> Object:
    image = "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"
    labels = {"app.kubernetes.io/name": "nvidia-device-plugin"}
    return workload("gpu/nvdp", "nvidia-device-plugin-ctr", image, kind="DaemonSet", labels=labels, **pod)


THEIR_ARC = [*(crd(name, "helm") for name in CRDS), scale_set(OLDER)]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    """Ask a cluster with these objects; return the lines of what is in it by subject."""
    monkeypatch.setattr("paddock.operate.doctor.context.plan_graph", planned_once)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    with ExitStack() as served:

        def ask(
            objects: Sequence[Object],
            cluster: Mapping[str, Any] | None = None,
            *,
            made: str = "kubeconfig",
            **parts: Any,
        ) -> dict[str, Result]:
            file = tmp_path / "kubeconfig"
            forms: dict[str, dict[str, Any]] = {"kubeconfig": {"kubeconfig": str(file)}, "here": {"version": "1.35"}}
            stack = fleets.stack(fleets.fleet_data(cluster={**forms[made], **(cluster or {})}, **parts))
            world = World(stack, AT)
            world.objects[:] = objects
            api = served.enter_context(kubernetes_api.serve(KubernetesApi(world)))
            api.kubeconfig(file)
            if made == "here":
                monkeypatch.setenv("KUBECONFIG", str(file))
            return lines(Context(tmp_path, stack, clock.today(), AwsReader(REGION, Account(healthy()).clients)))

        yield ask


def lines(context: Context) -> dict[str, Result]:
    found = [line for check in checks(context) if check.area == "cluster" for line in _results(check, context)]
    assert len({line.subject for line in found}) == len(found)
    return {line.subject: line for line in found}


def test_an_empty_cluster_has_nothing_in_the_way(asked: Asked) -> None:
    assert {line.status for line in asked([]).values()} == {"pass"}


def test_older_scale_sets_that_our_controller_would_delete_are_named(asked: Asked) -> None:
    found = asked(THEIR_ARC, {"arc": {"controller": "everywhere"}})
    line = found["scale sets of others"]
    assert (line.status, line.fix) == ("fail", "cluster.arc: {controller: own}")
    assert f"would delete team-runners/linux {OLDER}" in line.message


def test_a_cluster_of_our_own_is_asked_when_it_is_there(asked: Asked) -> None:
    found = asked(THEIR_ARC, made="here")
    assert found["scale sets of others"].status == "fail"
    assert "would replace them" in found["CRDs of actions.github.com"].message


def test_a_restricted_controller_leaves_them_alone(asked: Asked) -> None:
    found = asked([*THEIR_ARC, arc(OLDER, "team-runners")])
    assert "scale sets of others" not in found
    assert found["Actions Runner Controller"].status == "pass"


def test_a_controller_that_sees_our_namespaces_is_named(asked: Asked) -> None:
    line = asked([arc(OLDER)])["Actions Runner Controller"]
    assert line.status == "fail"
    assert f"team-ci/arc {OLDER} sees every namespace" in line.message
    assert f"it deletes those of {versions.ARC}" in line.message
    assert f"cluster.arc.controller: team-ci/{ACCOUNT}" in line.fix


@pytest.mark.parametrize(
    ("objects", "cluster", "status", "fix"),
    [
        ([], {}, "pass", ""),
        ([*THEIR_ARC], {}, "fail", "keep"),
        ([*THEIR_ARC, arc(versions.ARC, "team-runners")], {}, "pass", ""),
        ([*THEIR_ARC, arc(NEXT, "team-runners")], {}, "fail", "replace"),
        ([*THEIR_ARC], {"crds": {"arc": "replace"}}, "warn", ""),
        ([*THEIR_ARC], {"crds": {"arc": "keep"}}, "pass", ""),
        ([], {"crds": {"arc": "keep"}}, "fail", "share"),
        ([crd(CRDS[1], "helm", labels=False)], {"crds": {"arc": "keep"}}, "fail", "replace"),
        ([crd(name, "helm", "pulumi-kubernetes-1a2b") for name in CRDS], {}, "pass", ""),
    ],
)
def test_crds_of_others_need_a_key(
    asked: Asked, objects: list[Object], cluster: Mapping[str, Any], status: str, fix: str
) -> None:
    line = asked(objects, cluster)["CRDs of actions.github.com"]
    assert line.status == status
    assert fix in line.fix


@pytest.mark.parametrize(
    ("objects", "status", "message"),
    [
        ([arc(versions.ARC)], "pass", "serves this stack's scale sets"),
        ([arc(NEXT)], "pass", "serves this stack's scale sets"),
        ([arc(OLDER)], "fail", "deletes scale sets of"),
        ([arc(versions.ARC, "team-runners")], "fail", "sees team-runners alone"),
        ([arc(versions.ARC, namespace="elsewhere")], "fail", "no controller has the service account"),
    ],
)
def test_a_shared_controller_must_be_of_our_minor(
    asked: Asked, objects: list[Object], status: str, message: str
) -> None:
    crds = [crd(name, "helm") for name in CRDS]
    line = asked([*crds, *objects], {"arc": {"controller": f"team-ci/{ACCOUNT}"}})["Actions Runner Controller"]
    assert line.status == status
    assert message in line.message


def test_a_namespace_of_others_is_not_taken(asked: Asked) -> None:
    objects = [thing("Namespace", "arc-systems", "helm"), thing("Namespace", "arc-runners", "pulumi-kubernetes-12ab")]
    found = asked(objects)
    assert "namespace arc-runners" not in found
    line = found["namespace arc-systems"]
    assert (line.status, line.fix) == ("fail", "cluster.arc.suffix: paddock")
    assert asked(objects, {"arc": {"suffix": "paddock"}})["namespaces"].status == "pass"


def test_scale_sets_of_others_in_a_namespace_of_our_name_are_named(asked: Asked) -> None:
    objects = [thing("Namespace", "arc-runners", "helm"), *THEIR_ARC[:4], scale_set(OLDER, "arc-runners")]
    line = asked(objects)["scale sets of others"]
    assert (line.status, line.fix) == ("fail", "cluster.arc: {suffix: paddock}")
    assert "scale sets of others" not in asked(objects, {"arc": {"suffix": "paddock"}})


def test_a_second_device_plugin_is_named_with_its_key(asked: Asked) -> None:
    objects = [
        plugin(),
        workload("gpu/operator", "op", "nvcr.io/nvidia/gpu-operator:v25.3.0", labels={"app": "gpu-operator"}),
    ]
    found = asked(objects)
    assert found["NVIDIA device plugin"].status == "fail"
    assert "cluster.devicePlugin: theirs" in found["NVIDIA device plugin"].fix
    assert "GPU Operator" not in found
    assert asked(objects, {"devicePlugin": "theirs"})["GPU software"].status == "pass"
    assert asked([], {"devicePlugin": "theirs"})["NVIDIA device plugin"].status == "fail"


@pytest.mark.parametrize(
    ("pod", "status"),
    [
        ({}, "pass"),
        ({"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]}, "fail"),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"team": "ml"}}, "pass"),
        ({"tolerations": [{"operator": "Exists"}], "nodeSelector": {"nvidia.com/gpu.present": "true"}}, "fail"),
    ],
)
def test_a_plugin_that_keeps_off_our_nodes_is_no_second_one(asked: Asked, pod: Mapping[str, Any], status: str) -> None:
    found = asked([plugin(**pod)], made="here")
    assert found.get("NVIDIA device plugin", found.get("GPU software")).status == status  # type: ignore[union-attr]


def test_helm_release_of_others_under_our_name_is_named(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = plugin()
    theirs["metadata"]["annotations"] = {
        "meta.helm.sh/release-namespace": "kube-system",
        "meta.helm.sh/release-name": "nvidia-device-plugin",
    }
    subject = "Helm release kube-system/nvidia-device-plugin"
    assert subject not in asked([theirs]), "without the state nobody can tell"
    monkeypatch.setattr("paddock.operate.doctor.context.pulumi_state", lambda root, stack: ())
    line = asked([theirs])[subject]
    assert line.status == "fail"
    assert line.fix.startswith("helm uninstall nvidia-device-plugin --namespace kube-system")
    own = Held(urn="urn:x", type=RELEASE, id="kube-system/nvidia-device-plugin")
    monkeypatch.setattr("paddock.operate.doctor.context.pulumi_state", lambda root, stack: (own,))
    assert subject not in asked([theirs])


@pytest.mark.parametrize(("manager", "status"), [("kubectl-create", "fail"), ("pulumi-kubernetes-1a2b", "warn")])
def test_object_of_others_that_has_one_place_is_named(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, manager: str, status: str
) -> None:
    monkeypatch.setattr("paddock.operate.doctor.context.pulumi_state", lambda root, stack: ())
    meta = {"name": "paddock-node-mark", "managedFields": [{"manager": manager}]}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta}
    line = asked([role])["ClusterRole paddock-node-mark"]
    assert (line.status, "not in this stack's state" in line.message) == (status, True)
    assert line.fix == "cluster.arc.suffix: paddock"


def test_rules_for_an_operator_that_is_absent_are_named(asked: Asked) -> None:
    monitoring = {"enabled": True, "rules": "prometheus-rule", "serviceMonitor": True}
    line = asked([], monitoring=monitoring)["CRDs of monitoring.coreos.com"]
    assert line.status == "fail"
    assert "PrometheusRule and no PodMonitor" in line.message


def test_a_cluster_that_is_not_reached_is_unknown_with_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.operate.doctor.context.plan_graph", planned_once)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    account = Account(healthy())

    def of(name: str) -> dict[str, Result]:
        return lines(Context(tmp_path, fleets.named(name), clock.today(), AwsReader(REGION, account.clients)))

    found = of("existing-cluster")
    assert {line.status for line in found.values()} == {"unknown"}
    assert {line.fix for line in found.values()} == {"aws eks update-kubeconfig --name shared --region us-west-2"}
    account.answers["eks.DescribeCluster"] = Refusal("ResourceNotFoundException")
    assert of("smallest") == {}
