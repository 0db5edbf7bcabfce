"""The lab's own charts through the real Kubernetes provider: installed, changed and taken away, atomically."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.console.progress import Progress
from paddock.fleet import load, nodes
from paddock.fleet.model.mirror import chart_name
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane import servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.simulators import nodes as lab_nodes
from paddock.lab.stack import charts
from paddock.lab.stack.engine import ROOT, Engine, Programs
from paddock.plan.engine.program import plan_graph
from tests.support.engine import destroy
from tests.support.kubernetes import of_kind
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("lab-charts")]

ARC = "actions.github.com/v1alpha1"
SECONDS = 60
"""For one release. The slowest took 3 s on two cores."""
PROGRAM = f"""
import pulumi, pulumi_kubernetes as k8s

config = pulumi.Config()
provider, first = k8s.Provider("lab", kubeconfig=config.require("kubeconfig")), []
for each in config.require_object("releases"):
    is_set = "scaleSetLabels" in each["values"]
    made = k8s.helm.v3.Release(each["name"], name=each["name"], chart=each["chart"], version=each["version"],
        namespace=each["namespace"], create_namespace=True, values=each["values"], atomic=True, timeout={SECONDS},
        opts=pulumi.ResourceOptions(provider=provider, depends_on=first if is_set else []))
    if not is_set:
        first.append(made)
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, engine_programs: Programs) -> Iterator[Lab]:
    """Yield a control plane with prod's system nodes, which releases wait for, and a node of each of its pools."""
    folder, fleet = tmp_path_factory.mktemp("lab"), load(ROOT, "prod").fleet
    lab, _ = servers.up(folder, progress=Progress(quiet=True))
    try:
        with lab_api(lab.kubeconfig) as api:
            for node in lab_nodes.system_nodes(fleet):
                api.create(node)
            for name, pool in fleet.pools.items():
                node = lab_nodes.gpu_node(fleet, pool, "on-demand")
                api.create({**node, "metadata": {**node["metadata"], "name": name}})
        yield lab
    finally:
        servers.down(folder)


class Story:
    """A stack of nothing but prod's releases. Each step runs once, after the one before it."""

    def __init__(self, lab: Lab, result: Programs, folder: Path) -> None:
        self.api = lab_api(lab.kubeconfig)
        graph = plan_graph(load(ROOT, "prod"))
        accounts = [account["metadata"] for account in of_kind(graph, "ServiceAccount")]
        self.accounts = {(account["name"], account["namespace"]) for account in accounts}
        served = {chart.name: chart for chart in charts.serve(folder / "charts", charts.required_charts(graph), None)}
        releases = [
            {
                "name": release.inputs["name"],
                "chart": str(served[chart_name(release.inputs["chart"])].path),
                "version": release.inputs["version"],
                "namespace": release.inputs["namespace"],
                "values": json.loads(json.dumps(release.inputs["values"])),
            }
            for release in graph.of_type("kubernetes:helm.sh/v3:Release")
        ]
        # The controller brings what sets are made of.
        self.releases = sorted(releases, key=lambda release: "scaleSetLabels" in release["values"])
        root = folder / "root"
        (root / "program").mkdir(parents=True)
        (root / "program" / "__main__.py").write_text(PROGRAM)
        (root / "Pulumi.yaml").write_text("{name: releases, runtime: {name: python}, main: program}\n")
        self.config: dict[str, Any] = {"releases:kubeconfig": str(lab.kubeconfig)}
        self.engine = Engine(folder / "engine", result, stack="lab", root=root, kubeconfig=lab.kubeconfig)
        (root / "Pulumi.lab.yaml").write_text("config: {}\n")
        self.engine.prepare(self._config())

    def _config(self) -> dict[str, Any]:
        return {**self.config, "releases:releases": self.releases}

    def up(self) -> dict[str, str]:
        """Release -> what was done to it; only those that were not as they should be."""
        self.engine.configure(self._config())
        return {urn.rpartition("::")[2]: operations[-1] for urn, operations in self.engine.up().changes.items()}

    def values(self, release: str) -> Any:
        """Return the values that the chart has stored."""
        namespace = self.of(release)["namespace"]
        config_map = self.api.find("v1", "ConfigMap", f"{release}-values", namespace)
        return config_map and yaml.safe_load(config_map["data"]["values.yaml"])

    def of(self, release: str) -> dict[str, Any]:
        (release_,) = [candidate for candidate in self.releases if candidate["name"] == release]
        return release_


@pytest.fixture(scope="module")
def story(lab: Lab, engine_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    story = Story(lab, engine_programs, tmp_path_factory.mktemp("charts"))
    started = time.monotonic()
    story.up()
    assert time.monotonic() - started < 5 * SECONDS, "a release waited for what never comes"
    yield story
    story.api.close()


def test_values_arrive_as_the_program_gives_them(story: Story) -> None:
    for release in story.releases:
        assert story.values(release["name"]) == release["values"]


def test_a_scale_set_is_there_under_its_name_and_labels(story: Story) -> None:
    specs = {
        scale_set["metadata"]["name"]: scale_set["spec"] for scale_set in story.api.list(ARC, "AutoscalingRunnerSet")
    }

    sets = [release for release in story.releases if "scaleSetLabels" in release["values"]]
    assert set(specs) == {release["values"]["runnerScaleSetName"] for release in sets}
    for release in sets:
        spec = specs[release["values"]["runnerScaleSetName"]]
        assert spec["runnerScaleSetLabels"] == release["values"]["scaleSetLabels"]
        assert spec["maxRunners"] == release["values"]["maxRunners"]
        account = (spec["template"]["spec"]["serviceAccountName"], release["namespace"])
        # The program's own, or one that comes with the chart.
        assert account in story.accounts or story.api.find("v1", "ServiceAccount", *account), (
            "its pods would be refused"
        )


def test_a_gpu_daemonset_lands_on_each_gpu_node_and_no_other(story: Story) -> None:
    gpu_nodes = {
        node["metadata"]["name"] for node in story.api.list("v1", "Node", labelSelector=f"{nodes.GPU}.present")
    }

    def on(name: str) -> set[str]:
        pods = story.api.list("v1", "Pod", labelSelector=f"lab.paddock.dev/workload={name}")
        return {pod["spec"].get("nodeName", "") for pod in pods if pod["status"]["phase"] == "Running"}

    assert gpu_nodes
    for name in ("nvidia-device-plugin", "nvidia-device-plugin-gpu-feature-discovery", "dcgm-exporter"):
        until(lambda name=name: on(name) == gpu_nodes)  # type: ignore[misc]
    assert not on("cluster-autoscaler") & gpu_nodes
    assert not on("arc-gha-rs-controller") & gpu_nodes


def test_a_second_up_changes_nothing(story: Story) -> None:
    assert story.up() == {}


def test_a_change_upgrades_one_release_in_place(story: Story) -> None:
    uid = story.api.get(ARC, "AutoscalingRunnerSet", "gpu", "arc-runners")["metadata"]["uid"]
    story.of("gpu")["values"]["maxRunners"] += 1
    changed = story.up()

    assert changed == {"gpu": "update"}
    scale_set = story.api.get(ARC, "AutoscalingRunnerSet", "gpu", "arc-runners")
    assert (
        scale_set["spec"]["maxRunners"] == story.values("gpu")["maxRunners"] == story.of("gpu")["values"]["maxRunners"]
    )
    assert scale_set["metadata"]["uid"] == uid


def test_a_destroy_takes_all_away_but_the_definitions_that_helm_keeps(story: Story) -> None:
    destroy(story.engine)

    assert story.api.list(ARC, "AutoscalingRunnerSet") == []
    assert all(story.values(release["name"]) is None for release in story.releases)
    helms = {"labelSelector": "app.kubernetes.io/managed-by=Helm"}
    for version, kind in (
        ("apps/v1", "DaemonSet"),
        ("apps/v1", "Deployment"),
        ("v1", "ServiceAccount"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ):
        until(lambda version=version, kind=kind: story.api.list(version, kind, **helms) == [])  # type: ignore[misc]
