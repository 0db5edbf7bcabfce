"""Properties of every fleet's graph: the examples, one sample of each form, and generated fleets."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from paddock.fleet import FleetError
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.values import redact
from tests.support.explore import examples
from tests.support.fleets import ALL, ROOT, fleet_data, graph, named, stack
from tests.support.rules import RULES, broken
from tests.support.strategies import fleets

MADE_UP: Mapping[str, Any] = {
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "phases": [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
}


@pytest.mark.parametrize("name", ALL)
def test_every_rule_holds(name: str) -> None:
    assert broken(named(name).fleet, graph(name)) == {}


def planned(data: dict[str, Any]) -> None:
    """Plans the fleet and checks the graph, or the fleet is refused in words. Nothing else may happen."""
    try:
        stack_ = stack(data)
    except FleetError:
        return
    graph("smallest")  # loads the SDKs for good
    assert broken(stack_.fleet, plan_graph(stack_)) == {}


@examples(30, 140, **MADE_UP)
@given(fleets())
def test_any_fleet_plans_or_is_refused(data: dict[str, Any]) -> None:
    planned(data)


@examples(10, 140, **MADE_UP)
@given(fleets().filter(lambda data: "existing" in data["network"]))
def test_any_fleet_in_an_adopted_network_plans_or_is_refused(data: dict[str, Any]) -> None:
    planned(data)


@examples(15, 140, **MADE_UP)
@given(fleets(), st.sampled_from(["dind", "kubernetes-novolume", "none"]))
def test_any_fleet_of_one_container_mode_plans_or_is_refused(data: dict[str, Any], mode: str) -> None:
    planned({**data, "runners": {name: {**runner, "container": mode} for name, runner in data["runners"].items()}})


@examples(10, 80, **MADE_UP)
@given(fleets().map(lambda data: {**data, "images": {"repositories": []}}))
def test_any_first_preview_declares_what_creation_does(data: dict[str, Any]) -> None:
    try:
        stack_ = stack(data)
    except FleetError:
        return
    previewed, created = plan_graph(stack_, preview=True), plan_graph(stack_)

    assert set(previewed.resources) == set(created.resources)


def test_made_up_fleets_are_mostly_valid() -> None:
    valid: list[bool] = []

    @settings(max_examples=60, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(fleets())
    def collect(data: dict[str, Any]) -> None:
        try:
            stack(data)
        except FleetError:
            valid.append(False)
        else:
            valid.append(True)

    collect()

    assert sum(valid) > len(valid) / 3


# ---- a small change stays small ----


def changed(before: Graph, after: Graph) -> set[str]:
    """Names of the resources that differ, with their parents' names."""
    return {
        f"{urn.split('::')[2].split('$')[-1].rpartition(':')[2]} {urn.split('::')[3]}"
        for urn in before.resources.keys() | after.resources.keys()
        if _comparable(before.resources.get(urn)) != _comparable(after.resources.get(urn))
    }


def _comparable(resource: Resource | None) -> Any:
    return resource and (redact(resource.inputs), resource.dependencies, resource.provider)


TWO = fleet_data(
    pools={
        "t4": {"instances": ["g4dn.xlarge"], "nodes": {"max": 2}},
        "l4": {"instances": ["g6.xlarge"], "nodes": {"max": 2}},
    },
    runners={"gpu": {"pool": "t4", "max": 2}, "other": {"pool": "l4", "max": 2}},
)


@cache
def _two() -> Graph:
    return plan_graph(stack(TWO))


def _edited(edit: Callable[[dict[str, Any]], Any]) -> set[str]:
    data = deepcopy(TWO)
    edit(data)
    return changed(_two(), plan_graph(stack(data)))


def test_labels_of_a_runner_change_that_runner_only() -> None:
    assert _edited(lambda data: data["runners"]["gpu"].update(labels=["gpu", "cuda"])) == {"Release gpu"}


def test_another_pool_touches_no_other_pool() -> None:
    pool = {"instances": ["g5.xlarge"], "nodes": {"max": 1}}
    result = _edited(lambda data: data["pools"].update(a10g=pool))

    assert result
    assert {name for name in result if not re.match(r"\w+ a10g($|-)", name)} == set()


def test_another_shared_pool_also_changes_how_gpus_are_shared() -> None:
    pool = {"instances": ["g5.xlarge"], "nodes": {"max": 1}, "sharing": {"timeSlicing": 2}}
    result = _edited(lambda data: data["pools"].update(a10g=pool))

    assert {name for name in result if not re.match(r"\w+ a10g($|-)", name)} == {"Release device-plugin"}


def test_another_runner_changes_the_quota_and_nothing_of_the_others() -> None:
    result = _edited(lambda data: data["runners"].update(third={"pool": "t4", "max": 1}))

    assert {name for name in result if " third" not in name} == {"ResourceQuota arc-arc-runners-quota"}


def test_size_of_a_pool_changes_its_node_group_and_the_quota() -> None:
    result = _edited(lambda data: data["pools"]["t4"]["nodes"].update(max=3))

    assert result == {"NodeGroup t4-spot", "ResourceQuota arc-arc-runners-quota"}


# ---- the rules themselves ----


# The fleet itself refuses two runners with the same labels.
@pytest.mark.parametrize("rule", sorted(RULES.keys() - {"labels_are_unique"}))
def test_every_rule_can_be_broken(rule: str) -> None:
    sample, type_, change = BREAKS[rule]
    good = graph(sample)
    resources = dict(good.resources)
    for urn, resource in good.resources.items():
        if resource.type == type_:
            inputs = deepcopy(dict(resource.inputs))
            options = change(inputs) or {}
            fields = {name: getattr(resource, name) for name in Resource.__slots__}
            resources[urn] = Resource(**{**fields, "inputs": inputs, **options})
    bad = Graph(good.project, good.stack, resources, good.outputs, good.lookups)

    assert rule in broken(named(sample).fleet, bad)


def _template(values: dict[str, Any]) -> Any:
    return values["values"].get("template", {"spec": {"containers": [{"env": []}]}})["spec"]


RELEASE, GROUP = "kubernetes:helm.sh/v3:Release", "aws:eks/nodeGroup:NodeGroup"
BREAKS: dict[str, tuple[str, str, Callable[[dict[str, Any]], dict[str, Any] | None]]] = {
    "launch_templates_are_safe": (
        "smallest",
        "aws:ec2/launchTemplate:LaunchTemplate",
        lambda inputs: inputs["metadataOptions"].update(httpTokens="optional"),
    ),
    "gpu_pools_are_tainted_and_scaled": ("smallest", GROUP, lambda inputs: inputs.update(taints=[])),
    "empty_groups_describe_their_nodes": ("smallest", GROUP, lambda inputs: inputs.update(tags={})),
    "providers_are_explicit": ("smallest", "aws:ec2/vpc:Vpc", lambda _: {"provider": ""}),
    "gpu_pods_tolerate_the_taint": ("smallest", RELEASE, lambda inputs: _template(inputs).update(tolerations=[])),
    "scale_sets_follow_the_controller": ("smallest", RELEASE, lambda _: {"dependencies": ()}),
    "nobody_may_do_everything": (
        "smallest",
        "aws:iam/rolePolicy:RolePolicy",
        lambda inputs: inputs.update(
            policy='{"Statement": [{"Effect": "Allow", "Action": ["ec2:RunInstances"], "Resource": "*"}]}'
        ),
    ),
    "secrets_are_wrapped": (
        "smallest",
        "kubernetes:core/v1:Secret",
        lambda inputs: inputs.update(stringData={"github_app_private_key": "<not decrypted>"}),
    ),
    "what_is_lost_for_ever_is_protected": ("smallest", GROUP, lambda _: {"protect": True}),
    "runner_pods_find_a_node": ("smallest", GROUP, lambda inputs: inputs.update(labels={})),
    "pods_are_whole": (
        "smallest",
        RELEASE,
        lambda inputs: _template(inputs)["containers"][0]["env"].extend([{"name": "A"}, {"name": "A"}]),
    ),
    "system_pods_stay_off_gpu_nodes": ("smallest", RELEASE, lambda inputs: inputs["values"].update(nodeSelector={})),
}


def test_program_reads_on_one_screen_and_knows_no_test() -> None:
    program = (ROOT / "infra/program.py").read_text(encoding="utf-8")
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "infra").rglob("*.py")))

    assert len(program.splitlines()) <= 80
    for branch in ("is_dry_run", "dry_run", "os.environ", "getenv", "PADDOCK_", "pytest", "mock"):
        assert branch not in source.replace('"PADDOCK_GPUS"', "").replace('"PADDOCK_GPU_SHARING"', ""), branch
