"""Parts of every rule, and properties of all of them on any fleet."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from paddock.fleet import FleetError
from paddock.plan import reference
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.engine.program import plan_graph
from paddock.plan.engine.values import UNKNOWN, Secret
from paddock.plan.rules import RULES, check_context
from paddock.plan.rules.base import Context, Rule
from tests.plan.rules.breaking import add, example, option, put, resource
from tests.support import fleets, strategies
from tests.support.explore import examples

TODAY = date(2026, 11, 21)
EACH_RULE = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
NASTY = (
    UNKNOWN, None, True, 0,
    -1.5,
    "", "*",
    [],
    {},
    [None],
    [[]],
    {"a": [1]},
    "{", "Statement",
    Secret("x"),
    Secret([]),
)  # fmt: skip


@EACH_RULE
def test_a_rule_says_what_why_and_how(rule: Rule) -> None:
    assert re.fullmatch(r"(PAD|CON)\d{3}", rule.id)
    for words in (rule.title, rule.why, rule.fix):
        assert 10 < len(words) < 200
        assert words == words.strip()
    assert rule.why.endswith(".")
    assert not rule.title.endswith(".")


def test_the_page_of_rules_is_generated_from_them() -> None:
    page = (fleets.ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    assert page == reference.page(), "run: python -m paddock.plan.reference > docs/rules.md"


def test_a_finding_names_subject_message_and_fix() -> None:
    broken = put("Cluster", "cluster-eksCluster", "encryptionConfig", None)(fleets.graph("dev"))
    (finding,) = (f for f in check_context(Context(broken, today=TODAY)).findings if f.severity == "error")
    assert (finding.id, finding.subject) == ("PAD001", "cluster-eksCluster")
    assert finding.message
    assert finding.fix


def test_secrets_are_not_asked_for_where_an_engine_has_opened_them() -> None:
    opened = put("Secret", "arc-arc-runners-credential", "stringData", lambda secret: secret.value)(fleets.graph("dev"))
    assert "PAD031" not in {v.rule.id for v in check_context(Context(opened, marks_secrets=False)).violations}


def test_preview_of_a_new_stack_lists_what_is_not_judged() -> None:
    graph = fleets.graph("dev", preview=True)
    evaluation = check_context(Context(graph, fleet=fleets.named("dev").fleet, today=TODAY))
    assert [finding for finding in evaluation.findings if finding.severity != "info"] == []
    assert ("PAD018", "network-flow-policy", "policy") in {
        (item.rule, item.subject, item.property) for item in evaluation.unseen
    }


def _allowing(*actions: str, **more: Any) -> str:
    return json.dumps({"Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*", **more}]})


def _trusting(provider: str) -> Resource:
    trust = _allowing("sts:AssumeRoleWithWebIdentity", Principal={"Federated": provider})
    return resource(types.ROLE, "role", {"assumeRolePolicy": trust})


_NODE = resource(types.ROLE, "node", {"inlinePolicies": [{"policy": _allowing("ecr:PutImage")}]})
_ADMIN = "arn:aws:iam::aws:policy/AdministratorAccess"
_KEY = {"policy": _allowing("kms:Sign", Principal={"AWS": "arn:aws:iam::111122223333:root"})}
_BUCKET = resource(types.BUCKET, "state", {}, protect=True)
_SHUT = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
_BUCKET_SETTINGS = [
    resource(f"aws:s3/bucket{part}:Bucket{part}", part, inputs, uses={"bucket": _BUCKET})
    for part, inputs in {
        "PublicAccessBlock": dict.fromkeys(_SHUT, True),
        "Versioning": {"versioningConfiguration": {"status": "Enabled"}},
        "ServerSideEncryptionConfiguration": {
            "rules": [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms"}}]
        },
        "Logging": {"targetBucket": "logs"},
    }.items()
]
JUDGED = [
    ("PAD016", [_NODE, resource(types.NODE_GROUP, "gpu", {}, uses={"nodeRoleArn": _NODE})],
     ["Role: a node role may ecr:PutImage"]),
    ("PAD016", [_NODE], []),
    ("PAD017", [resource(types.KMS_KEY, "key", _KEY)], ["Key: it does not rotate"]),
    ("PAD017", [resource(types.KMS_KEY, "key", _KEY | {"customerMasterKeySpec": "RSA_2048"})], []),
    ("PAD018", [resource(types.ROLE, "admin", {"managedPolicyArns": [_ADMIN]})],
     ["Role: AdministratorAccess is given away"]),
    ("PAD020", [resource(types.OPEN_ID_CONNECT_PROVIDER, "a", {"url": "https://accounts.google.com",
     "clientIdLists": ["a"]})], []),
    ("PAD020", [_trusting("arn:aws:iam::111122223333:oidc-provider/oidc.eks.us-west-2.amazonaws.com/id/1A")], []),
    ("PAD020", [_trusting("cognito-identity.amazonaws.com")], []),
    ("PAD023", [_BUCKET, *_BUCKET_SETTINGS], []),
    ("PAD023", [_BUCKET, *_BUCKET_SETTINGS[:-1]], ["Bucket: access to it is not logged"]),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "resources", "messages"), JUDGED)
def test_resources_of_any_program_are_judged(rule: str, resources: list[Resource], messages: list[str]) -> None:
    assert [hit.message for hit in RULES[rule].check(example(*resources))] == messages


def test_an_image_that_no_mirror_holds_is_named() -> None:
    stack = fleets.stack(fleets.fleet_data(mirror={"images": {"ghcr.io": "registry.example.com/mirror"}}))
    evaluation = check_context(Context(plan_graph(stack), fleet=stack.fleet, today=TODAY), only={"CON011"})
    assert {"mirror.images.registry.k8s.io: where its copy is"} <= {v.detail.fix for v in evaluation.violations}
    assert not any("ghcr.io" in v.detail.fix for v in evaluation.violations)


CONSISTENCY = [
    ("CON001", put("Release", "device-plugin", "values/tolerations", [])),
    ("CON001", put("Release", "device-plugin", "values/nfd/worker/tolerations/0/value", "present")),
    ("CON001", put("Release", "monitoring", "values/tolerations/0/effect", "NoExecute")),
    ("CON001", put("Release", "gpu", "values/template/spec/tolerations", [])),
    ("CON001", put("NodeGroup", "t4-spot", "taints", lambda taints: [*taints, {"key": "team", "value": "ml",
     "effect": "NO_EXECUTE"}])),
    ("CON002", put("Release", "gpu", "values/template/spec/nodeSelector", {"paddock.dev/pool": "t5"})),
    ("CON002", put("Release", "monitoring", "values/nodeSelector", {"nvidia.com/gpu.present": "yes"})),
    ("CON002", put("NodeGroup", "cluster-system", "labels", {"role": "sistem"})),
    ("CON007", option("ConfigMap", "monitoring-alerts", provider="")),
    ("CON008", option("Subnet", "network-private-us-west-2a",
     provider="urn:pulumi:prod::paddock::pulumi:providers:aws::default_7_51_1::id")),
    ("CON009", put("CronJob", "gpu-gpu-warm0", "metadata/name", "w" * 53)),
    ("CON010", put("ConfigMap", "arc-arc-runners-hooks", "metadata/namespace", "arc-systems")),
    ("CON010", put("Release", "gpu", "values/githubConfigSecret", "another")),
    ("CON012", put("Release", "gpu-l4", "values/scaleSetLabels", ["self-hosted", "gpu", "l4"])),
    ("CON012", put("Release", "gpu-l4", "values/scaleSetLabels", ["self-hosted", "linux"])),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "breaking"), CONSISTENCY, ids=lambda item: item if isinstance(item, str) else "")
def test_resources_that_disagree_violate_their_rule(rule: str, breaking: Any) -> None:
    stack, graph = fleets.named("prod"), fleets.graph("prod")
    usual, violated = (
        {v.rule.id for v in check_context(Context(resources, fleet=stack.fleet, today=TODAY)).violations}
        for resources in (graph, breaking(graph))
    )
    assert violated - usual == {rule}


@examples(10, 60, suppress_health_check=list(HealthCheck))
@given(data=strategies.fleets())
def test_any_fleet_violates_only_what_it_asks_for(data: dict[str, Any]) -> None:
    try:
        stack = fleets.stack(data)
    except FleetError:
        assume(False)
        raise
    evaluation = check_context(Context(plan_graph(stack), fleet=stack.fleet, today=TODAY))
    expected = {"PAD031", "PAD033", "CON012"}
    # Who steers jobs in other pods may read the credential.
    expected |= {"PAD029"} if stack.fleet.steers_job_pods else set()
    expected |= {"PAD003"} if data["cluster"].get("endpoint") == {"allow": "any"} else set()
    expected |= {"PAD039"} if "existing" in data["cluster"] else set()  # its CNI may have no role but the node's
    expected |= {"PAD038"} if "kubeconfig" in data["cluster"] else set()  # its nodes' settings are not known
    assert {finding.id for finding in evaluation.findings} <= expected, evaluation.findings


@examples(40, 200, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_value_crashes_a_rule_and_unknown_violates_none(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(("dev", "monitoring", "docker", "images")))
    graph, fleet = fleets.graph(name), fleets.named(name).fleet
    broken, value = _disturbed(graph, data)
    before = {(v.rule.id, v.detail) for v in check_context(Context(graph, fleet=fleet, today=TODAY)).violations}
    after = {(v.rule.id, v.detail) for v in check_context(Context(broken, fleet=fleet, today=TODAY)).violations}
    assert value != UNKNOWN or after <= before


def _disturbed(graph: Graph, data: st.DataObject) -> tuple[Graph, Any]:
    """One value somewhere in the graph, replaced by one that does not belong there."""
    urn = data.draw(st.sampled_from([urn for urn, item in graph.resources.items() if item.inputs]))
    inputs = copy.deepcopy(dict(graph.resources[urn].inputs))
    place: Any = inputs
    while True:
        step = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
        below = place[step]
        if not isinstance(below, dict | list) or not below or data.draw(st.booleans()):
            break
        place = below
    place[step] = value = data.draw(st.sampled_from(NASTY))
    return add(replace(graph.resources[urn], inputs=inputs))(graph), value


@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_the_shortest_gpu_label_means_one_runner_in_examples(name: str) -> None:
    fleet = fleets.example(name).fleet
    answering = [runner for runner in fleet.runners.values() if {"self-hosted", "gpu"} <= set(runner.effective_labels)]
    assert [(runner.name, runner.gpus) for runner in answering] == [("gpu", 1)]
    overlaps = check_context(Context(fleets.graph(name), fleet=fleet, today=TODAY), only={"CON012"})
    assert overlaps.violations == ()


def overlaps(*runners: dict[str, Any]) -> list[tuple[str, str]]:
    pools = {
        "t4": {"instances": ["g4dn.xlarge"], "nodes": {"max": 2}},
        "a10g": {"instances": ["g5.12xlarge"], "nodes": {"max": 2}},
    }
    data = fleets.fleet_data(pools=pools, runners={runner.pop("key"): runner for runner in runners})
    evaluation = check_context(Context(plan_graph(fleets.stack(data)), today=TODAY), only={"CON012"})
    return [(violation.detail.subject, violation.detail.message) for violation in evaluation.violations]


def test_overlap_names_the_request_and_what_a_job_would_get() -> None:
    # GitHub's routing: a request goes to any set whose labels contain it.
    small = {"key": "gpu", "pool": "t4", "labels": ["self-hosted", "linux", "x64", "gpu", "cuda"]}
    large = {"key": "gpu-a10g-x4", "pool": "a10g", "gpus": 4, "labels": ["self-hosted", "gpu", "a10g"]}
    ((subject, message),) = overlaps(small, large)
    assert subject == "gpu-a10g-x4"
    assert "[gpu] goes to gpu (t4: 1 GPU" in message
    assert "or to gpu-a10g-x4 (a10g: 4 GPU" in message


def test_overlap_concerns_size_within_one_runner_group() -> None:
    one = {"key": "one", "pool": "t4", "labels": ["gpu", "one"]}
    assert overlaps(one.copy(), {"key": "two", "pool": "t4", "labels": ["gpu", "two"]}) == []
    assert overlaps(one.copy(), {"key": "two", "pool": "t4", "labels": ["gpu", "two"], "memory": "2Gi"}) != []
    assert overlaps(one.copy(), {"key": "two", "pool": "a10g", "labels": ["gpu", "two"], "group": "other"}) == []
    assert overlaps(one.copy(), {"key": "two", "pool": "a10g", "labels": ["self-hosted", "two"]}) == []


def test_overlap_reads_the_pod_of_the_job_in_kubernetes_mode() -> None:
    one = {"key": "one", "pool": "t4", "labels": ["gpu", "one"], "container": "kubernetes-novolume"}
    same = {"key": "two", "pool": "t4", "labels": ["gpu", "two"], "container": "kubernetes-novolume"}
    assert overlaps(one.copy(), same) == []
    assert "4 GPU" in overlaps(one.copy(), {**same, "key": "two", "pool": "a10g", "gpus": 4})[0][1]
