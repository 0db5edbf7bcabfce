"""Tokens as GitHub Actions mints them, and the part of STS that decides whether a role may be assumed with one.

Claims are those of "OpenID Connect reference" (docs.github.com). Conditions are read as IAM's reference says: all keys
of all operators must hold, one of a key's values is enough, a claim that is absent fits nothing, `StringEquals` knows
no wildcard and `StringLike` knows `*` and `?`. An operator or a key that AWS does not document for GitHub is an error
of the policy, and no refusal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

GITHUB = "token.actions.githubusercontent.com"
CLAIMS_OF_STS = frozenset(
    {"actor", "actor_id", "aud", "enterprise_id", "environment", "job_workflow_ref", "ref", "repository"}
    | {"repository_id", "repository_owner_id", "sub", "workflow"}
)
"""Condition keys for GitHub in "IAM and AWS STS condition context keys" (docs.aws.amazon.com, 2026-09-24)."""


@dataclass(frozen=True)
class Repository:
    """A repository at GitHub. `ids_in_subject` tells the form that its tokens have."""

    owner: str = "acme"
    owner_id: int = 65
    name: str = "images"
    id: int = 74
    ids_in_subject: bool = False
    claim_keys: Sequence[str] = ("repo", "context")
    """Claims that its subject is made of."""
    host: str = "github.com"

    def token(self, *, branch: str = "main", **claims: str) -> dict[str, str]:
        """Return the claims of a token that a job on a branch gets for AWS."""
        issuer = GITHUB if self.host == "github.com" else f"{self.host}/_services/token"
        minted = {
            "iss": f"https://{issuer}",
            "aud": "sts.amazonaws.com",
            "ref": f"refs/heads/{branch}",
            "repository": f"{self.owner}/{self.name}",
            "repository_id": str(self.id),
            "repository_owner": self.owner,
            "repository_owner_id": str(self.owner_id),
            "job_workflow_ref": f"{self.owner}/{self.name}/.github/workflows/build-images.yml@refs/heads/{branch}",
            **claims,
        }
        context = f"environment:{claims['environment']}" if "environment" in claims else f"ref:{minted['ref']}"
        owner, name = (
            (f"{self.owner}@{self.owner_id}", f"{self.name}@{self.id}")
            if self.ids_in_subject
            else (self.owner, self.name)
        )
        parts = {"repo": f"repo:{owner}/{name}", "context": context}
        subject = ":".join(parts.get(key) or f"{key}:{minted[key]}" for key in self.claim_keys)
        return {"sub": subject} | minted


def may_assume(trust: str | Mapping[str, Any], token: Mapping[str, str], provider: str = GITHUB) -> bool:
    """Return whether a trust policy lets a token in, `provider` being the address of the role's identity provider."""
    if token["iss"] != f"https://{provider}":
        return False
    document = json.loads(trust) if isinstance(trust, str) else trust
    return any(_allows(statement, token, provider) for statement in document["Statement"])


def _allows(statement: Mapping[str, Any], token: Mapping[str, str], provider: str) -> bool:
    assert statement["Effect"] == "Allow"
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"
    return all(
        any(_fits(operator, value, token.get(_claim(key, provider))) for value in _listed(values))
        for operator, keys in statement.get("Condition", {}).items()
        for key, values in keys.items()
    )


def _claim(key: str, provider: str) -> str:
    issuer, _, claim = key.rpartition(":")
    assert issuer == provider, f"{key} is a condition key of another provider"
    assert claim in (CLAIMS_OF_STS if provider == GITHUB else {"aud", "sub"}), f"STS knows no {key}"
    return claim


def _fits(operator: str, value: str, claim: str | None) -> bool:
    assert operator in ("StringEquals", "StringLike"), f"{operator} is not read here"
    if claim is None:
        return False
    if operator == "StringEquals":
        return claim == value
    pattern = "".join({"*": ".*", "?": "."}.get(letter, re.escape(letter)) for letter in value)
    return re.fullmatch(pattern, claim, re.DOTALL) is not None


def _listed(values: str | Sequence[str]) -> Sequence[str]:
    return [values] if isinstance(values, str) else values
