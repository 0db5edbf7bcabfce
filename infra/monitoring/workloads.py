"""Parts that the readers of metrics share: accounts that list objects, and pods without privileges."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml

from infra.component import Component
from infra.network.policies import Port
from paddock.fleet import Fleet, nodes

_NOBODY = 65534

CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Security context of a container."""


def closed_namespace(owner: Component, name: str) -> k8s.core.v1.Namespace:
    """Declare a namespace whose pods get no privileges."""
    return k8s.core.v1.Namespace(
        f"{owner.name}-namespace",
        metadata=k8s.meta.v1.ObjectMetaArgs(name=name, labels={"pod-security.kubernetes.io/enforce": "restricted"}),
        opts=owner.child(),
    )


def lister(
    owner: Component,
    name: str,
    namespace: k8s.core.v1.Namespace,
    resources: Sequence[str],
    others: Mapping[str, Sequence[str]] | None = None,
) -> list[pulumi.Resource]:
    """Declare an account that may list these resources of the whole cluster, and nothing else.

    `others`: resources of other API groups, by the group.
    """
    account = k8s.core.v1.ServiceAccount(
        f"{owner.name}-{name}",
        metadata=k8s.meta.v1.ObjectMetaArgs(name=name, namespace=namespace.metadata.name),
        opts=owner.child(),
    )
    metadata = k8s.meta.v1.ObjectMetaArgs(name=f"paddock-{name}")
    rules = [
        k8s.rbac.v1.PolicyRuleArgs(api_groups=[group], resources=list(of_group), verbs=["list", "watch"])
        for group, of_group in {"": resources, **(others or {})}.items()
    ]
    role = k8s.rbac.v1.ClusterRole(f"{owner.name}-{name}", metadata=metadata, rules=rules, opts=owner.child())
    binding = k8s.rbac.v1.ClusterRoleBinding(
        f"{owner.name}-{name}",
        metadata=metadata,
        role_ref=k8s.rbac.v1.RoleRefArgs(
            api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=role.metadata.name
        ),
        subjects=[k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=name, namespace=namespace.metadata.name)],
        opts=owner.child(),
    )
    return [account, binding]


def unprivileged(fleet: Fleet, account: str) -> dict[str, Any]:
    """Return what the pods' specs have in common: system nodes, and a user who owns nothing."""
    return {
        "serviceAccountName": account,
        "enableServiceLinks": False,
        "nodeSelector": nodes.system_selector(fleet),
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "runAsGroup": _NOBODY,
            "fsGroup": _NOBODY,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def deployment(labels: Mapping[str, str], pod: Any, configuration: str = "") -> Any:
    """Return the spec of a Deployment of one pod, which is made anew with its `configuration`."""
    annotations = {"annotations": {"paddock.dev/configuration": configuration}} if configuration else {}
    return {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, **annotations}, "spec": pod},
    }


def tcp(port: int) -> list[Port]:
    """Return one port as a network policy has it."""
    return [Port(port=port, protocol="TCP")]


def as_yaml(document: Mapping[str, Any]) -> str:
    """Return the text of a configuration file."""
    return yaml.safe_dump(dict(document), sort_keys=False, width=120)


def digest(files: Mapping[str, str]) -> str:
    """Return what changes when a file of a configuration does."""
    return hashlib.sha256("\0".join(files.values()).encode()).hexdigest()[:16]
