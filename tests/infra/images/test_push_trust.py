"""Who may assume the workflows' roles: tokens in both of GitHub's forms, against the trust that a stack makes."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from paddock.plan.engine.program import plan_graph
from tests.support.fleets import SAMPLES, fleet_data, stack
from tests.support.web_identity import GITHUB, Repository, may_assume

OLD = Repository()
NEW = replace(OLD, ids_in_subject=True)
NAMES, IDS = "acme/images", "acme@65/images@74"


@cache
def roles(repository: str, url: str = "https://github.com/acme") -> dict[str, str]:
    """Return the trust policy of each role that a stack makes for workflows."""
    images = {**SAMPLES["images"]["images"], "push": {"repository": repository}}
    github = {"url": url, "token": "config", "serverVersion": "3.21"}
    planned = plan_graph(stack(fleet_data(images=images, github=github)))
    return {
        role.name: role.inputs["assumeRolePolicy"]
        for role in planned.of_type("aws:iam/role:Role")
        if role.name.startswith("image-push")
    }


def trust(repository: str, **more: Any) -> str:
    return roles(repository, **more)["image-push"]


@pytest.mark.parametrize("repository", [NAMES, IDS])
def test_both_roles_trust_the_same(repository: str) -> None:
    assert set(roles(repository)) == {"image-push", "image-push-ami"}
    assert len(set(roles(repository).values())) == 1


@pytest.mark.parametrize(("repository", "token", "assumed"), [
    (IDS, OLD.token(), True),
    (IDS, NEW.token(), True),
    (NAMES, OLD.token(), True),
    (NAMES, NEW.token(), False),  # what doctor says before a workflow does
], ids=["ids-old", "ids-new", "names-old", "names-new"])  # fmt: skip
def test_a_token_of_either_form(repository: str, token: dict[str, str], assumed: bool) -> None:
    assert may_assume(trust(repository), token) is assumed


STRANGERS = {
    "another branch": {"branch": "main2"},
    "a branch below it": {"branch": "main/x"},
    "a branch that ends with it": {"branch": "x/refs/heads/main"},
    "an environment": {"environment": "main"},
    "another audience": {"aud": "https://github.com/acme"},
}


@pytest.mark.parametrize("form", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("repository", [NAMES, IDS])
@pytest.mark.parametrize("claims", STRANGERS.values(), ids=STRANGERS)
def test_other_runs_of_the_repository_are_refused(repository: str, form: Repository, claims: dict[str, str]) -> None:
    assert not may_assume(trust(repository), form.token(**claims))


@pytest.mark.parametrize("form", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("repository", [NAMES, IDS])
@pytest.mark.parametrize(
    "other",
    [{"owner": "acm"}, {"owner": "acme2"}, {"name": "images2"}, {"name": "image"}, {"owner": "Acme"}],
    ids=lambda other: "-".join(f"{key}-{value}" for key, value in other.items()),
)
def test_other_names_are_refused(repository: str, form: Repository, other: dict[str, Any]) -> None:
    assert not may_assume(trust(repository), replace(form, id=75, **other).token())


@pytest.mark.parametrize("form", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize(
    "ids", [{"owner_id": 66}, {"id": 75}, {"owner_id": 66, "id": 75}, {"owner_id": 74, "id": 65}], ids=str
)
def test_the_same_names_taken_by_somebody_else_are_refused(form: Repository, ids: dict[str, int]) -> None:
    assert not may_assume(trust(IDS), replace(form, **ids).token())


def test_without_ids_names_are_all_that_is_compared() -> None:
    """Such a repository must have left the form with ids, which GitHub gives to what is made now."""
    recreated = replace(OLD, owner_id=66, id=75)
    assert may_assume(trust(NAMES), recreated.token())
    assert not may_assume(trust(NAMES), replace(recreated, ids_in_subject=True).token())


@pytest.mark.parametrize("subject", [
    "repo:acme@65/images@74@74:ref:refs/heads/main",
    "repo:acme@65@66/images@74:ref:refs/heads/main",
    "repo:acme@65/images:ref:refs/heads/main",
    "repo:acme/images@74:ref:refs/heads/main",
    "repo:acme@*/images@*:ref:refs/heads/main",
    "repo:acme@65/images@74:ref:refs/heads/main:job_workflow_ref:acme/images/x.yml@refs/heads/main",
    "repo:evil@9/x@9:ref:refs/heads/repo:acme@65/images@74:ref:refs/heads/main",
])  # fmt: skip
def test_subjects_that_look_alike_are_refused(subject: str) -> None:
    token = NEW.token() | {"sub": subject}
    assert not may_assume(trust(IDS), token)


@pytest.mark.parametrize("form", [OLD, NEW], ids=["old", "new"])
@pytest.mark.parametrize("keys", [("repo", "context", "job_workflow_ref"), ("repo",), ("repository_id",)], ids=str)
def test_a_subject_of_other_claims_is_refused(form: Repository, keys: tuple[str, ...]) -> None:
    assert not may_assume(trust(IDS), replace(form, claim_keys=keys).token())


def test_no_pattern_and_no_wildcard_is_trusted() -> None:
    for repository in (NAMES, IDS):
        (statement,) = json.loads(trust(repository))["Statement"]
        assert set(statement["Condition"]) == {"StringEquals"}
        assert "*" not in json.dumps(statement)


def test_a_stack_without_ids_keeps_its_policy() -> None:
    (statement,) = json.loads(trust(NAMES))["Statement"]
    assert statement["Condition"] == {
        "StringEquals": {f"{GITHUB}:aud": "sts.amazonaws.com", f"{GITHUB}:sub": "repo:acme/images:ref:refs/heads/main"}
    }


def test_an_enterprise_server_mints_for_its_own_roles() -> None:
    host = "git.example.com"
    policy = trust(NAMES, url=f"https://{host}/acme")
    assert may_assume(policy, replace(OLD, host=host).token(), f"{host}/_services/token")
    assert not may_assume(policy, OLD.token(), f"{host}/_services/token")
