"""Principals of IAM: the one behind the credentials, and those whom a cluster lets in."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paddock.fleet.model.cluster import same_principal
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.unavailable import NotFound, Unavailable

_SESSION = re.compile(r"arn:(aws[a-z-]*):sts::(\d{12}):assumed-role/([\w+=,.@-]+)/.*", re.ASCII)
_ADMIN = "AmazonEKSClusterAdminPolicy"


@dataclass(frozen=True, slots=True)
class Principal:
    """A role, a user or the root user."""

    arn: str
    exact: bool
    """False where the role has a path that could not be read."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An access entry of a cluster."""

    principal: str
    policies: tuple[str, ...]
    """Names of the access policies that hold in the whole cluster."""
    groups: tuple[str, ...]
    """Kubernetes groups, which may be allowed anything."""

    @property
    def may_deploy(self) -> bool:
        return _ADMIN in self.policies


def read_principal(aws: AwsReader, arn: str) -> Principal:
    """Return the role behind a session, with its path, or the user. Raises NotFound, and Unavailable of neither."""
    session = _SESSION.fullmatch(arn)
    if session is None:
        if ":federated-user/" in arn:
            raise Unavailable(f"{arn} is neither a role nor a user of IAM", "sign in as a role")
        return Principal(arn, exact=True)
    partition, account, name = session.groups()
    try:
        return Principal(str(aws.read("iam", "get_role", RoleName=name)["Role"]["Arn"]), exact=True)
    except NotFound:
        raise
    except Unavailable:
        return Principal(f"arn:{partition}:iam::{account}:role/{name}", exact=False)


def read_principals(aws: AwsReader, cluster: str) -> tuple[str, ...]:
    """Return the ARNs of all whom a cluster has an access entry for. Raises Unavailable, NotFound."""
    return tuple(map(str, aws.pages("eks", "list_access_entries", "accessEntries", clusterName=cluster)))


def read_entry(aws: AwsReader, cluster: str, principal: str) -> Entry | None:
    """Return the access entry of a role or user, whatever its path; None without one. Raises Unavailable, NotFound."""
    arn = next((entry for entry in read_principals(aws, cluster) if same_principal(entry, principal)), None)
    if arn is None:
        return None
    of = {"clusterName": cluster, "principalArn": arn}
    said = aws.read("eks", "describe_access_entry", **of)["accessEntry"]
    policies = aws.pages("eks", "list_associated_access_policies", "associatedAccessPolicies", **of)
    everywhere = [policy for policy in policies if policy.get("accessScope", {}).get("type") == "cluster"]
    names = tuple(str(policy.get("policyArn", "")).rpartition("/")[2] for policy in everywhere)
    return Entry(arn, names, tuple(said.get("kubernetesGroups", ())))
