"""More than one small stack: a fleet in three layers, each in a stack of its own, and the large example.

On the real engine and with a real API server; the cloud and the charts are stand-ins.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.console.progress import Progress
from paddock.fleet import load
from paddock.kubernetes.client import Api
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane.servers import Lab
from paddock.lab.simulators import nodes
from paddock.lab.stack import charts, stack
from paddock.lab.stack.engine import ROOT, Engine, EngineError, Programs
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.resource_types import RELEASE
from tests.support.engine import destroy, differences, export, is_default_provider, lab_in, outputs, releases

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("stacks")]

SET = ("actions.github.com/v1alpha1", "AutoscalingRunnerSet")
HELD: dict[str, dict[str, str]] = {
    "images": {"images": "here", "cluster": "none", "runners": "none"},
    "shared": {"images": "organization/paddock/images", "cluster": "here", "runners": "none"},
    "team": {"images": "none", "cluster": "organization/paddock/shared", "runners": "here"},
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    for lab in lab_in(tmp_path_factory.mktemp("lab")):
        nodes.start(lab, load(ROOT, "prod"))
        yield lab


@pytest.fixture
def api(lab: Lab) -> Iterator[Api]:
    with lab_api(lab.kubeconfig) as api:
        yield api


def layered(lab: Lab, root: Path) -> dict[str, Engine]:
    """Return the stacks of one fleet, with a backend that they share; none is applied yet."""
    for name in ("infra", "runners", "ami"):
        (root / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "Pulumi.yaml", root)
    folder = lab.folder / stack.CHARTS
    charts.serve(folder, charts.required_charts(plan_graph(load(ROOT, "dev"))), None)
    engines = {}
    for name, held in HELD.items():
        config: dict[str, Any] = yaml.safe_load((ROOT / "Pulumi.dev.yaml").read_text())["config"]
        config["paddock:layers"] = held
        config["paddock:fleet"] |= {"name": "paddock-shared", "mirror": {"charts": str(folder)}}
        config["paddock:fleet"]["cluster"]["deletionProtection"] = False
        (root / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump({"config": config}))
        engines[name] = Engine(root / "state", Programs.find(), stack=name, root=root, kubeconfig=lab.kubeconfig)
        engines[name].prepare(secret={"paddock:githubAppKey": "made-up"} if name == "team" else None)
    return engines


def test_layers_build_on_each_other_and_go_in_reverse(lab: Lab, api: Api, tmp_path: Path) -> None:
    engines = layered(lab, tmp_path)
    with pytest.raises(EngineError, match="organization/paddock/shared has no cluster") as error:
        engines["team"].up()
    assert "Traceback" not in str(error.value)
    assert not [urn for urn in export(engines["team"]) if "kubernetes" in urn]

    for name, engine in engines.items():
        assert engine.up().changes
        created = {urn: state for urn, state in export(engine).items() if not is_default_provider(state)}
        planned = plan_graph(load(tmp_path, name))
        assert set(created) == set(planned.resources)
        preview = plan_graph(load(tmp_path, name), preview=True)
        assert list(differences(planned, created, preview=preview)) == []

    kubeconfig = outputs(engines["shared"])["kubeconfig"]
    (provider,) = [
        state
        for urn, state in export(engines["team"]).items()
        if state.type == "pulumi:providers:kubernetes" and not urn.endswith("-charts")  # that one only renders charts
    ]
    assert provider.inputs["kubeconfig"] == kubeconfig
    assert [scale_set["metadata"]["name"] for scale_set in api.list(*SET)] == ["gpu"]
    assert engines["team"].up().changes == {}

    before = engines["shared"].exported()
    assert destroy(engines["team"]).changes
    assert set(releases(api)) == {"cluster-autoscaler", "nvidia-device-plugin"}
    assert json.loads(engines["shared"].exported())["deployment"] == json.loads(before)["deployment"]
    assert destroy(engines["shared"], protected=True).changes
    assert releases(api) == {}
    assert export(engines["images"])
    assert destroy(engines["images"], protected=True).changes
    assert [export(engine) for engine in engines.values()] == [{}, {}, {}]
    assert [engine.created_resources() for engine in engines.values()] == [{}, {}, {}]


def test_the_large_stack_is_what_its_plan_shows(lab: Lab, api: Api) -> None:
    prod = load(ROOT, "prod")

    outcome = stack.apply(lab, prod, progress=Progress(quiet=True))

    engine = stack.lab_engine(lab, prod)
    created = {urn: state for urn, state in export(engine).items() if not is_default_provider(state)}
    held = stack.overlay(prod, kubeconfig=lab.kubeconfig, charts=lab.folder / stack.CHARTS)
    planned = plan_graph(held)
    assert set(created) == set(planned.resources)
    assert {step.operation for step in outcome.result.steps} == {"create"}
    assert list(differences(planned, created, preview=plan_graph(held, preview=True))) == []
    assert set(releases(api)) == {state.inputs["name"] for state in created.values() if state.type == RELEASE}
    assert {scale_set["metadata"]["name"] for scale_set in api.list(*SET)} == set(prod.fleet.runners)
