"""The whole fleet in the lab: `pulumi up` on the real engine, its Kubernetes side in a real API server.

One stack, dev, is made once and changed step by step; every test looks at one step. The cloud is a stand-in, and so are
the charts, which are installed, upgraded and removed by the real provider.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.console.progress import Progress
from paddock.fleet import load
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane import programs as lab_programs
from paddock.lab.control_plane.servers import Lab
from paddock.lab.simulators import nodes
from paddock.lab.stack import charts, stack
from paddock.lab.stack.engine import ROOT, YES, Engine, EngineError
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.resource_types import RELEASE
from tests.support.engine import (
    destroy,
    differences,
    export,
    is_default_provider,
    lab_in,
    releases,
    short,
    whole_destroy,
)
from tests.support.engine_state import State
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("applied")]

RUNNERS, SYSTEM = "arc-runners", "arc-systems"
SET = ("actions.github.com/v1alpha1", "AutoscalingRunnerSet")
REPLACED = {"create-replacement", "replace", "delete-replaced"}
KUBERNETES_OWN = {
    "extension-apiserver-authentication",
    "kube-apiserver-legacy-service-account-token-tracking",
    "kube-root-ca.crt",
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    yield from lab_in(tmp_path_factory.mktemp("lab"))


@pytest.fixture
def api(lab: Lab) -> Iterator[Api]:
    with lab_api(lab.kubeconfig) as api:
        yield api


def copy_of_the_project(folder: Path) -> Path:
    """Of the part that `pulumi up` reads."""
    for name in ("infra", "runners", "ami"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob("Pulumi*.yaml"):
        shutil.copy(path, folder)
    return folder


class Story:
    """Dev through its life. Each step runs once, after the one before it."""

    def __init__(self, lab: Lab, root: Path) -> None:
        self.lab, self.root = lab, root
        self.file = root / "Pulumi.dev.yaml"
        self.config: dict[str, Any] = yaml.safe_load(self.file.read_text())["config"]
        self.fleet = self.config["paddock:fleet"]
        self.told: list[str] = []
        self.engine: Engine = stack.lab_engine(lab, load(root, "dev"), root=root)
        nodes.start(lab, load(root, "dev"))

    @cached_property
    def first(self) -> stack.Outcome:
        return self._up()

    @cached_property
    def states(self) -> dict[str, State]:
        self._after(self.first)
        self.told.append(self.engine.exported())
        return export(self.engine)

    @cached_property
    def credential(self) -> str:
        """The App's key, which only the cluster tells in clear text."""
        self._after(self.states)
        with lab_api(self.lab.kubeconfig) as api:
            data = api.get("v1", "Secret", "github-credential", RUNNERS)["data"]
        return base64.b64decode(data["github_app_private_key"]).decode()

    @cached_property
    def applied_again(self) -> Mapping[str, tuple[str, ...]]:
        self._after(self.credential)
        return self._up().result.changes

    @cached_property
    def refreshed(self) -> Mapping[str, tuple[str, ...]]:
        self._after(self.applied_again)
        result = self.engine.run("refresh", *YES)
        self.told.append(result.log)
        return result.changes

    @cached_property
    def resized(self) -> Mapping[str, tuple[str, ...]]:
        """Another maximum, and monitoring."""
        self._after(self.refreshed)
        self.fleet["runners"]["gpu"]["max"] = 3
        self.fleet["monitoring"] = {"enabled": True}
        return self._change()

    @cached_property
    def pool_added(self) -> Mapping[str, tuple[str, ...]]:
        self._after(self.resized)
        self.fleet["pools"]["l4"] = {"instances": ["g6.xlarge"], "capacity": "on-demand", "nodes": {"max": 2}}
        self.fleet["runners"]["gpu-l4"] = {"pool": "l4", "max": 2}
        return self._change()

    @cached_property
    def relabelled(self) -> tuple[Mapping[str, tuple[str, ...]], Object, Object]:
        """Return the operations, and the scale set before and after."""
        self._after(self.pool_added)
        before = self._scale_set("gpu")
        self.fleet["runners"]["gpu"]["labels"].append("cuda-12")
        return self._change(), before, self._scale_set("gpu")

    @cached_property
    def upgraded(self) -> Mapping[str, tuple[str, ...]]:
        """A new version of every chart."""
        self._after(self.relabelled)
        there = charts.required_charts(plan_graph(load(self.root, "dev")))
        for version in {version for _, version in there}:
            self._edit("versions.py", f'"{version}"', f'"{newer(version)}"')
        releases_ = [(name, newer(version)) for name, version in there]
        charts.serve(self.lab.folder / stack.CHARTS, releases_, None)
        return self._change()

    @cached_property
    def pinned(self) -> Mapping[str, tuple[str, ...]]:
        """Another image, and a component of ours that has another name in a newer version of the program."""
        self._after(self.upgraded)
        self.fleet["pools"]["l4"]["ami"] = {"release": "1.36.2-20260101"}
        self._edit("arc/runners.py", "class RunnerScaleSet(Component):", "class ScaleSet(Component):")
        self._edit("arc/runners.py", '"""One scale set:', 'formerly = ("RunnerScaleSet",)\n    """One scale set:')
        self._edit("program.py", "RunnerScaleSet", "ScaleSet")
        return self._change()

    @cached_property
    def removed(self) -> Mapping[str, tuple[str, ...]]:
        self._after(self.pinned)
        del self.fleet["runners"]["gpu-l4"]
        return self._change()

    @cached_property
    def refused(self) -> str:
        """Return the engine's message about a destroy of protected resources."""
        self._after(self.removed)
        with pytest.raises(EngineError) as error:
            destroy(self.engine)
        return str(error.value)

    @cached_property
    def destroyed(self) -> Mapping[str, tuple[str, ...]]:
        self._after(self.refused)
        result = whole_destroy(self.engine)
        self.told.append(result.log)
        return result.changes

    def _after(self, step: object) -> None:
        """Names the step that has to be over; asking for it runs it."""

    def _edit(self, name: str, old: str, new: str) -> None:
        path = self.root / "infra" / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def _scale_set(self, name: str) -> Object:
        with lab_api(self.lab.kubeconfig) as api:
            return api.get(*SET, name, RUNNERS)

    def _change(self) -> Mapping[str, tuple[str, ...]]:
        self.file.write_text(yaml.safe_dump({"config": self.config}))
        return self._up().result.changes

    def _up(self) -> stack.Outcome:
        outcome = stack.apply(self.lab, load(self.root, "dev"), root=self.root, progress=Progress(quiet=True))
        self.told.append(outcome.result.log)
        return outcome


@pytest.fixture(scope="module")
def story(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(lab, copy_of_the_project(tmp_path_factory.mktemp("project")))


def newer(version: str) -> str:
    return re.sub(r"\d+$", lambda last: str(int(last[0]) + 1), version)


def names(changes: Mapping[str, tuple[str, ...]]) -> dict[str, set[str]]:
    return {short(urn): set(operations) for urn, operations in changes.items()}


# What `up` makes.


def test_up_makes_what_the_plan_shows(story: Story) -> None:
    created = {urn: state for urn, state in story.states.items() if not is_default_provider(state)}
    held = stack.overlay(load(ROOT, "dev"), kubeconfig=story.lab.kubeconfig, charts=story.lab.folder / stack.CHARTS)
    planned = plan_graph(held)

    assert set(created) == set(planned.resources)
    assert {step.operation for step in story.first.result.steps} == {"create"}
    assert list(differences(planned, created, preview=plan_graph(held, preview=True))) == []
    assert story.first.objects
    assert story.first.resources == len(story.states)
    assert not [diagnostic for diagnostic in story.first.result.diagnostics if diagnostic.severity == "error"]
    (root,) = [state for state in story.states.values() if state.type == "pulumi:pulumi:Stack"]
    assert "runners" in root.outputs


def test_the_stack_file_of_the_user_is_only_read(story: Story) -> None:
    assert story.states
    assert story.file.read_bytes() == (ROOT / "Pulumi.dev.yaml").read_bytes()


def test_every_object_is_in_the_api_server(story: Story, api: Api) -> None:
    objects = [s for s in story.states.values() if s.type.startswith("kubernetes:") and s.type != RELEASE]
    assert len(objects) > 8
    for state in objects:
        stored, meta = state.outputs, state.outputs["metadata"]
        live = api.get(stored["apiVersion"], stored["kind"], meta["name"], meta.get("namespace", ""))
        assert live["metadata"]["uid"] == meta["uid"]


def test_every_release_is_one_of_helm(story: Story, api: Api) -> None:
    declared = {s.inputs["name"]: s for s in story.states.values() if s.type == RELEASE}
    releases_ = releases(api)
    assert set(releases_) == set(declared)
    for name, release in releases_.items():
        assert release["version"] == 1
        assert release["namespace"] == declared[name].inputs["namespace"]
        assert release["chart"]["metadata"]["version"] == declared[name].inputs["version"]
        assert release["config"] == declared[name].inputs["values"]
        values = api.get("v1", "ConfigMap", f"{name}-values", release["namespace"])["data"]["values.yaml"]
        assert declared[name].inputs["values"].items() <= yaml.safe_load(values).items()


def test_helm_lists_them(story: Story, lab: Lab) -> None:
    helm = lab_programs.locate(["helm"]).get("helm")
    if helm is None:
        pytest.skip("helm is not here (on PATH, or in PADDOCK_LAB_BIN)")
    declared = {s.inputs["name"] for s in story.states.values() if s.type == RELEASE}
    listed = subprocess.check_output(
        [helm, "list", "--all-namespaces", "--output", "json", "--kubeconfig", lab.kubeconfig], text=True
    )
    assert {(release["name"], release["status"]) for release in json.loads(listed)} == {
        (name, "deployed") for name in declared
    }


def test_the_scale_set_has_our_labels(story: Story, api: Api) -> None:
    assert story.states
    scale_set = api.get(*SET, "gpu", RUNNERS)
    assert scale_set["spec"]["runnerScaleSetLabels"] == ["self-hosted", "linux", "x64", "gpu", "cuda"]
    assert (scale_set["spec"]["minRunners"], scale_set["spec"]["maxRunners"]) == (0, 5)
    assert scale_set["spec"]["githubConfigUrl"] == "https://github.com/acme"


def test_the_runners_namespace_refuses_what_it_should(story: Story, api: Api) -> None:
    assert story.states
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "guest", "namespace": RUNNERS},
        "spec": {"containers": [{"name": "x", "image": "any", "securityContext": {"privileged": True}}]},
    }
    with pytest.raises(ApiError, match="violates PodSecurity"):
        api.create(pod, dry_run=True)
    container = pod["spec"]["containers"][0] = {"name": "x", "image": "any"}
    assert api.create(pod, dry_run=True)["spec"]["containers"][0]["resources"]["limits"] == {"memory": "512Mi"}
    container["resources"] = {"limits": {"nvidia.com/gpu": "6"}}
    with pytest.raises(ApiError, match="exceeded quota: pools"):
        api.create(pod, dry_run=True)


# What changes do.


def test_a_second_up_changes_nothing(story: Story) -> None:
    assert story.applied_again == {}


def test_a_refresh_finds_nothing(story: Story) -> None:
    assert story.refreshed == {}


def test_another_maximum_and_monitoring_touch_nothing_else(story: Story, api: Api) -> None:
    changes = story.resized
    created = {urn for urn, operations in changes.items() if operations == ("create",)}

    assert any("Release::monitoring" in urn for urn in created)
    assert all("Monitoring" in urn or "monitoring" in urn or "metrics" in urn for urn in created)
    assert names({urn: operations for urn, operations in changes.items() if urn not in created}) == {
        "NetworkPolicy::addons-dcgm-server": {"update"},  # it lets the exporter in
        "Release::gpu": {"update"},
        "ResourceQuota::arc-arc-runners-quota": {"update"},
    }


def test_a_new_pool_touches_no_other(story: Story) -> None:
    touched = names(story.pool_added)
    created = {name for name, operations in touched.items() if operations == {"create"}}

    assert {"NodeGroup::l4-on-demand", "LaunchTemplate::l4", "Release::gpu-l4"} <= created
    assert all("l4" in name for name in created)
    # The namespace's quota is the sum of its pools, and each runner has an alert for its listener.
    assert {name: operations for name, operations in touched.items() if name not in created} == {
        "ConfigMap::monitoring-alerts": REPLACED,
        "ResourceQuota::arc-arc-runners-quota": {"update"},
    }


def test_a_change_of_labels_replaces_one_scale_set(story: Story) -> None:
    changes, before, after = story.relabelled

    assert set(names(changes)) == {"Release::gpu"}
    assert {"create-replacement", "delete-replaced"} <= names(changes)["Release::gpu"]
    assert before["spec"]["maxRunners"] == after["spec"]["maxRunners"] == 3
    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    assert after["spec"]["runnerScaleSetLabels"] == [*before["spec"]["runnerScaleSetLabels"], "cuda-12"]


def test_a_version_upgrades_the_controller_before_the_sets(story: Story, api: Api) -> None:
    changes, releases_ = story.upgraded, releases(api)

    assert names(changes) == {
        f"Release::{name}": {"update"} for name in ("arc", "autoscaler", "device-plugin", "gpu", "gpu-l4", "monitoring")
    }
    order = [short(urn) for urn in changes]
    assert min(order.index("Release::gpu"), order.index("Release::gpu-l4")) > order.index("Release::arc")
    assert {name: release["version"] for name, release in releases_.items()} == {
        "arc": 2, "cluster-autoscaler": 2, "nvidia-device-plugin": 2, "dcgm-exporter": 2, "gpu": 2, "gpu-l4": 2,
    }  # fmt: skip
    before = {state.inputs["name"]: state.inputs["version"] for state in story.states.values() if state.type == RELEASE}
    assert all(releases_[name]["chart"]["metadata"]["version"] == newer(version) for name, version in before.items())


def test_another_image_rolls_one_pool_and_a_renamed_component_nothing(story: Story) -> None:
    assert names(story.pinned) == {"NodeGroup::l4-on-demand": {"update"}}
    urns = export(story.engine)
    assert any("paddock:infra:ScaleSet$" in urn for urn in urns)
    assert not any("RunnerScaleSet" in urn for urn in urns)


def test_a_runner_that_is_gone_goes_alone(story: Story, api: Api) -> None:
    touched = names(story.removed)

    assert touched == {
        "ConfigMap::monitoring-alerts": REPLACED,
        "ScaleSet::gpu-l4": {"delete"},
        "Release::gpu-l4": {"delete"},
        "ResourceQuota::arc-arc-runners-quota": {"update"},
    }
    assert [scale_set["metadata"]["name"] for scale_set in api.list(*SET)] == ["gpu"]
    assert "gpu-l4" not in releases(api)


def test_what_is_protected_stays(story: Story) -> None:
    assert "protect" in story.refused


def test_destroy_leaves_nothing(story: Story, api: Api) -> None:
    assert story.destroyed
    assert export(story.engine) == {}
    assert json.loads(story.engine.store.read_text())["resources"] == {}
    assert not {RUNNERS, SYSTEM} & {namespace["metadata"]["name"] for namespace in api.list("v1", "Namespace")}
    assert not api.list("v1", "Secret", labelSelector="owner=helm")
    kinds = (("v1", "ConfigMap"), ("v1", "Pod"), ("apps/v1", "DaemonSet"), ("apps/v1", "Deployment"))
    # Kubernetes takes the pods away a moment after their owners.
    until(lambda: {object_["metadata"]["name"] for kind in kinds for object_ in api.list(*kind)} <= KUBERNETES_OWN)
    managed = "app.kubernetes.io/managed-by=Helm"
    for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"):
        assert not api.list("rbac.authorization.k8s.io/v1", kind, labelSelector=managed)


def test_the_credential_is_never_shown(story: Story) -> None:
    key, destroyed = story.credential, story.destroyed
    assert destroyed
    assert key.startswith("-----BEGIN RSA PRIVATE KEY-----")
    lines = [line for line in key.splitlines() if len(line) > 40 and "-" not in line]
    hidden = [*lines[2:], base64.b64encode(key.encode()).decode()[200:300]]

    assert not [text[:80] for text in story.told for word in hidden if word in text]
    assert len(story.told) == 11
    # State, history, backups, the stack file, what the stand-ins made; what the control plane wrote down; the charts.
    folders = [story.lab.folder / name for name in (stack.ENGINE, stack.CHARTS, "logs")]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {".bak", ".log", ".tgz"} <= {path.suffix for path in files}
    assert not [path for path in files for word in hidden if word.encode() in path.read_bytes()]
