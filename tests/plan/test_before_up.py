"""Steps before `pulumi up`: what is still an example's, and what only the owner, AWS or GitHub can give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from paddock.fleet import Stack
from paddock.plan import quota
from paddock.plan.before_up import steps
from paddock.plan.finding import Step
from tests.support import fleets

OWN = {
    "github": {"url": "https://github.com/pytorch", "app": {"id": "991188", "installation": "71882211"}},
    "cluster": {"version": "1.35", "endpoint": {"allow": ["8.8.8.0/24"]}},
}
"""Nothing of an example's."""
T4 = {"instances": ["g4dn.xlarge"], "nodes": {"max": 1}}


def steps_of(stack: Stack) -> list[Step]:
    return list(steps(stack, quota.quota_needs(stack.fleet)))


def keys(parts: Mapping[str, Any], id_: str) -> list[str]:
    stack = fleets.stack(fleets.fleet_data(**{**OWN, **parts}))
    return [step.subject for step in steps_of(stack) if step.id == id_]


def access(account: str) -> dict[str, Any]:
    entry = {"principal": f"arn:aws:iam::{account}:role/Ops", "policy": "view"}
    return {"cluster": {"version": "1.35", "endpoint": {"allow": ["8.8.8.0/24"]}, "access": {"ops": entry}}}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, []),
        ({"github": {"url": "https://github.com/acme", "token": "config"}}, ["github.url"]),
        ({"github": {"url": "https://github.com/acme/app", "token": "config"}}, ["github.url"]),
        ({"github": {"url": "https://github.com/acme-labs", "token": "config"}}, []),
        ({"images": {"push": {"repository": "acme/images"}}}, ["images.push.repository"]),
        ({"images": {"push": {"repository": "acme@65/images@74"}}}, ["images.push.repository"]),
        (
            {"github": {**OWN["github"], "app": {"id": "12345", "installation": "678"}}},
            ["github.app.id, github.app.installation"],
        ),
        ({"cluster": {"endpoint": {"allow": ["192.0.2.7/32", "8.8.8.8/32"]}}}, ["cluster.endpoint.allow"]),
        ({"cluster": {"endpoint": {"allow": ["198.51.100.0/25"]}}}, ["cluster.endpoint.allow"]),
        ({"cluster": {"endpoint": {"allow": "any"}}}, []),
        (access("123456789012"), ["cluster.access.ops.principal"]),
        (access("123456789013"), []),
        (
            {"pools": {"t4": {**T4, "capacity": {"reserved": "cr-0123456789abcdef0"}}}},
            ["pools.t4.capacity.reserved"],
        ),
    ],
)  # fmt: skip
def test_values_of_an_example_are_named_by_key(parts: Mapping[str, Any], expected: list[str]) -> None:
    assert keys(parts, "CFG004") == expected


def test_the_credential_is_a_step_until_it_is_set() -> None:
    stack = fleets.stack(fleets.fleet_data(**OWN))
    (step,) = (step for step in steps_of(stack) if step.id == "CFG001")
    assert step.command == "pulumi config set --stack sample --secret paddock:githubAppKey < app-key.pem"
    with_key = replace(stack, secrets=frozenset({"paddock:githubAppKey"}))
    assert not [step for step in steps_of(with_key) if step.id == "CFG001"]
    assert keys({"github": {"url": "https://github.com/pytorch", "token": "kubernetes:our-token"}}, "CFG001") == []


def test_an_api_inside_the_vpc_only_is_a_step_of_new_clusters() -> None:
    assert keys({"cluster": {"version": "1.35"}}, "CFG005") == ["cluster.endpoint.allow"]
    assert keys({}, "CFG005") == []
    assert keys({"cluster": {"kubeconfig": "~/.kube/config"}}, "CFG005") == []


def test_who_deploys_must_be_among_listed_administrators() -> None:
    listed = access("123456789013")
    assert keys(listed, "CFG011") == []
    listed["cluster"]["access"]["ops"]["policy"] = "cluster-admin"
    assert keys(listed, "CFG011") == ["cluster.access"]
    listed["cluster"]["access"]["ops"]["namespaces"] = ["arc-*"]
    assert keys(listed, "CFG011") == []


def test_a_shortfall_of_a_quota_names_the_command() -> None:
    result = {step.subject: step for step in steps_of(fleets.example("dev")) if step.id == "QUO001"}
    assert result["pools.t4"].command == (
        "aws service-quotas request-service-quota-increase --region us-west-2 --service-code ec2 "
        "--quota-code L-3819A6DF --desired-value 40"
    )
    assert "cluster.system" in result


def test_a_repository_without_ids_is_a_step_with_the_command() -> None:
    push = {"images": {"push": {"repository": "pytorch/images"}}}
    (step,) = (step for step in steps_of(fleets.stack(fleets.fleet_data(**{**OWN, **push}))) if step.id == "CFG009")
    assert step.subject == "images.push.repository"
    assert step.command.startswith("gh api repos/pytorch/images --jq ")


@pytest.mark.parametrize("parts", [
    {"images": {"push": {"repository": "pytorch@1/images@2"}}},
    {"images": {"push": {"repository": "acme/images"}}},  # an example's: CFG004
    {
        "images": {"push": {"repository": "pytorch/images"}},
        "github": {"url": "https://git.example.com/pytorch", "token": "config", "serverVersion": "3.21"},
    },
])  # fmt: skip
def test_ids_are_asked_for_only_where_they_help(parts: Mapping[str, Any]) -> None:
    assert keys(parts, "CFG009") == []


def test_environment_values_are_not_repeated() -> None:
    runner = {"pool": "t4", "environment": {"IMAGE": "123456789012.dkr.ecr.us-west-2.amazonaws.com/secret-name:1"}}
    stack = fleets.stack(fleets.fleet_data(**OWN, runners={"gpu": runner}))
    (step,) = (step for step in steps_of(stack) if step.id == "CFG004")
    assert step.subject == "runners.gpu.environment.IMAGE"
    assert "secret-name" not in step.text + step.command
