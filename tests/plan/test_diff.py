"""The difference of two plans: what a reviewer is told about a change of the stack file."""

from __future__ import annotations

import base64
import copy
import importlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.plan.diff import compare as comparison
from paddock.plan.diff import fields, replacement
from paddock.plan.diff.model import Diff
from paddock.plan.document.builder import build_document
from paddock.plan.document.model import PlanDocument
from paddock.plan.engine import resource_types
from paddock.plan.engine.values import SECRET
from paddock.plan.output import changes, html, markdown, pull_request
from paddock.plan.plan import build_plan
from tests.support import documents, fleets
from tests.support.explore import examples

GOLDEN = Path(__file__).parent / "golden" / "comment.md"
FLEET = fleets.fleet_data(
    pools={
        "t4": {"instances": ["g4dn.xlarge"], "fallback": "on-demand", "nodes": {"max": 3}},
        "l4": {"instances": ["g6.xlarge"], "nodes": {"max": 2}},
    },
    runners={"gpu": {"pool": "t4", "max": 5}, "gpu-l4": {"pool": "l4"}},
)
"""Two pools, one of them with two node groups, and a runner on each."""

Edit = Callable[[dict[str, Any]], object]


@cache
def _planned(text: str) -> dict[str, Any]:
    """As it comes from a file."""
    document = build_document(build_plan(fleets.stack(json.loads(text)), date(2026, 7, 21)))
    data: dict[str, Any] = json.loads(json.dumps(document.data()))
    return data


def plan(edit: Edit = lambda fleet: None) -> dict[str, Any]:
    """Return the plan of FLEET after an edit. Shared between tests, so nobody changes it."""
    fleet = copy.deepcopy(FLEET)
    edit(fleet)
    return _planned(json.dumps(fleet))


def compare(old: dict[str, Any], new: dict[str, Any]) -> Diff:
    return comparison.compare(PlanDocument.model_validate(old), PlanDocument.model_validate(new))


def comment(difference: Diff, new: dict[str, Any]) -> str:
    return pull_request.markdown(difference, PlanDocument.model_validate(new))


def edited(edit: Edit) -> Diff:
    return compare(plan(), plan(edit))


def names(difference: Diff, action: str, kind: str = "") -> set[str]:
    return {c.name for c in difference.changes if c.action == action and c.type.endswith(f":{kind}" if kind else "")}


# What an edit of the stack file does.


def test_nothing_changes_between_equal_plans() -> None:
    difference = edited(lambda fleet: None)
    assert difference.empty
    assert difference.verdict == "none"
    assert changes.text(difference) == "Changes of sample: nothing changes\n"
    assert "leaves every resource, fit, finding and price of the stack as it is" in comment(difference, plan())


@pytest.mark.parametrize("edit", [
    pytest.param(lambda f: f["pools"]["t4"].update(ami={"release": "1.35.4-20260601"}), id="another AMI release"),
    pytest.param(lambda f: f["pools"]["t4"].update(maxPods=20), id="other user data"),
    pytest.param(lambda f: f["pools"]["t4"].update(disk={"size": "300Gi"}), id="another disk"),
])  # fmt: skip
def test_what_a_node_boots_with_rolls_its_pool_and_no_other(edit: Edit) -> None:
    difference = edited(edit)
    assert {roll.pool for roll in difference.rolls} == {"t4"}
    assert {(roll.group, roll.capacity, roll.nodes, roll.kind) for roll in difference.rolls} == {
        ("t4-spot", "SPOT", 3, "roll"),
        ("t4-on-demand", "ON_DEMAND", 3, "roll"),
    }
    assert [
        (interruption.runner, interruption.jobs, interruption.pool) for interruption in difference.interruptions
    ] == [("gpu", 5, "t4")]
    assert not names(difference, "replace")
    assert not names(difference, "remove")
    assert difference.verdict == "interrupts"


def test_user_data_is_compared_inside() -> None:
    difference = edited(lambda f: f["pools"]["t4"].update(maxPods=20))
    template = next(change for change in difference.changes if change.type == resource_types.LAUNCH_TEMPLATE)
    assert {field.path.rpartition(".")[2]: (field.old, field.new) for field in template.fields} == {
        "maxPods": ("16", "20"),
        "maxPodsExpression": ("16", "20"),
    }


def test_a_new_pool_only_adds_nodes() -> None:
    difference = edited(
        lambda f: (
            f["pools"].update(a10g={"instances": ["g5.xlarge"], "nodes": {"max": 1}})
            or f["runners"].update({"gpu-a10g": {"pool": "a10g"}})
        )
    )
    assert not names(difference, "remove")
    assert not difference.rolls
    assert not difference.interruptions
    assert names(difference, "add", "NodeGroup") == {"a10g-spot"}
    assert [(change.runner, change.kind) for change in difference.scale_sets] == [("gpu-a10g", "add")]
    assert [(fit.runner, fit.old, fit.new) for fit in difference.fits] == [("gpu-a10g", None, 1)]


def test_other_labels_replace_one_scale_set() -> None:
    difference = edited(lambda f: f["runners"]["gpu"].update(labels=["self-hosted", "gpu", "new"]))
    assert names(difference, "replace") == {"gpu"}
    (scale_set,) = difference.scale_sets
    assert (scale_set.runner, scale_set.kind) == ("gpu", "replace")
    assert "jobs that ask for [self-hosted, linux, x64, gpu] wait for ever" in scale_set.says
    assert not difference.rolls


def test_the_same_labels_in_another_order_replace_nothing() -> None:
    first = plan(lambda f: f["runners"]["gpu"].update(labels=["self-hosted", "gpu", "new"]))
    second = plan(lambda f: f["runners"]["gpu"].update(labels=["new", "gpu", "self-hosted"]))
    assert not names(compare(first, second), "replace")


def test_more_runners_resize_a_scale_set() -> None:
    difference = edited(lambda f: f["runners"]["gpu"].update(max=6))
    assert [(change.runner, change.kind) for change in difference.scale_sets] == [("gpu", "resize")]
    assert "0 to 5 runners become 0 to 6" in difference.scale_sets[0].says


def test_another_pod_restarts_a_scale_set_and_ends_no_job() -> None:
    difference = edited(lambda f: f["runners"]["gpu"].update(environment={"A": "b"}))
    assert [(change.runner, change.kind) for change in difference.scale_sets] == [("gpu", "restart")]
    assert not difference.interruptions


def test_a_runner_that_goes_leaves_its_labels_without_one() -> None:
    difference = edited(lambda f: f["runners"].pop("gpu-l4"))
    assert names(difference, "remove") == {"gpu-l4"}
    assert [(change.runner, change.kind) for change in difference.scale_sets] == [("gpu-l4", "remove")]
    assert "wait for ever" in difference.scale_sets[0].says
    assert [(fit.runner, fit.old, fit.new) for fit in difference.fits] == [("gpu-l4", 1, None)]
    assert difference.verdict == "replaces"


def test_another_network_replaces_all_that_stands_in_it_and_is_refused() -> None:
    difference = edited(lambda f: f["network"].update(cidr="10.99.0.0/16"))
    assert names(difference, "replace", "Vpc") == {"network-vpc"}
    assert names(difference, "replace", "NodeGroup") == {"t4-spot", "t4-on-demand", "l4-spot", "cluster-system"}
    assert {roll.kind for roll in difference.rolls} == {"replace"}
    assert difference.verdict == "refused"
    assert any("protected" in line for line in difference.refused)
    assert any("EKS cannot move cluster" in line for line in difference.refused)
    assert "**Refused**" in comment(difference, plan())
    assert difference.following > 10


def zones(*letters: str, **network: Any) -> Edit:
    return lambda fleet: fleet.update(network={"zones": [f"us-west-2{letter}" for letter in letters], **network})


def control_plane(*letters: str) -> dict[str, Any]:
    return {**FLEET["cluster"], "zones": [f"us-west-2{letter}" for letter in letters]}


def test_new_zone_of_a_control_plane_is_refused_with_a_way_out() -> None:
    old = plan(zones("a", "b"))
    (line,) = compare(old, plan(zones("a", "b", "c"))).refused
    assert "EKS keeps cluster cluster-eksCluster in the zones it was created in, and us-west-2c would be new" in line
    assert "cluster.zones: [us-west-2a, us-west-2b]" in line

    difference = compare(old, plan(lambda f: (zones("a", "b", "c")(f), f.update(cluster=control_plane("a", "b")))))
    assert not difference.refused
    assert not names(difference, "replace", "Subnet")
    assert not names(difference, "replace", "NatGateway")
    assert "network-private-us-west-2c" in names(difference, "add", "Subnet")


def test_zone_that_a_control_plane_loses_is_refused() -> None:
    (line,) = compare(plan(zones("a", "b", "c")), plan(zones("a", "c"))).refused
    assert "us-west-2b would go" in line
    assert "pools.<name>.zones" in line


def test_zone_of_nodes_alone_comes_and_goes_without_moving_a_subnet() -> None:
    def nodes_in(*letters: str) -> Edit:
        return lambda f: (zones(*letters, nat="per-zone")(f), f.update(cluster=control_plane("a", "c")))

    for old, new in (("acd", "ac"), ("ac", "abcd"), ("abcd", "acd")):
        difference = compare(plan(nodes_in(*old)), plan(nodes_in(*new)))
        assert not difference.refused
        assert not names(difference, "replace", "Subnet")


def test_subnet_created_where_another_still_stands_is_refused() -> None:
    old = copy.deepcopy(plan(zones("a", "c")))
    for resource in old["resources"]:
        # As the layout was that counted zones instead of placing letters.
        if resource["type"] == resource_types.SUBNET and resource["name"] == "network-private-us-west-2c":
            resource["inputs"]["cidrBlock"] = "10.0.64.0/18"
    (line,) = compare(old, plan(zones("a", "b", "c"))).refused[1:]
    assert "EC2 refuses subnets that overlap" in line
    assert "network-private-us-west-2c 10.0.64.0/18" in line
    kept = zones("a", "c", privateSubnets=["10.0.0.0/18", "10.0.64.0/18"])
    assert compare(old, plan(kept)).verdict == "none"


def test_other_adopted_subnets_say_what_a_plan_cannot_know() -> None:
    def adopted(*subnets: str) -> Edit:
        return lambda f: f.update(network={"existing": {"vpc": "vpc-0123456789abcdef0", "subnets": list(subnets)}})

    first, second, third = (f"subnet-0123456789abcdef{digit}" for digit in "012")
    difference = compare(plan(adopted(first, second)), plan(adopted(first, third)))
    assert any("not in a plan" in note for note in difference.notes)


def test_other_instance_types_replace_the_node_groups() -> None:
    difference = edited(lambda f: f["pools"]["t4"].update(instances=["g4dn.xlarge", "g4dn.2xlarge"]))
    firsts = {change.name for change in difference.changes if change.action == "replace"}
    assert firsts == {"t4-spot", "t4-on-demand"}


def test_tags_roll_every_node_for_they_stand_in_the_launch_template() -> None:
    difference = edited(lambda f: f.update(tags={"team": "x"}))
    assert {roll.pool for roll in difference.rolls} == {"t4", "l4", "system"}
    assert any("default tags" in note for note in difference.notes)
    assert not names(difference, "replace")


def test_kubernetes_goes_one_minor_version_at_a_time_and_never_back() -> None:
    new = copy.deepcopy(plan())
    cluster = next(resource for resource in new["resources"] if resource["type"] == resource_types.CLUSTER)
    for version, words in (("1.37", "skip a Kubernetes minor version"), ("1.34", "go back")):
        cluster["inputs"]["version"] = version
        assert any(words in line for line in compare(plan(), new).refused)
    cluster["inputs"]["version"] = "1.36"
    assert not compare(plan(), new).refused


def test_what_the_program_ignores_is_no_change() -> None:
    new = copy.deepcopy(plan())
    group = next(resource for resource in new["resources"] if resource["name"] == "t4-spot")
    group["inputs"]["scalingConfig"]["desiredSize"] = 3
    assert compare(plan(), new).empty


def test_a_field_without_a_fact_is_unknown() -> None:
    new = copy.deepcopy(plan())
    group = next(resource for resource in new["resources"] if resource["name"] == "t4-spot")
    group["inputs"]["brandNew"] = True
    difference = compare(plan(), new)
    assert [change.name for change in difference.unsure if not change.follows] == ["t4-spot"]
    assert changes.headline(difference).startswith("may replace 1, interrupts")
    assert difference.rolls[0].kind == "unknown"
    assert [(interruption.runner, interruption.certain) for interruption in difference.interruptions] == [
        ("gpu", False)
    ]
    assert "what a change of brandNew does is unknown" in changes.text(difference)


def test_a_removed_protection_is_shown() -> None:
    new = copy.deepcopy(plan())
    next(resource for resource in new["resources"] if resource["type"] == resource_types.VPC)["protect"] = False
    (change,) = compare(plan(), new).changes
    assert [(field.path, field.old, field.new) for field in change.fields] == [("(protect)", "true", "false")]


def test_a_replaced_provider_takes_all_it_made_with_it() -> None:
    new = copy.deepcopy(plan())
    provider = next(resource for resource in new["resources"] if resource["name"] == "cluster-kubernetes")
    provider["inputs"]["clusterIdentifier"] = "another"
    difference = compare(plan(), new)
    assert {"gpu", "gpu-l4", "arc"} <= names(difference, "replace")


def test_another_stand_in_for_the_same_resource_is_no_change() -> None:
    old, new = copy.deepcopy(plan()), copy.deepcopy(plan())
    for document_, arn in ((old, "network-flow"), (new, "log-group:network-flow")):
        log = next(resource for resource in document_["resources"] if resource["type"] == "aws:ec2/flowLog:FlowLog")
        log["inputs"]["logDestination"] = f"arn:aws:logs:us-west-2:000000000000:{arn}"
    assert compare(old, new).empty


def test_a_policy_changes_by_its_statements_not_their_order() -> None:
    def key(*statements: Mapping[str, str]) -> dict[str, Any]:
        return _document([_resource("aws:kms/key:Key", "a", {"policy": json.dumps({"Statement": statements})})])

    first, second = {"Action": "kms:*", "Resource": "*"}, {"Resource": "*", "Action": "kms:*"}
    assert compare(key(first), key(second)).empty
    more = {"Action": "kms:Decrypt", "Resource": "*", "Condition": "x" * 60}
    (change,) = compare(key(first), key(first, more)).changes
    assert [(field.path, field.old) for field in change.fields] == [("policy(json).Statement[]", None)]


def test_findings_that_come_and_go() -> None:
    old, new = copy.deepcopy(plan()), copy.deepcopy(plan())
    here = {"id": "FIT002", "severity": "warning", "subject": "runners.gpu", "message": "old words", "fix": ""}
    old["findings"] = [here, {**here, "id": "FIT009"}]
    new["findings"] = [{**here, "message": "new words"}, {**here, "id": "FIT001", "severity": "error"}]
    difference = compare(old, new)
    assert [finding.id for finding in difference.new_findings] == ["FIT001"]
    assert [finding.id for finding in difference.fixed_findings] == ["FIT009"]


# Cost.


def _cost(low: float | None, high: float | None, fixed: float | None) -> dict[str, Any]:
    low_, high_, fixed_ = ({"value": value, "unit": "USD/month"} for value in (low, high, fixed))
    return {"fixed": {"total": fixed_}, "month": {"low": low_, "expected": high_, "high": high_}}


@pytest.mark.parametrize(("cost", "month", "fixed"), [
    (_cost(10, 20.5, 73), (10, 20.5), 73),
    (_cost(3, 2, 0), (2, 3), 0),
    (_cost(None, 1, None), (None, 1), None),
    (None, (None, None), None),
])  # fmt: skip
def test_the_cost_of_a_month_is_a_range(
    cost: dict[str, Any] | None, month: tuple[float | None, float | None], fixed: float | None
) -> None:
    change = compare(_document([]), _document([], cost=cost)).cost
    assert (change.low.old, change.high.old, change.fixed.old) == (None, None, None)
    assert ((change.low.new, change.high.new), change.fixed.new) == (month, fixed)


def _on_demand(fleet: dict[str, Any]) -> None:
    fleet["pools"]["l4"]["capacity"] = "on-demand"


def _without_l4(fleet: dict[str, Any]) -> None:
    del fleet["pools"]["l4"], fleet["runners"]["gpu-l4"]


def test_another_way_to_buy_changes_the_cost_by_pool_and_runner() -> None:
    new = plan(_on_demand)
    difference = compare(plan(), new)
    cost = difference.cost
    assert not cost.fixed.differs
    assert [(part.name, part.action) for part in cost.pools] == [("l4", "change")]
    assert [part.name for part in cost.runners] == ["gpu-l4"]
    growth = (cost.expected.new or 0) - (cost.expected.old or 0)
    assert growth > 0
    for amount in (cost.pools[0].expected, cost.runners[0].jobs):
        assert amount is not None
        assert (amount.new or 0) - (amount.old or 0) == pytest.approx(growth, abs=0.01)
    document = PlanDocument.model_validate(new)
    outputs = (changes.text(difference), comment(difference, new), markdown.render(document, difference))
    for output in (*outputs, html.render(document, difference)):
        for part in ("a month expected", "pool l4 a month", "runner gpu-l4 an hour"):
            assert part in output


def test_a_new_pool_costs_nothing_before_and_a_removed_one_after() -> None:
    there, back = compare(plan(_without_l4), plan()).cost, compare(plan(), plan(_without_l4)).cost
    assert [(part.name, part.action, part.expected.old) for part in there.pools] == [("l4", "add", 0)]
    assert [(part.name, part.action) for part in back.runners] == [("gpu-l4", "remove")]
    assert back.runners[0].jobs is not None
    assert back.runners[0].jobs.new == 0


def test_the_parts_of_a_month_add_up_to_it() -> None:
    cost = plan()["cost"]
    system = next(item for item in cost["fixed"]["items"] if item["item"] == "system nodes")
    for name in ("low", "expected", "high"):
        parts = [pool["month"][name]["value"] for pool in cost["pools"]]
        if name == "high":  # with four system nodes in place of two
            parts.append(system["monthly"]["value"])
        assert cost["fixed"]["total"]["value"] + sum(parts) == pytest.approx(cost["month"][name]["value"], abs=0.01)


def test_a_plan_of_an_older_version_has_no_months_of_pools() -> None:
    old = copy.deepcopy(plan())
    for part in (*old["cost"]["pools"], *old["cost"]["runners"]):
        del part["month"]
    cost = compare(old, plan(_on_demand)).cost
    assert cost.pools == ()
    assert [(part.name, part.jobs) for part in cost.runners] == [("gpu-l4", None)]


# Renames.


def _rename(kind: str, old: str, new: str) -> Edit:
    def edit(fleet: dict[str, Any]) -> None:
        fleet[kind] = {new if name == old else name: part for name, part in fleet[kind].items()}
        for runner in fleet["runners"].values():
            runner["pool"] = new if kind == "pools" and runner["pool"] == old else runner["pool"]

    return edit


def _all(*edits: Edit) -> Edit:
    return lambda fleet: [edit(fleet) for edit in edits]


def test_a_renamed_pool_is_one_line_with_its_consequences() -> None:
    difference = edited(_rename("pools", "t4", "tesla"))
    assert [(rename.kind, rename.old, rename.new) for rename in difference.renames] == [("pool", "t4", "tesla")]
    assert (difference.changes, difference.rolls, difference.interruptions, difference.scale_sets) == ((),) * 4
    assert (difference.new_findings, difference.fixed_findings, difference.fits) == ((),) * 3
    assert not difference.cost.differs
    assert difference.verdict == "replaces"
    (line,) = [line for line in changes.text(difference).splitlines() if "tesla" in line]
    for consequence in ("2 node groups", "at most 6, are drained", "5 running jobs of gpu end", "3 removed"):
        assert consequence in line


def test_a_renamed_runner_is_one_line_with_its_labels() -> None:
    difference = edited(_rename("runners", "gpu", "fast"))
    assert [(rename.kind, rename.old, rename.new) for rename in difference.renames] == [("runner", "gpu", "fast")]
    (line,) = [line for line in changes.text(difference).splitlines() if "fast" in line]
    assert "running jobs may finish" in line
    assert "jobs that ask for [self-hosted, linux, x64, gpu] wait for ever" in line


def test_a_pool_and_its_runner_are_renamed_together() -> None:
    difference = edited(_all(_rename("pools", "t4", "tesla"), _rename("runners", "gpu", "fast")))
    assert [rename.kind for rename in difference.renames] == ["pool", "runner"]
    assert (difference.changes, difference.outputs, difference.fits) == ((),) * 3


@pytest.mark.parametrize("content", [{"nodes": {"max": 4}}, {"maxPods": 20}, {"labels": {"tier": "a"}}])
def test_a_pool_with_other_content_is_no_rename(content: dict[str, Any]) -> None:
    difference = edited(_all(_rename("pools", "t4", "tesla"), lambda f: f["pools"]["tesla"].update(content)))
    assert difference.renames == ()
    assert names(difference, "remove", "NodeGroup") == {"t4-on-demand", "t4-spot"}


def test_every_renderer_begins_with_the_changes() -> None:
    difference, new = edited(_on_demand), PlanDocument.model_validate(plan(_on_demand))
    page, text = html.render(new, difference), markdown.render(new, difference)
    assert page.index('id="changes"') < page.index('id="fleet"')
    assert text.index("a month expected") < text.index("### Pools")


# The comment.


def _document(resources: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    empty = {"schema": "paddock.plan/1", "stack": "prod", "project": "paddock", "fleet": {"region": "us-west-2"}}
    return {**empty, "resources": resources, "outputs": {}, "lookups": [], "fit": [], "findings": [], **more}


def _resource(type_: str, name: str, inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    urn, parent = f"urn:pulumi:prod::paddock::{type_}::{name}", "urn:pulumi:prod::paddock::paddock:infra:GpuPool::t4"
    about = {"urn": urn, "type": type_, "name": name, "parent": parent, "custom": True, "inputs": inputs}
    return documents.resource(**about | more)


def _example() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a change with something of everything."""

    def documents(new: bool) -> dict[str, Any]:
        user_data = f"[settings.kubernetes]\nmax-pods = {8 + new}\n"
        template = _resource(
            resource_types.LAUNCH_TEMPLATE, "t4", {"userData": base64.b64encode(user_data.encode()).decode()}
        )
        labels = {"paddock.dev/pool": "t4"}
        types = ["g4dn.xlarge", "g4dn.2xlarge"][: 1 + new]
        groups = [
            _resource(
                resource_types.NODE_GROUP,
                f"t4-{kind.lower().replace('_', '-')}",
                {"capacityType": kind, "labels": labels, "scalingConfig": {"maxSize": 4}, **more},
                propertyDependencies={"launchTemplate": [template["urn"]]},
            )
            for kind, more in (("SPOT", {}), ("ON_DEMAND", {"instanceTypes": types}))
        ]
        follows = {"clusterName": [groups[1]["urn"]]}
        addon = _resource("aws:eks/addon:Addon", "t4-addon", {}, propertyDependencies=follows)
        chart = "oci://ghcr.io/actions/actions-runner-controller-charts/gha-runner-scale-set"
        release = _resource(
            resource_types.RELEASE,
            "gpu",
            {"chart": chart, "values": {"scaleSetLabels": ["gpu", "a|b"[: 1 + 2 * new]], "maxRunners": 6}},
            parent="urn:pulumi:prod::paddock::paddock:infra:RunnerScaleSet::gpu",
        )
        other = _resource("aws:kms/key:Key", "new" if new else "old", {"description": "`code` @octocat"}, protect=True)
        finding = {"id": "FIT001", "severity": "error", "subject": "runners.gpu"}
        finding |= {"message": "see <b> #1 @octocat", "fix": "*less*"}
        return _document(
            [template, *groups, addon, release, other],
            fit=[{"runner": "gpu", "pool": "t4", "instance": "g4dn.xlarge", "per_node": 1, "limiting": "gpu"}],
            findings=[finding] if new else [{**finding, "id": "FIT009"}],
            outputs={"registry": "new" if new else "old"},
            cost=_cost(100, 2000, 74) if new else _cost(73, 1900.5, 73),
        )

    return documents(False), documents(True)


def test_the_comment_of_a_change_with_everything() -> None:
    old, new = _example()
    assert comment(compare(old, new), new) == GOLDEN.read_text(encoding="utf-8")


def test_only_steps_that_were_not_there_are_new() -> None:
    known = {"id": "QUO001", "subject": "pools.t4", "text": "Ask for 40 vCPU", "command": "aws ask"}
    more = {**known, "text": "Ask for 80 vCPU"}
    new = _document([], before_up=[known, more])
    difference = compare(_document([], before_up=[known]), new)
    assert [step.text for step in difference.new_steps] == ["Ask for 80 vCPU"]
    for output in (changes.text(difference), comment(difference, new)):
        assert "Ask for 80 vCPU" in output
        assert "Ask for 40 vCPU" not in output


def test_a_huge_comment_is_cut_and_counts_what_is_missing() -> None:
    old = _document([])
    name = "-\N{GRINNING FACE}" + "x" * 900
    new = _document([_resource("aws:kms/key:Key", f"key-{n}{name}", {"policy": "y" * 900}) for n in range(900)])
    for difference, document_ in ((compare(old, new), new), (compare(new, old), old)):
        body = comment(difference, document_)
        assert len(body.encode()) <= pull_request.LIMIT
        assert "more are not shown" in body or "too long" in body
        assert body.count("```") % 2 == 0


@pytest.mark.parametrize(
    "value", ["`", "``` ```", "a|b", "@octocat", "<script>", "#12", "\n", "a\x1b[31mb", "\u202e", "\ud800"]
)
def test_values_stay_values_in_markdown(value: str) -> None:
    for text in (pull_request.code(value), pull_request.escape(value)):
        text.encode()
        assert "\n" not in text
        assert "\x1b" not in text
        assert not re.search(r"(?<!\\)\|", text)
    assert "@o" not in pull_request.escape(value)
    assert "<s" not in pull_request.escape(value).replace("\\<", "")


# Secrets.


@examples(10, 100)
@given(st.text(alphabet="abcdefghijkl", min_size=12, max_size=20), st.booleans())
def test_a_secret_is_never_shown(secret: str, reverse: bool) -> None:
    inputs: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        (resource_types.SECRET, {"stringData": {"a": secret}}, {"stringData": {"a": SECRET}}),
        (resource_types.SECRET, {"data": {"a": secret}}, {}),
        (resource_types.RELEASE, {"values": {"password": secret}}, {"values": {"password": secret[::-1] + "x"}}),
        (
            resource_types.RELEASE,
            {"values": {"env": [{"name": "API_TOKEN", "value": secret}]}},
            {"values": {"env": []}},
        ),
        (resource_types.RELEASE, {"values": {"env": [[{"name": "API_TOKEN", "value": secret}]]}}, {"values": {}}),
        (resource_types.RELEASE, {"values": {"a": json.dumps({"token": secret})}}, {"values": {"a": "{}"}}),
        (resource_types.RELEASE, {"values": {"a": SECRET}}, {"values": {"a": secret}}),
        (
            resource_types.LAUNCH_TEMPLATE,
            {"userData": f"#!/bin/sh\nTOKEN={secret}\n"},
            {"userData": "#!/bin/sh\ntrue\n"},
        ),
        (resource_types.LAUNCH_TEMPLATE, {"userData": f"x ghp_{secret}{secret}"}, {"userData": "x"}),
    ]
    for type_, before, after in inputs:
        pair = [
            _document([_resource(type_, "x", properties)])
            for properties in ((after, before) if reverse else (before, after))
        ]
        difference = compare(*pair)
        output = changes.text(difference) + comment(difference, pair[1]) + json.dumps(difference.model_dump())
        assert difference.changes
        assert secret not in output, (type_, before)
        assert secret[::-1] not in output


# Properties.

_SPECIAL = [
    "a:\n- b\n",
    '{"a": [1]}',
    base64.b64encode(b"[a]\nb = 1\n# some more\n").decode(),
    "MIME-Version: 1.0\n\n",
    "k: &a [*a]\n",
    "#!\nx",
]
_scalars = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, width=16) | st.text(max_size=8)
_names = st.sampled_from(["name", "a", "b.c", "token"])
_values = st.recursive(
    _scalars | st.sampled_from(_SPECIAL),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(_names, children, max_size=3),
    max_leaves=8,
)
_types = st.sampled_from([*replacement.TYPES, "made:up:Type"])


@st.composite
def _documents(draw: st.DrawFn) -> dict[str, Any]:
    kinds = draw(st.lists(st.tuples(_types, st.sampled_from("abc")), max_size=5, unique=True))
    keys = st.sampled_from(["launchTemplate", "name", "values", "data", "subnetIds", "version", "labels", "metadata"])
    urns = [f"urn:pulumi:prod::paddock::{type_}::{name}" for type_, name in kinds]
    resources = [
        _resource(
            type_,
            name,
            draw(st.dictionaries(keys, _values, max_size=3)),
            propertyDependencies=draw(st.dictionaries(keys, st.lists(st.sampled_from(urns), max_size=2), max_size=2)),
            custom=draw(st.booleans()),
            protect=draw(st.booleans()),
            ignoreChanges=draw(st.lists(keys, max_size=1)),
            provider=draw(st.sampled_from(["", *urns])),
        )
        for type_, name in kinds
    ]
    outputs = draw(st.dictionaries(st.text(max_size=3), _values, max_size=2))
    amounts = st.none() | st.floats(0, 1e6)
    cost = draw(st.none() | st.builds(_cost, amounts, amounts, amounts))
    return _document(resources, outputs=outputs, cost=cost)


@examples(25, 100)
@given(_documents())
def test_a_plan_does_not_differ_from_itself(document: dict[str, Any]) -> None:
    assert compare(document, copy.deepcopy(document)).empty


@examples(40, 200)
@given(_documents(), _documents())
def test_back_is_the_mirror_of_forth(old: dict[str, Any], new: dict[str, Any]) -> None:
    there, back = compare(old, new), compare(new, old)
    assert names(there, "add") == names(back, "remove")
    assert names(there, "remove") == names(back, "add")
    assert there.cost.low.old == back.cost.low.new
    json.dumps(there.model_dump())
    changes.text(there).encode()
    assert len(comment(there, new).encode()) <= pull_request.LIMIT


@examples(60, 300)
@given(_values, _values)
def test_any_two_values_differ_or_do_not(old: Any, new: Any) -> None:
    changes = fields.compare({"x": old}, {"x": new})
    assert bool(changes) == (json.dumps(old, sort_keys=True) != json.dumps(new, sort_keys=True)) or isinstance(old, str)
    assert not fields.compare({"x": old}, {"x": old})


# The facts.


def _arguments(type_: str) -> type | None:
    package, module, kind = type_.split(":")
    if package == "aws":
        module_ = importlib.import_module(f"pulumi_aws.{module.split('/')[0]}")
    elif package == "kubernetes":
        group, _, version = module.partition("/")
        path = {"helm.sh": "helm", "networking.k8s.io": "networking", "rbac.authorization.k8s.io": "rbac"}
        folder = path.get(group, group.split(".")[0])
        module_ = importlib.import_module(f"pulumi_kubernetes.{folder}.{version}")
    else:
        return getattr(importlib.import_module(f"pulumi_{kind}"), "ProviderArgs", None)
    return getattr(module_, f"{kind}Args", None) or getattr(module_, f"{kind}InitArgs", None)


@pytest.mark.parametrize("type_", replacement.TYPES)
def test_every_field_of_the_facts_is_an_argument_of_the_sdk(type_: str) -> None:
    arguments = _arguments(type_)
    assert arguments is not None
    hints: Mapping[str, Any] = vars(arguments)["__init__"].__annotations__
    names_ = {re.sub(r"_(\w)", lambda part: part[1].upper(), name): hint for name, hint in hints.items()}
    names_ |= {name.replace("Crds", "CRDs").replace("Ip", "IP"): hint for name, hint in names_.items()}
    type_fields = replacement.TYPES[type_]
    assert not type_fields.replace & type_fields.update
    for path in type_fields.replace | type_fields.update:
        first, _, rest = path.partition(".")
        assert first in names_ or first in {"disableCRDHooks"}, f"{type_} has no {first}"
        nested = re.search(r"['\"](?:[\w.]*\.)?(\w+Args)['\"]", str(names_.get(first, "")))
        if rest and nested:
            module = importlib.import_module(arguments.__module__.rpartition(".")[0])
            part = getattr(module, nested[1], None)
            if part is not None:
                inner = {re.sub(r"_(\w)", lambda m: m[1].upper(), name) for name in part.__init__.__annotations__}
                assert {rest, rest.replace("IP", "Ip")} & inner, f"{type_} has no {path}"


def test_the_longest_path_decides() -> None:
    assert replacement.effect(resource_types.NODE_GROUP, ("launchTemplate", "id")) == "replace"
    assert replacement.effect(resource_types.NODE_GROUP, ("launchTemplate", "version")) == "update"
    assert replacement.effect(resource_types.NODE_GROUP, ("launchTemplate",)) == "unknown"
    assert replacement.effect("kubernetes:example.com/v1:Any", ("metadata", "name")) == "replace"
    assert replacement.effect("made:up:Type", ("a",)) == "unknown"


def test_every_type_of_the_program_is_known() -> None:
    types = {r.type for name in fleets.EXAMPLES for r in fleets.graph(name).resources.values() if r.custom}
    assert {type_ for type_ in types if type_.startswith("aws:")} <= set(replacement.TYPES)
