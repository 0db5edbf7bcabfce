"""CRDs through the life of a stack, in a real API server: taken over from Helm, upgraded with their chart, kept.

ARC's charts are the lab's own in three versions, of which the last has the real CRDs.
"""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import versions
from infra.helm.charts import CONTROLLER, CRD
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane.servers import Lab
from paddock.lab.simulators import nodes
from paddock.lab.stack import charts
from paddock.lab.stack import stack as lab_stack
from paddock.lab.stack.engine import ROOT, YES, Engine, Programs
from tests.support import fleets
from tests.support.engine import destroy, lab_in, releases, short

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("crds")]

SETS = "autoscalingrunnersets.actions.github.com"
SET = ("actions.github.com/v1alpha1", "AutoscalingRunnerSet")
OLDER, NEWER = "0.14.1", "0.14.3"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    for lab in lab_in(tmp_path_factory.mktemp("lab")):
        nodes.start(lab, fleets.named("any-cluster"))
        yield lab


class Story:
    """A stack in a cluster that is there already. Each step runs once, after the one before it."""

    def __init__(self, lab: Lab, api: Api, root: Path, real: Path) -> None:
        self.api, self.root, self.real, self.charts = api, root, real, root / "charts"
        for name in ("infra", "runners"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "Pulumi.yaml", root)
        taken = {"kubeconfig": "~/.kube/config", "context": "lab", "crds": {"arc": "replace", "nfd": "replace"}}
        held = fleets.stack(fleets.SAMPLES["any-cluster"] | {"cluster": taken}, "any-cluster")
        held = lab_stack.overlay(held, kubeconfig=lab.kubeconfig, charts=self.charts)
        required = charts.required_charts(fleets.graph(held.name))
        arc = [name for name, version in required if version == versions.ARC]
        charts.serve(self.charts, [*required, *((name, version) for name in arc for version in (OLDER, NEWER))], None)
        (root / f"Pulumi.{held.name}.yaml").write_text("config: {}\n")
        self.engine = Engine(root / "state", Programs.find(), stack=held.name, root=root, kubeconfig=lab.kubeconfig)
        self.engine.prepare(lab_stack.configuration(held), {"paddock:githubAppKey": "made-up"})

    @cached_property
    def installed_by_helm(self) -> Object:
        """An older version, by a Paddock that left CRDs to Helm."""
        self._edit("versions.py", f'ARC = "{versions.ARC}"', f'ARC = "{OLDER}"')
        self._edit("helm/releases.py", "skip_crds=True if chart.crds else None,", "")
        self._edit("helm/releases.py", 'if chart.crds and crds != "keep":', "if False:")
        self.engine.up()
        return self._crd()

    @cached_property
    def before(self) -> Object:
        """The scale set that lives through all of it."""
        assert self.installed_by_helm
        return self.api.get(*SET, "gpu", "arc-runners")

    @cached_property
    def adopted(self) -> Mapping[str, tuple[str, ...]]:
        """The pinned version, by this Paddock."""
        assert self.before
        for name in ("versions.py", "helm/releases.py"):
            shutil.copy(ROOT / "infra" / name, self.root / "infra" / name)
        self._change_crds(versions.ARC, _typed)
        return self.engine.up().changes

    @cached_property
    def refreshed(self) -> Mapping[str, tuple[str, ...]]:
        assert self.adopted
        return self.engine.run("refresh", *YES).changes

    @cached_property
    def upgraded(self) -> Mapping[str, tuple[str, ...]]:
        """A later version, with the CRDs of the real chart."""
        assert self.refreshed is not None
        self._edit("versions.py", f'ARC = "{versions.ARC}"', f'ARC = "{NEWER}"')
        self._change_crds(
            NEWER, lambda crd: _load(self.real / f"actions.github.com_{crd['spec']['names']['plural']}.yaml")
        )
        return self.engine.up().changes

    @cached_property
    def destroyed(self) -> Mapping[str, tuple[str, ...]]:
        assert self.upgraded
        return destroy(self.engine, protected=True).changes

    def schema(self) -> Mapping[str, Any]:
        """Fields that the API server knows of a scale set's `spec`."""
        (version,) = self._crd()["spec"]["versions"]
        schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
        fields: dict[str, Any] = schema.get("properties", {}).get("spec", {}).get("properties", {})
        return fields

    def _crd(self) -> Object:
        return self.api.get("apiextensions.k8s.io/v1", CRD, SETS)

    def _edit(self, name: str, old: str, new: str) -> None:
        path = self.root / "infra" / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def _change_crds(self, version: str, change: Callable[[Object], Object]) -> None:
        """Change each CRD in the controller's chart of a version."""
        path = self.charts / f"{CONTROLLER.name}-{version}.tgz"
        folder = self.root / version
        with tarfile.open(path) as archive:
            archive.extractall(folder, filter="data")
        for file in (folder / CONTROLLER.name / "crds").iterdir():
            file.write_text(yaml.safe_dump(change(_load(file))))
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder / CONTROLLER.name, CONTROLLER.name)


def _load(path: Path) -> Object:
    crd: Object = yaml.load(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return crd


def _typed(crd: Object) -> Object:
    """Return a CRD that knows a type of one field more."""
    for version in crd["spec"]["versions"]:
        fields = {"maxRunners": {"type": "integer"}}
        spec = {"type": "object", "properties": fields, "x-kubernetes-preserve-unknown-fields": True}
        version["schema"]["openAPIV3Schema"]["properties"] = {"spec": spec}
    return crd


@pytest.fixture(scope="module")
def story(lab: Lab, tmp_path_factory: pytest.TempPathFactory, reference_data: Path) -> Iterator[Story]:
    with lab_api(lab.kubeconfig) as api:
        yield Story(lab, api, tmp_path_factory.mktemp("project"), reference_data / "crds")


def test_crds_of_helm_are_taken_over_and_upgraded(story: Story) -> None:
    assert story.installed_by_helm
    assert story.schema() == {}
    adopted = {short(urn): operations for urn, operations in story.adopted.items()}

    assert story.schema() == {"maxRunners": {"type": "integer"}}
    assert adopted[f"CustomResourceDefinitionPatch::arc-{SETS}"] == ("create",)
    assert story._crd()["metadata"]["uid"] == story.installed_by_helm["metadata"]["uid"]
    assert story.api.get(*SET, "gpu", "arc-runners")["metadata"]["uid"] == story.before["metadata"]["uid"]


def test_a_refresh_finds_no_crd_changed(story: Story) -> None:
    assert not [urn for urn in story.refreshed if "CustomResourceDefinition" in urn or "Release" in urn]


def test_a_version_upgrades_crds_before_the_controller(story: Story) -> None:
    changes = {short(urn): operations for urn, operations in story.upgraded.items()}

    order = list(changes)
    crds = [name for name in order if name.startswith("CustomResourceDefinitionPatch::")]
    assert set(crds) == {f"CustomResourceDefinitionPatch::arc-{crd}" for crd in CONTROLLER.crds}
    assert {changes[name] for name in crds} == {("update",)}
    assert max(map(order.index, crds)) < order.index("Release::arc") < order.index("Release::gpu")
    assert {"maxRunners", "runnerScaleSetLabels", "template"} <= set(story.schema())
    assert releases(story.api)["arc"]["chart"]["metadata"]["version"] == NEWER
    assert story.api.get(*SET, "gpu", "arc-runners")["metadata"]["uid"] == story.before["metadata"]["uid"]


def test_crds_and_their_objects_outlive_the_stack(story: Story) -> None:
    rule = {"apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeatureRule", "metadata": {"name": "of-somebody"}}
    assert story.upgraded
    story.api.apply(rule)
    assert story.destroyed

    assert story.api.find(rule["apiVersion"], rule["kind"], "of-somebody")
    assert story.schema()
    assert releases(story.api) == {}
