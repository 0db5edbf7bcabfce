"""Our values against the charts' own, and what a scale set becomes against its controller's resource definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.plan.engine.graph import Resource
from paddock.plan.engine.program import plan_graph
from tests.support.crds import mistakes, read, validator
from tests.support.fleets import ALL, fleet_data, graph, named, stack

RELEASE = "kubernetes:helm.sh/v3:Release"
FREE = {
    "affinity", "config.map", "containerSecurityContext", "extraArgs", "extraEnv", "listenerTemplate", "nodeSelector",
    "podAnnotations", "podSecurityContext", "resources", "securityContext", "template", "tolerations",
}  # fmt: skip
"""Maps and lists whose contents a chart passes on as they are."""
OTHER_FORMS = {"expanderPriorities": str, "githubConfigSecret": str}
"""Keys that a chart takes in a second form beside its default's: both are told in the comment above the key."""
SUBCHART = {"nfd.gc", "nfd.image", "nfd.master.nodeSelector", "nfd.worker.affinity", "nfd.worker.resources"}
"""Values of node-feature-discovery's own chart, which the device plugin's includes without repeating them."""


def releases(sample: str) -> tuple[Resource, ...]:
    return graph(sample).of_type(RELEASE)


def scale_sets(sample: str) -> list[Resource]:
    return [r for r in releases(sample) if r.inputs["chart"].endswith("/gha-runner-scale-set")]


WITH_RUNNERS = [sample for sample in ALL if sample != "images-only"]


def unknown_values(values: Mapping[str, Any], defaults: Mapping[str, Any], text: str, path: str = "") -> Iterator[str]:
    """Paths of `values` that the chart does not know, or knows as something else."""
    for key, value in values.items():
        here = f"{path}{key}"
        if here in SUBCHART:
            continue
        if key not in defaults:
            # Keys without a default stand in a chart's values as comments.
            if not re.search(rf"^\s*#+\s*{re.escape(key)}:", text, re.MULTILINE):
                yield f"{here}: no such value"
            continue
        default = defaults[key]
        if here in FREE or here.rpartition(".")[2] in FREE:
            continue
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            yield from unknown_values(value, default, text, f"{here}.")
        elif default is not None and not isinstance(value, OTHER_FORMS.get(here, type(default))):
            yield f"{here}: {type(value).__name__}, the chart has {type(default).__name__}"


@pytest.fixture(scope="module")
def charts(reference_data: Path) -> dict[str, tuple[dict[str, Any], dict[str, Any], str]]:
    """Name -> (Chart.yaml, values.yaml, its text)."""
    charts = {}
    for folder in sorted((reference_data / "charts").iterdir()):
        text = (folder / "values.yaml").read_text(encoding="utf-8")
        charts[folder.name] = (read((folder / "Chart.yaml").read_text()), read(text), text)
    return charts


@pytest.mark.parametrize("sample", ALL)
def test_charts_know_every_value(charts: dict[str, Any], sample: str) -> None:
    for release in releases(sample):
        name = release.inputs["chart"].rpartition("/")[2]
        chart, defaults, text = charts[name]

        assert release.inputs["version"] == chart["version"], f"{name}: the reference data are of another version"
        assert list(unknown_values(release.inputs["values"], defaults, text)) == []


def test_charts_know_which_values_set_their_images(charts: dict[str, Any]) -> None:
    data = fleet_data(monitoring={"enabled": True}, mirror={"images": "registry.example.com/mirror"})
    releases = {r.inputs["chart"].rpartition("/")[2]: r for r in plan_graph(stack(data)).of_type(RELEASE)}

    assert releases.keys() == charts.keys()
    for name, release in releases.items():
        _, defaults, text = charts[name]
        assert list(unknown_values(release.inputs["values"], defaults, text)) == []


@pytest.mark.parametrize(("values", "message"), [
    ({"tolerance": []}, "tolerance: no such value"),
    ({"gfd": {"enable": True}}, "gfd.enable: no such value"),
    ({"gfd": {"enabled": "true"}}, "gfd.enabled: str, the chart has bool"),
    ({"nfd": {"worker": {"tolerations": [], "selector": {}}}}, "nfd.worker.selector: no such value"),
])  # fmt: skip
def test_wrong_values_are_found(charts: dict[str, Any], values: dict[str, Any], message: str) -> None:
    _, defaults, text = charts["nvidia-device-plugin"]

    assert message in list(unknown_values(values, defaults, text))


# ---- the custom resource ----


@pytest.fixture(scope="module")
def scale_set_schema(reference_data: Path) -> Any:
    return validator(reference_data / "crds/actions.github.com_autoscalingrunnersets.yaml")


def spec(values: Mapping[str, Any]) -> dict[str, Any]:
    """Spec of the AutoscalingRunnerSet that the chart makes of `values`."""
    same = (
        "githubConfigUrl", "githubConfigSecret", "runnerGroup", "runnerScaleSetName", "minRunners", "maxRunners",
        "listenerTemplate", "template",
    )  # fmt: skip
    return {**{key: values[key] for key in same}, "runnerScaleSetLabels": values["scaleSetLabels"]}


@pytest.mark.parametrize("sample", WITH_RUNNERS)
def test_controller_takes_every_scale_set(scale_set_schema: Any, sample: str) -> None:
    for release in scale_sets(sample):
        assert mistakes(scale_set_schema, spec(release.inputs["values"])) == []


@pytest.mark.parametrize(("path", "value", "message"), [
    (("minRunners",), -1, "minRunners"),
    (("template", "spec", "tolerations"), {"key": "x"}, "tolerations"),
    (("template", "spec", "containers", 0, "gpus"), 1, "gpus"),
    (("template", "spec", "containers", 0, "volumeMounts"), [{"name": "x", "path": "/x"}], "path"),
])  # fmt: skip
def test_wrong_scale_sets_are_found(scale_set_schema: Any, path: tuple[Any, ...], value: Any, message: str) -> None:
    bad = deepcopy(spec(scale_sets("smallest")[0].inputs["values"]))
    place: Any = bad
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value

    assert message in "\n".join(mistakes(scale_set_schema, bad))


def hooked(template: dict[str, Any]) -> dict[str, Any]:
    """The job's pod as the container hook makes it: its own lists with the template's appended (src/k8s/index.ts)."""
    pod = deepcopy(template)
    job = pod["spec"]["containers"][0]
    own = {"externals": "/__e", "github": "/github", "work": "/__w"}
    pod["spec"]["volumes"] = [*({"name": name, "emptyDir": {}} for name in own), *pod["spec"]["volumes"]]
    mounts = [{"name": name, "mountPath": path} for name, path in own.items()]
    job.update(name="job", image="ubuntu:24.04", volumeMounts=[*mounts, *job["volumeMounts"]])
    return pod


def pods(sample: str) -> Iterator[dict[str, Any]]:
    """Every pod template that the runners of a sample run as."""
    for release in scale_sets(sample):
        yield release.inputs["values"]["template"]
    for template in graph(sample).of_type("kubernetes:core/v1:ConfigMap"):
        if template.name.endswith("-pod-template"):
            yield hooked(yaml.safe_load(template.inputs["data"]["pod.yaml"]))


@pytest.mark.parametrize("sample", WITH_RUNNERS)
def test_pods_are_ones_that_kubernetes_makes(scale_set_schema: Any, sample: str) -> None:
    good = spec(scale_sets(sample)[0].inputs["values"])
    for pod in pods(sample):
        assert mistakes(scale_set_schema, {**good, "template": pod}) == []


@pytest.mark.parametrize("sample", WITH_RUNNERS)
def test_volumes_and_paths_of_a_pod_are_its_own(sample: str) -> None:
    for pod in pods(sample):
        volumes = [volume["name"] for volume in pod["spec"]["volumes"]]
        containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]

        assert len(set(volumes)) == len(volumes)
        assert all(len(name) <= 63 for name in volumes)
        for container in containers:
            mounts = container.get("volumeMounts", [])
            assert {mount["name"] for mount in mounts} <= set(volumes)
            assert len({mount["mountPath"] for mount in mounts}) == len(mounts)


def test_docker_has_no_memory_limit() -> None:
    (limits,) = [r for r in graph("docker").of_type("kubernetes:core/v1:LimitRange") if "privileged" in r.name]
    containers = next(pods("docker"))["spec"]["initContainers"]

    assert "limits" not in next(c for c in containers if c["name"] == "dind")["resources"]
    assert "default" not in limits.inputs["spec"]["limits"][0], "the namespace's default would be its limit"


# ---- names ----

_LIMITS = {RELEASE: 53, "kubernetes:batch/v1:CronJob": 52, "kubernetes:core/v1:Namespace": 63}


@pytest.mark.parametrize("sample", ALL)
def test_names_are_as_long_as_kubernetes_allows(sample: str) -> None:
    kinds = set()
    for resource in graph(sample).resources.values():
        if not resource.type.startswith("kubernetes:") or not resource.inputs:  # what is read has none
            continue
        metadata = resource.inputs.get("metadata", {})
        name = resource.inputs["name"] if resource.type == RELEASE else metadata["name"]
        key = (resource.type, metadata.get("namespace", resource.inputs.get("namespace")), name)

        assert len(name) <= _LIMITS.get(resource.type, 253)
        assert key not in kinds, "two objects of one name"
        assert all(len(value) <= 63 for value in metadata.get("labels", {}).values())
        kinds.add(key)
    assert all(len(r.inputs["values"]["runnerScaleSetName"]) <= 45 for r in scale_sets(sample))


def test_every_change_of_warm_capacity_has_its_own_job() -> None:
    (runner,) = named("warm").fleet.runners.values()

    assert len(graph("warm").of_type("kubernetes:batch/v1:CronJob")) == len(runner.warm) == 12


def test_network_policies_are_spelled_as_kubernetes_reads_them() -> None:
    spelled = repr([r.inputs for r in graph("monitoring").of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")])

    assert "'except'" in spelled
    assert "'from'" in spelled
    assert "except_" not in spelled
    assert "_selector" not in spelled
