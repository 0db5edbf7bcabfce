"""A mirror reaches every chart and image of the program, and a fleet without one stays as it is."""

from __future__ import annotations

import io
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.helm.charts import CHARTS, Chart, installed
from paddock.plan import mirror
from paddock.plan.engine.graph import Graph, PlanError
from paddock.plan.engine.program import plan_graph
from paddock.plan.rules.base import Context
from paddock.plan.rules.mirror import Mirrored
from tests.support.explore import EXPLORING
from tests.support.fleets import ALL, SAMPLES, fleet_data, graph, named, stack

RELEASE = "kubernetes:helm.sh/v3:Release"
HERE = "registry.example.com/mirror"
PULLING = ("docker", "job-pods", "warm", "monitoring", "prometheus", "cloudwatch", "job-logs", "any-cluster")
"""Samples that together pull all that one pulls."""
WHOLE = {"charts": "oci://registry.example.com/charts", "images": HERE}


@cache
def mirrored(sample: str) -> Graph:
    return plan_graph(stack({**SAMPLES[sample], "mirror": WHOLE}, sample))


def without_places(graph: Graph) -> dict[str, Any]:
    """Inputs of every resource, with makers' names for what comes from the mirror."""
    text = {urn: repr(resource.inputs) for urn, resource in graph.resources.items()}
    for name in mirror.images(graph):
        text = {urn: inputs.replace(name, f"IMAGE {name.rpartition('/')[2]}") for urn, inputs in text.items()}
    return {urn: inputs for urn, inputs in text.items() if f"::{RELEASE}::" not in urn and f"${RELEASE}::" not in urn}


@pytest.mark.parametrize("sample", SAMPLES if EXPLORING else PULLING)
def test_everything_comes_from_the_mirror(sample: str) -> None:
    planned = mirrored(sample)
    before, after = mirror.images(graph(sample)), mirror.images(planned)

    assert all(name.startswith(f"{HERE}/") for name in after)
    assert {name.rpartition("/")[2] for name in after} == {name.rpartition("/")[2] for name in before}
    assert without_places(planned) == without_places(graph(sample))
    for release in planned.of_type(RELEASE):
        assert release.inputs["chart"].startswith("oci://registry.example.com/charts/")
        assert "repositoryOpts" not in release.inputs
    for urn, resource in planned.resources.items():
        text = repr(resource.inputs)
        assert not [
            host for host in ("ghcr.io", "nvcr.io", "registry.k8s.io", "docker.io", "'docker:") if host in text
        ], urn


def test_samples_that_pull_are_enough() -> None:
    pulled = [{chart.name for chart in mirror.charts(graph(n))} | set(mirror.images(graph(n))) for n in PULLING]
    everything = [{chart.name for chart in mirror.charts(graph(n))} | set(mirror.images(graph(n))) for n in SAMPLES]
    assert set.union(*everything) == set.union(*pulled)


@pytest.mark.parametrize("sample", ALL)
def test_the_charts_of_a_fleet_are_those_its_program_installs(sample: str) -> None:
    assert {chart.name for chart in installed(named(sample).fleet)} == {
        chart.name for chart in mirror.charts(graph(sample))
    }


def test_a_chart_names_the_images_that_its_values_do(reference_data: Path) -> None:
    assert CHARTS.keys() - {folder.name for folder in (reference_data / "charts").iterdir()} <= {"kuberay-operator"}
    for name, chart in CHARTS.items():
        if not (reference_data / "charts" / name).exists():
            continue
        about = yaml.safe_load((reference_data / "charts" / name / "Chart.yaml").read_text(encoding="utf-8"))
        defaults = yaml.safe_load((reference_data / "charts" / name / "values.yaml").read_text(encoding="utf-8"))
        own = [image for image in chart.images if image.at == ("image",)]
        images = [defaults["image"]] if "image" in defaults else []

        assert [image.repository for image in own] == [image["repository"] for image in images]
        for image, default in zip(own, images, strict=True):
            tags = {default["tag"]} if default["tag"] else {about["appVersion"], f"v{about['appVersion']}"}
            assert image.tag in tags or not image.tag
        inner = {image.at[0]: image.tag for image in chart.images if image.at != ("image",)}
        assert inner == {part["alias"]: f"v{part['version']}" for part in about.get("dependencies", [])}


def test_what_to_copy_is_printed_as_commands() -> None:
    mirrored = stack(fleet_data(mirror={"charts": {"*": "our charts"}, "images": {"ghcr.io": HERE}}))
    commands = list(mirror.commands(mirrored.fleet.mirror, mirror.graph_without_mirror(mirrored)))

    arc = CHARTS["gha-runner-scale-set"].version
    assert (
        "helm pull oci://ghcr.io/actions/actions-runner-controller-charts/gha-runner-scale-set"
        f" --version {arc} --destination 'our charts'"
    ) in commands
    assert (
        f"crane copy ghcr.io/actions/gha-runner-scale-set-controller:{arc}"
        f" {HERE}/actions/gha-runner-scale-set-controller:{arc}"
    ) in commands
    assert [line for line in commands if line.startswith("# nvcr.io/nvidia/k8s-device-plugin:")]


def test_images_without_a_mirror_entry_are_reported() -> None:
    runners = {"gpu": {"pool": "t4", "image": "quay.io/acme/runner:1.2"}}
    places = {
        "charts": {"nvidia-device-plugin": "oci://r.example.com/nvidia-device-plugin"},
        "images": {"ghcr.io": HERE, "nvcr.io": HERE},
    }
    planned = stack(fleet_data(runners=runners, mirror=places))

    hits = list(Mirrored().check(Context(plan_graph(planned), fleet=planned.fleet)))

    messages = [(hit.subject, hit.message) for hit in hits]
    assert (
        "gpu",
        "Release: its runners pull quay.io/acme/runner:1.2, and mirror.images has no entry for quay.io",
    ) in messages
    assert (
        "gpu",
        "Release: mirror.charts has no entry for gha-runner-scale-set, so it comes from its publisher",
    ) in messages
    inner = [message for subject, message in messages if subject == "device-plugin"]
    assert ["node-feature-discovery" in message and "registry.k8s.io" in message for message in inner] == [True]
    assert {subject for subject, _ in messages} == {"arc", "autoscaler", "device-plugin", "gpu"}


# ---- charts in a folder ----


def write(folder: Path, chart: Chart, *, name: str = "", version: str = "") -> Path:
    text = yaml.safe_dump({"apiVersion": "v2", "name": name or chart.name, "version": version or chart.version})
    path = folder / f"{chart.name}-{chart.version}.tgz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(f"{chart.name}/Chart.yaml")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for chart in CHARTS.values():
        write(tmp_path, chart)
    return tmp_path


def test_charts_come_from_a_folder(folder: Path) -> None:
    planned = plan_graph(stack(fleet_data(mirror={"charts": str(folder)})))

    for release in planned.of_type(RELEASE):
        assert Path(release.inputs["chart"]).parent == folder
        assert Path(release.inputs["chart"]).name.endswith(f"-{release.inputs['version']}.tgz")


def test_a_relative_folder_is_the_stack_file_s(folder: Path, root: Path) -> None:
    """The engine runs providers in the program's folder, `infra`."""
    relative = Path(*[".."] * len(root.parts[1:]), *folder.parts[1:])
    planned = plan_graph(stack(fleet_data(mirror={"charts": str(relative)})))

    for release in planned.of_type(RELEASE):
        assert not Path(release.inputs["chart"]).is_absolute()
        assert (root / "infra" / release.inputs["chart"]).is_file()


def test_missing_charts_are_all_reported_at_once(folder: Path) -> None:
    controller, autoscaler, plugin = (
        CHARTS[name] for name in ("gha-runner-scale-set-controller", "cluster-autoscaler", "nvidia-device-plugin")
    )
    (folder / f"{controller.name}-{controller.version}.tgz").rename(folder / f"{controller.name}-0.13.1.tgz")
    (folder / f"{plugin.name}-{plugin.version}.tgz").write_bytes(b"<html>404</html>")
    write(folder, autoscaler, version="9.0.0")

    with pytest.raises(PlanError) as error:
        plan_graph(stack(fleet_data(mirror={"charts": {"*": str(folder), "cluster-autoscaler": str(folder)}})))

    key = "Pulumi.sample.yaml: paddock:fleet.mirror.charts"
    assert str(error.value).splitlines() == [
        f"{key}.cluster-autoscaler: {folder}/cluster-autoscaler-{autoscaler.version}.tgz"
        " holds cluster-autoscaler 9.0.0",
        f"    expected: the chart cluster-autoscaler {autoscaler.version}",
        f"    fix: {autoscaler.pull} --destination {folder}",
        f"{key}.*: {folder}/nvidia-device-plugin-{plugin.version}.tgz is not a packed chart",
        f"    expected: the chart nvidia-device-plugin {plugin.version}",
        f"    fix: {plugin.pull} --destination {folder}",
        f"{key}.*: there is no {controller.name}-{controller.version}.tgz in {folder},"
        f" but {controller.name}-0.13.1.tgz",
        f"    expected: the chart {controller.name} {controller.version}",
        f"    fix: {controller.pull} --destination {folder}",
    ]
