"""CRDs come from their chart, before the release that uses them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.helm.charts import CHARTS, CONTROLLER
from paddock.fleet.model.mirror import chart_name
from paddock.plan.engine import fake_cloud
from paddock.plan.engine.graph import PlanError
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.resource_types import CUSTOM_RESOURCE_DEFINITION, RELEASE
from tests.support.fleets import ALL, example, graph


@pytest.mark.parametrize("name", ALL)
def test_a_release_comes_after_the_crds_of_its_chart(name: str) -> None:
    planned = graph(name)
    crds = {crd.inputs["metadata"]["name"]: crd.urn for crd in planned.of_type(CUSTOM_RESOURCE_DEFINITION)}
    charts = {chart_name(release.inputs["chart"]): release for release in planned.of_type(RELEASE)}

    assert set(crds) == {crd for chart in charts for crd in CHARTS[chart].crds}
    for chart, release in charts.items():
        assert {crds[crd] for crd in CHARTS[chart].crds} <= set(release.dependencies)
        assert release.inputs.get("skipCrds", False) is bool(CHARTS[chart].crds)
        assert all(
            of.items() <= release.inputs["values"][inner].items() for inner, of in CHARTS[chart].crd_values.items()
        )


@pytest.mark.parametrize("crds", [(), (*CONTROLLER.crds, "others.actions.github.com")], ids=["none", "one more"])
def test_a_chart_with_other_crds_is_refused(crds: tuple[str, ...]) -> None:
    def lookup(token: str, arguments: Mapping[str, Any], account: str) -> Mapping[str, Any] | None:
        if token != "kubernetes:helm:template" or CONTROLLER.name not in arguments["jsonOpts"]:
            return fake_cloud.lookup(token, arguments, account)
        kind = "CustomResourceDefinition"
        return {"result": [{"kind": kind, "metadata": {"name": name}, "spec": {}} for name in crds]}

    answers = SimpleNamespace(**vars(fake_cloud) | {"lookup": lookup})
    with pytest.raises(
        PlanError, match=rf"the chart {CONTROLLER.name} .* has the CRDs (none|.*others)(.|\n)*fix: list"
    ):
        plan_graph(example("dev"), answers=answers)


def test_the_crds_of_arc_are_those_of_its_chart(reference_data: Path) -> None:
    files = (reference_data / "crds").glob("actions.github.com_*.yaml")

    assert {f"{file.stem.partition('_')[2]}.actions.github.com" for file in files} == set(CONTROLLER.crds)
