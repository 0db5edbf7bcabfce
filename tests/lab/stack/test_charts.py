"""The charts that a lab serves: which it takes, and that our own stand for the real ones where it matters."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.fleet.model.mirror import chart_name
from paddock.lab.control_plane import programs
from paddock.lab.errors import LabInputError
from paddock.lab.stack import charts
from paddock.plan.engine.graph import Resource
from paddock.plan.engine.program import plan_graph
from tests.support.fleets import EXAMPLES, fleet_data, graph
from tests.support.fleets import stack as stack_of

RELEASE = "kubernetes:helm.sh/v3:Release"
PLUGIN, PLUGIN_VERSION = "nvidia-device-plugin", "0.20.0"
REAL = os.environ.get(charts.REAL)  # the environment is cleaned before each test


def packed(name: str, version: str, **files: str) -> bytes:
    """Return a chart as `helm package` packs it: with times, owners, and Chart.yaml not the first."""
    about = yaml.safe_dump({"apiVersion": "v2", "name": name, "version": version})
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for path, text in {**files, "Chart.yaml": about}.items():
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size, member.mtime, member.uname = len(text), 1_700_000_000, "someone"
            archive.addfile(member, io.BytesIO(text.encode()))
    return out.getvalue()


def unpacked(folder: Path, name: str, version: str, **more: Any) -> None:
    (folder / name / "templates").mkdir(parents=True)
    (folder / name / "Chart.yaml").write_text(yaml.safe_dump({"name": name, "version": version, **more}))
    (folder / name / "templates" / "x.yaml").write_text("{}")


def test_every_chart_of_a_stack_is_required_once(tmp_path: Path) -> None:
    data = fleet_data(runners={"gpu": {"pool": "t4"}, "other": {"pool": "t4", "labels": ["other"]}})
    anywhere = charts.required_charts(plan_graph(stack_of(data)))
    charts.serve(tmp_path, anywhere, None)
    mirrored = {**data, "mirror": {"charts": str(tmp_path)}}

    assert charts.required_charts(plan_graph(stack_of(mirrored))) == anywhere
    assert [name for name, _ in anywhere] == sorted({name for name, _ in anywhere})
    assert (PLUGIN, PLUGIN_VERSION) in anywhere


def test_the_same_charts_are_the_same_bytes(tmp_path: Path) -> None:
    unpacked(tmp_path / "real", PLUGIN, PLUGIN_VERSION)
    required = charts.required_charts(graph("prod"))
    first = charts.serve(tmp_path / "a", required, tmp_path / "real")
    for path in (tmp_path / "real").rglob("*"):
        os.utime(path, (1, 1))
    second = charts.serve(tmp_path / "b", required, tmp_path / "real")

    assert [chart.path.read_bytes() for chart in first] == [chart.path.read_bytes() for chart in second]
    for chart in first:
        assert chart.path.name == f"{chart.name}-{chart.version}.tgz"
        with tarfile.open(chart.path) as archive:
            members = archive.getmembers()
        assert {(member.mtime, member.uid, member.uname) for member in members} == {(0, 0, "")}
        assert gzip.decompress(chart.path.read_bytes())


def test_a_real_chart_is_served_unchanged_before_our_own(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    archive = packed(PLUGIN, PLUGIN_VERSION)
    (real / f"{PLUGIN}-{PLUGIN_VERSION}.tgz").write_bytes(archive)
    # The name of one chart is how that of another begins.
    (real / "gha-runner-scale-set-controller-0.14.2.tgz").write_bytes(
        packed("gha-runner-scale-set-controller", "0.14.2")
    )
    unpacked(real, "dcgm-exporter", "4.8.2")
    required = [(PLUGIN, PLUGIN_VERSION), ("gha-runner-scale-set", "0.14.2"), ("dcgm-exporter", "4.8.2")]
    served = charts.serve(tmp_path / "served", required, real)

    assert [chart.real for chart in served] == [True, False, True]
    assert served[0].path.read_bytes() == archive
    with tarfile.open(served[2].path) as archive_file:
        assert archive_file.getnames() == ["dcgm-exporter/Chart.yaml", "dcgm-exporter/templates/x.yaml"]


def _put(content: bytes, name: str = f"{PLUGIN}-{PLUGIN_VERSION}.tgz") -> Callable[[Path], None]:
    def put(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return put


@pytest.mark.parametrize(
    ("make", "fragments"),
    [
        (_put(b"", f"{PLUGIN}-0.19.0.tgz"), [f"{PLUGIN}-0.19.0.tgz", f"{PLUGIN} 0.19.0", PLUGIN_VERSION, "helm pull"]),
        (_put(packed(PLUGIN, "0.19.0")), [f"{PLUGIN} 0.19.0, the fleet releases {PLUGIN_VERSION}"]),
        (_put(packed("other", PLUGIN_VERSION)), ["it is the chart other", PLUGIN]),
        (_put(b"not found"), ["is not a chart", "fetch it again"]),
        (_put(packed(PLUGIN, PLUGIN_VERSION)[:60]), ["is not a chart"]),
        (_put(gzip.compress(b"")), ["is not a chart"]),
        (lambda folder: unpacked(folder, PLUGIN, "0.19.0"), [f"{PLUGIN} 0.19.0, the fleet releases {PLUGIN_VERSION}"]),
        (
            lambda folder: unpacked(folder, PLUGIN, PLUGIN_VERSION, dependencies=[{"name": "nfd", "version": "1"}]),
            ["not in it: nfd", "helm dependency build"],
        ),
    ],
    ids=["other-file", "other-version", "other-chart", "no-archive", "cut-off", "empty", "other-folder", "no-subchart"],
)
def test_an_unusable_real_chart_is_an_error_and_nothing_is_served(
    make: Callable[[Path], None], fragments: list[str], tmp_path: Path
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    make(real)
    with pytest.raises(LabInputError) as refused:
        charts.serve(tmp_path / "served", [("dcgm-exporter", "4.8.2"), (PLUGIN, PLUGIN_VERSION)], real)

    assert all(part in str(refused.value) for part in fragments)
    assert not (tmp_path / "served").exists()


def test_the_folder_of_real_charts_must_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert charts.real_folder() is None
    monkeypatch.setenv(charts.REAL, str(tmp_path))
    assert charts.real_folder() == tmp_path
    monkeypatch.setenv(charts.REAL, str(tmp_path / "absent"))
    with pytest.raises(LabInputError, match=r"PADDOCK_LAB_CHARTS: .*absent is not a folder"):
        charts.real_folder()


# What Helm makes of them.


@pytest.fixture(scope="module")
def helm() -> str:
    paths = programs.locate(("helm",))
    if not paths:
        pytest.skip("helm is not here (on PATH, or in PADDOCK_LAB_BIN)")
    return str(paths["helm"])


class Renderer:
    """Releases as Helm renders them, from the charts in `real` or from our own."""

    def __init__(self, helm: str, folder: Path, real: Path | None) -> None:
        self.helm, self.folder, self.real = helm, folder, real

    def chart(self, release: Resource) -> Path:
        name = chart_name(release.inputs["chart"])
        (served,) = charts.serve(self.folder, [(name, release.inputs["version"])], self.real)
        return served.path

    def values(self, release: Resource) -> Path:
        path = self.folder / "values.json"
        path.write_text(json.dumps(release.inputs["values"]))
        return path

    def render(self, release: Resource) -> list[dict[str, Any]]:
        chart, name, namespace = self.chart(release), release.inputs["name"], str(release.inputs["namespace"])
        output = self.run("template", name, chart, "-n", namespace, "-f", self.values(release))
        return [document for document in yaml.safe_load_all(output) if document]

    def run(self, *arguments: str | Path) -> str:
        completed = subprocess.run(
            [self.helm, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={"HOME": str(self.folder)},
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed.stdout


@pytest.fixture
def own(helm: str, tmp_path: Path) -> Renderer:
    return Renderer(helm, tmp_path, None)


@pytest.fixture
def real(helm: str, tmp_path: Path) -> Renderer:
    if not REAL:
        pytest.skip("there are no real charts to compare with: PADDOCK_LAB_CHARTS names no folder")
    (tmp_path / "real").mkdir()
    return Renderer(helm, tmp_path / "real", Path(REAL))


def releases(stack: str, chart: str = "") -> Iterator[Resource]:
    for release in graph(stack).of_type(RELEASE):
        if chart_name(release.inputs["chart"]) == chart or not chart:
            yield release


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [document for document in documents if document["kind"] == kind]


@pytest.mark.parametrize("stack", EXAMPLES)
def test_helm_accepts_our_charts_and_they_keep_their_values(own: Renderer, stack: str) -> None:
    for release in releases(stack):
        own.run("lint", "--quiet", own.chart(release), "-f", own.values(release))
        config_maps = [
            object_
            for object_ in of_kind(own.render(release), "ConfigMap")
            if object_["metadata"]["name"].endswith("-values")
        ]

        assert [yaml.safe_load(config_map["data"]["values.yaml"]) for config_map in config_maps] == [
            release.inputs["values"]
        ]


def test_workloads_go_where_their_values_say(own: Renderer) -> None:
    (plugin,), (exporter,) = releases("prod", PLUGIN), releases("prod", "dcgm-exporter")
    values = plugin.inputs["values"]
    daemonsets = of_kind(own.render(plugin), "DaemonSet")
    pods = {daemonset["metadata"]["name"]: daemonset["spec"]["template"]["spec"] for daemonset in daemonsets}

    assert len(pods) == 3, "the device plugin, and what finds out about GPUs and about nodes"
    for pod in pods.values():
        assert pod["tolerations"] == values["tolerations"]
        assert pod["affinity"] == values["affinity"]
    assert pods[PLUGIN]["priorityClassName"] == "system-node-critical"
    assert pods[PLUGIN]["containers"][0]["resources"] == values["resources"]

    (watcher,) = of_kind(own.render(exporter), "DaemonSet")
    assert watcher["spec"]["template"]["spec"]["nodeSelector"] == exporter.inputs["values"]["nodeSelector"]


def test_a_chart_that_the_lab_does_not_know_keeps_its_values(own: Renderer) -> None:
    (served,) = charts.serve(own.folder, [("new-one", "1.2.3")], None)
    (config_map,) = yaml.safe_load_all(own.run("template", "x", served.path, "--set", "a.b=1"))

    assert yaml.safe_load(config_map["data"]["values.yaml"]) == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("containerMode.type=dind", "does not know containerMode dind"),
        ("githubServerTLS.runnerMountPath=/certs", "does not know githubServerTLS"),
        ("minRunners=9", "maxRunners is less than minRunners"),
    ],
)
def test_our_own_scale_set_refuses_what_it_would_render_otherwise(own: Renderer, values: str, message: str) -> None:
    (release,) = releases("dev", "gha-runner-scale-set")

    with pytest.raises(AssertionError, match=message):
        own.run("template", "gpu", own.chart(release), "-f", own.values(release), "--set", values)


# The real ones, where they are.


def without_empty(value: Any) -> Any:
    """As the API server reads it: an empty list or map is one that is not there."""
    if isinstance(value, dict):
        return {key: without_empty(value) for key, value in value.items() if value not in (None, [], {})}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("stack", [*EXAMPLES, "docker", "job-pods", "every-volume"])
def test_our_own_scale_set_equals_the_real_charts(own: Renderer, real: Renderer, stack: str) -> None:
    for release in releases(stack, "gha-runner-scale-set"):
        (own_set,) = of_kind(own.render(release), "AutoscalingRunnerSet")
        (theirs,) = of_kind(real.render(release), "AutoscalingRunnerSet")

        assert without_empty(own_set["spec"]) == without_empty(theirs["spec"])
        assert own_set["metadata"]["labels"] == theirs["metadata"]["labels"]


@pytest.mark.parametrize("stack", EXAMPLES)
def test_real_charts_accept_our_values_and_reach_the_same_nodes(own: Renderer, real: Renderer, stack: str) -> None:
    for release in releases(stack):
        own_objects, theirs = own.render(release), real.render(release)
        for kind in ("DaemonSet", "Deployment"):
            for object_ in of_kind(own_objects, kind):
                name, pod = object_["metadata"]["name"], object_["spec"]["template"]["spec"]
                # The autoscaler's chart names its Deployment after the cloud too.
                like = [
                    candidate
                    for candidate in of_kind(theirs, kind)
                    if candidate["metadata"]["name"] in (name, f"{name}-aws-{name}")
                ]
                assert like, f"{kind} {name}"
                there = like[0]["spec"]["template"]["spec"]
                for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
                    if key in pod:
                        assert there[key] == pod[key], f"{name}: {key}"
