"""Refusals of AWS, each with the order that works: by `inv plan --against`, and of edited plans."""

from __future__ import annotations

import base64
import copy
import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.plan.diff import refusals
from paddock.plan.diff.compare import compare
from paddock.plan.diff.model import Diff
from paddock.plan.document.model import PlanDocument
from paddock.plan.engine import resource_types as types
from paddock.tasks import program
from tests.plan.test_diff import edited, names, plan

STACK = """\
config:
  aws:region: eu-central-1
  paddock:fleet:
    github: {url: https://github.com/octo, app: {id: "11111", installation: "222"}}
    cluster: CLUSTER
    pools:
      l4: {instances: [g6.xlarge, g6.2xlarge], POOL}
    runners:
      gpu: {pool: l4}
"""
CLUSTER = 'version: "1.36", endpoint: {allow: [198.51.100.0/24]}'
POOL = "nodes: {min: 1, max: 6}"
OWN = 'nodes: {max: 6}, ami: {custom: ami-0123456789abcdef0, driver: 580.159.03, kubernetes: "1.35"}'

Against = Callable[..., tuple[int, Diff]]


@pytest.fixture
def against(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Against]:
    """Plan one stack file, then another against it: as two calls of `inv plan`. Returns exit code and difference."""
    for name in ("Pulumi.yaml", "paddock", "infra", "ami", "runners"):
        (tmp_path / name).symlink_to(root / name)
    monkeypatch.setenv("PADDOCK_ROOT", str(tmp_path))
    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))

    def inv(cluster: str, pool: str, *words: str) -> int:
        text = STACK.replace("CLUSTER", f"{{{cluster}}}").replace("POOL", pool)
        (tmp_path / "Pulumi.us.yaml").write_text(text)
        return program.main(["inv", "plan", "--stack", "us", *words])

    def run(*, old: tuple[str, str] = (CLUSTER, POOL), new: tuple[str, str]) -> tuple[int, Diff]:
        assert inv(*old, "--json", "old.json") == 0
        code = inv(*new, "--against", "old.json", "--json", "new.json")
        capsys.readouterr()
        document: dict[str, Any] = json.loads((tmp_path / "new.json").read_text())
        return code, Diff.model_validate_json(json.dumps(document["diff"]))

    yield run
    gc.enable()  # which the command switches off for its own short process


def test_a_minimum_above_the_desired_size_needs_a_command_first(against: Against) -> None:
    code, diff = against(new=(CLUSTER, "nodes: {min: 3, max: 7}"))
    (line,) = diff.refused
    assert (code, diff.verdict) == (1, "refused")
    assert "EKS refuses a minimum of 3 for l4-spot while fewer nodes are desired" in line
    assert "aws eks update-nodegroup-config --region eu-central-1 --cluster-name paddock-us " in line
    assert "--nodegroup-name l4-spot-XXXXXXX --scaling-config minSize=3,maxSize=7,desiredSize=3" in line
    assert f"read {refusals.data()['as_of']})" in line


def test_a_lower_maximum_depends_on_what_runs(against: Against) -> None:
    code, diff = against(new=(CLUSTER, "nodes: {min: 1, max: 4}"))
    assert (code, diff.refused) == (0, ())
    assert any("EKS refuses a maximum of 4 for l4-spot while more" in note for note in diff.notes)


def test_a_maximum_below_the_old_minimum_is_refused(against: Against) -> None:
    code, diff = against(old=(CLUSTER, "nodes: {min: 4, max: 6}"), new=(CLUSTER, "nodes: {max: 2}"))
    assert code == 1
    assert "minSize=0,maxSize=2,desiredSize=2" in diff.refused[0]


def test_more_nodes_at_most_are_taken(against: Against) -> None:
    code, diff = against(new=(CLUSTER, "nodes: {min: 0, max: 9}"))
    assert (code, diff.refused, diff.verdict) == (0, (), "safe")


def test_a_skipped_minor_is_refused_with_the_next_one(against: Against) -> None:
    code, diff = against(old=(CLUSTER.replace("1.36", "1.34"), POOL), new=(CLUSTER, POOL))
    assert code == 1
    assert 'EKS cannot skip a Kubernetes minor version: 1.34 to 1.36. Write cluster.version: "1.35"' in diff.refused[0]


def test_the_way_back_of_a_control_plane_begins_with_its_nodes(against: Against) -> None:
    code, diff = against(new=(CLUSTER.replace("1.36", "1.35"), POOL))
    back = next(line for line in diff.refused if "Within seven days" in line)
    nodes, control_plane = back.index("aws eks update-nodegroup-version"), back.index("aws eks update-cluster-version")
    assert code == 1
    assert nodes < control_plane < back.index("then pulumi up")


def test_a_control_plane_goes_before_images_of_ones_own(against: Against) -> None:
    code, diff = against(old=(CLUSTER.replace("1.36", "1.35"), OWN), new=(CLUSTER, OWN))
    assert (code, diff.refused) == (0, ())
    assert {roll.pool for roll in diff.rolls} == {"system"}
    (finding,) = (finding for finding in diff.new_findings if finding.id == "CMP005")
    assert finding.severity == "warning"


def test_the_image_that_follows_rolls_the_pool_in_place(against: Against) -> None:
    code, diff = against(old=(CLUSTER, OWN), new=(CLUSTER, OWN.replace("1.35", "1.36").replace("def0", "def1")))
    assert (code, [roll.kind for roll in diff.rolls], [roll.pool for roll in diff.rolls]) == (0, ["roll"], ["l4"])
    assert "CMP005" in {finding.id for finding in diff.fixed_findings}


def test_an_image_of_ones_own_takes_a_new_node_group(against: Against) -> None:
    _, diff = against(old=(CLUSTER, "nodes: {max: 6}"), new=(CLUSTER, OWN))
    assert names(diff, "replace", "NodeGroup") == {"l4-spot"}


@pytest.mark.parametrize(("old", "made"), [("nodes: {max: 6}, zones: [eu-central-1a]", "replaced"), (None, "new")])
def test_a_pool_of_an_older_release_cannot_be_made(old: str | None, made: str, against: Against) -> None:
    pinned = "nodes: {max: 6}, ami: {release: 1.35.6-20260714}"
    before = f"{old}, ami: {{release: 1.35.6-20260714}}" if old else "capacity: on-demand, nodes: {max: 6}"
    code, diff = against(old=(CLUSTER, before), new=(CLUSTER, pinned))
    assert code == 1
    assert f"l4-spot, which is {made}, would be of 1.35 where the control plane runs 1.36" in diff.refused[0]


def test_an_older_release_stays_until_what_it_boots_changes(against: Against) -> None:
    pinned = "nodes: {max: 6}, ami: {release: 1.35.6-20260714}"
    older = CLUSTER.replace("1.36", "1.35")
    assert against(old=(older, pinned), new=(CLUSTER, pinned))[1].refused == ()
    _, diff = against(old=(CLUSTER, pinned), new=(CLUSTER, f"{pinned}, maxPods: 20"))
    assert any("l4-spot stays at Kubernetes 1.35, and its launch template changes" in note for note in diff.notes)


def test_a_cluster_in_extended_support_stays_there(against: Against) -> None:
    old, new = (f'version: "1.33", endpoint: {{allow: [198.51.100.0/24]}}, support: {kind}' for kind in
                ("extended", "standard"))  # fmt: skip
    _, diff = against(old=(old, POOL), new=(new, POOL))
    assert "1.33 left standard support on 2026-07-29" in diff.refused[0]


def test_a_principal_under_another_key_is_refused(against: Against) -> None:
    access = "access: {KEY: {principal: 'arn:aws:iam::123456789012:role/Ops', policy: cluster-admin}}"
    old, new = (f"{CLUSTER}, {access.replace('KEY', key)}" for key in ("ops", "operators"))
    code, diff = against(old=(old, POOL), new=(new, POOL))
    assert code == 1
    assert "cluster-operators would be made while cluster-ops still has its principalArn" in diff.refused[0]
    _, diff = against(new=(new, POOL))
    assert any("If one of them is who deployed first" in note for note in diff.notes)


def test_a_policy_with_other_namespaces_comes_after_it_went() -> None:
    def with_access(*namespaces: str) -> dict[str, Any]:
        ops = {"principal": "arn:aws:iam::123456789012:role/Ops", "policy": "edit", "namespaces": list(namespaces)}
        return plan(lambda fleet: fleet["cluster"].update(access={"ops": ops}))

    old, new = (PlanDocument.model_validate(with_access(*spaces)) for spaces in (("a",), ("a", "b")))
    associations = [r for r in new.resources if r.type == types.ACCESS_POLICY_ASSOCIATION and "ops" in r.name]
    assert [association.delete_before_replace for association in associations] == [True]
    assert names(compare(old, new), "replace") == {association.name for association in associations}


def test_another_service_range_is_another_cluster(against: Against) -> None:
    _, diff = against(new=(f"{CLUSTER}, serviceCidr: 10.200.0.0/16", POOL))
    assert any("EKS keeps kubernetesNetworkConfig.serviceIpv4Cidr of cluster" in line for line in diff.refused)


# Of plans that this program does not write.


def changed(type_: str, inputs: dict[str, Any], before: dict[str, Any] | None = None) -> Diff:
    """Return the difference where the first resource of a type has other inputs."""
    old, new = copy.deepcopy(plan()), copy.deepcopy(plan())
    for document, more in ((old, before or {}), (new, inputs)):
        next(resource for resource in document["resources"] if resource["type"] == type_)["inputs"] |= more
    return compare(PlanDocument.model_validate(old), PlanDocument.model_validate(new))


@pytest.mark.parametrize(("before", "inputs", "words"), [
    ({}, {"vpcConfig": {"endpointPublicAccess": False, "endpointPrivateAccess": False}}, "both would be off"),
    ({}, {"accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"}}, "API to API_AND_CONFIG_MAP is refused"),
    ({"accessConfig": {"authenticationMode": "CONFIG_MAP"}}, {}, "CONFIG_MAP to API is refused"),
    ({}, {"version": "1.33"}, "cannot go back from 1.35 to 1.33"),
    ({}, {"encryptionConfig": {}}, "EKS keeps encryptionConfig"),
])  # fmt: skip
def test_what_eks_refuses_of_a_cluster(before: dict[str, Any], inputs: dict[str, Any], words: str) -> None:
    assert any(words in line for line in changed(types.CLUSTER, inputs, before).refused)


def test_authentication_goes_one_step_ahead() -> None:
    before = {"accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"}}
    assert not changed(types.CLUSTER, {}, before).refused


def test_nodes_older_than_the_old_control_plane_are_named() -> None:
    notes = changed(types.NODE_GROUP, {}, {"version": "1.34"}).notes
    assert not any("older than" in note for note in notes)
    old, new = copy.deepcopy(plan()), copy.deepcopy(plan())
    for document, version in ((old, "1.35"), (new, "1.36")):
        for resource in document["resources"]:
            if resource["type"] == types.NODE_GROUP:
                resource["inputs"]["version"] = "1.34" if resource["name"] == "t4-spot" else "1.35"
            elif resource["type"] == types.CLUSTER:
                resource["inputs"]["version"] = version
    notes = compare(PlanDocument.model_validate(old), PlanDocument.model_validate(new)).notes
    assert any("node groups t4-spot are older than 1.35" in note for note in notes)


def test_a_vpc_cni_that_skips_minors_has_its_steps() -> None:
    def cni(version: str) -> dict[str, Any]:
        return {"addonName": "vpc-cni", "addonVersion": version}

    (note,) = changed(types.ADDON, cni("v1.23.1-eksbuild.1"), cni("v1.20.4-eksbuild.2")).notes
    assert "go through 1.21, 1.22 with aws eks update-addon" in note
    assert not changed(types.ADDON, cni("v1.23.1-eksbuild.1"), cni("v1.22.4-eksbuild.2")).notes


def test_user_data_beyond_what_ec2_takes_is_refused() -> None:
    most, more = (base64.b64encode(b"a" * size).decode() for size in (refusals.USER_DATA, refusals.USER_DATA + 1))
    assert not changed(types.LAUNCH_TEMPLATE, {"userData": most}).refused
    assert "is 16385 bytes" in changed(types.LAUNCH_TEMPLATE, {"userData": more}).refused[0]


def test_a_subnet_that_goes_may_be_held() -> None:
    notes = edited(lambda fleet: fleet.update(network={"zones": ["us-west-2a", "us-west-2b"], "nat": "none"})).notes
    assert any("network-public-us-west-2a are deleted at the end" in note for note in notes)


def test_an_own_image_of_an_older_plan_is_not_replaced() -> None:
    (change,) = changed(types.NODE_GROUP, {"amiType": "CUSTOM"}, {"amiType": None}).changes
    assert change.action == "replace"
    old, new = copy.deepcopy(plan()), copy.deepcopy(plan())
    groups = [next(r for r in document["resources"] if r["name"] == "t4-spot") for document in (old, new)]
    del groups[0]["inputs"]["amiType"]
    groups[1]["inputs"]["amiType"] = "CUSTOM"
    difference = compare(PlanDocument.model_validate(old), PlanDocument.model_validate(new))
    assert [change.action for change in difference.changes] == ["change"]


def test_every_limit_of_aws_has_a_source() -> None:
    for key, row in refusals.data()["rows"].items():
        assert row["kind"] in ("refused", "note"), key
        assert row["source"], key
    assert set(refusals.data()["unique"]) <= set(types.facts()["types"])


def test_another_region_is_refused_in_one_line() -> None:
    here = plan()
    there = {**here, "fleet": {**here["fleet"], "region": "eu-north-1"}}
    (line,) = compare(PlanDocument.model_validate(there), PlanDocument.model_validate(here)).refused
    assert line.startswith("Pulumi does not move a stack to another region: what it made in eu-north-1 would stay")
