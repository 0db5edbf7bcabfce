"""Kubernetes objects that components declare alike."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import yaml

from infra.component import Component
from paddock.fleet import Fleet, nodes
from paddock.labels import CONFIGURATION, PRIVILEGED_BECAUSE

_NOBODY = 65534


def within(namespace: k8s.core.v1.Namespace, name: str, **more: Any) -> k8s.meta.v1.ObjectMetaArgs:
    """Return the metadata of an object of a namespace that is declared here."""
    return k8s.meta.v1.ObjectMetaArgs(name=name, namespace=namespace.metadata.name, **more)


def closed_namespace(owner: Component, name: str) -> k8s.core.v1.Namespace:
    """Declare a namespace whose pods get no privileges."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return k8s.core.v1.Namespace(
        f"{owner.name}-namespace", metadata={"name": name, "labels": labels}, opts=owner.child()
    )


def privileged_namespace(owner: Component, name: str, why: str) -> k8s.core.v1.Namespace:
    """Declare a namespace for pods that the stricter levels refuse, with the reason."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    metadata: Any = {"name": name, "labels": labels, "annotations": {PRIVILEGED_BECAUSE: why}}
    return k8s.core.v1.Namespace(owner.name, metadata=metadata, opts=owner.child())


def config_map(
    owner: Component, resource: str, metadata: k8s.meta.v1.ObjectMetaArgs, data: Mapping[str, str]
) -> k8s.core.v1.ConfigMap:
    return k8s.core.v1.ConfigMap(resource, metadata=metadata, data=dict(data), opts=owner.child())


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
    resource, opts = f"{owner.name}-{name}", owner.child()
    account = k8s.core.v1.ServiceAccount(resource, metadata=within(namespace, name), opts=opts)
    metadata = k8s.meta.v1.ObjectMetaArgs(name=f"paddock-{name}")
    rules = [
        k8s.rbac.v1.PolicyRuleArgs(api_groups=[group], resources=list(of_group), verbs=["list", "watch"])
        for group, of_group in {"": resources, **(others or {})}.items()
    ]
    role = k8s.rbac.v1.ClusterRole(resource, metadata=metadata, rules=rules, opts=opts)
    binding = k8s.rbac.v1.ClusterRoleBinding(
        resource,
        metadata=metadata,
        role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.metadata.name},
        subjects=[{"kind": "ServiceAccount", "name": name, "namespace": namespace.metadata.name}],
        opts=opts,
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


def deployment(labels: Mapping[str, str], pod: Any, configuration: str, **more: Any) -> Any:
    """Return the spec of a Deployment, whose pods are replaced with their `configuration`, a digest."""
    metadata = {"labels": labels, "annotations": {CONFIGURATION: configuration}}
    template = {"metadata": metadata, "spec": pod}
    return {"replicas": 1, **more, "selector": {"matchLabels": labels}, "template": template}


def as_yaml(document: Mapping[str, Any]) -> str:
    """Return the text of a configuration file."""
    return yaml.safe_dump(dict(document), sort_keys=False, width=120)


def digest(files: Mapping[str, str]) -> str:
    """Return what changes when a file of a configuration does."""
    return hashlib.sha256("\0".join(files.values()).encode()).hexdigest()[:16]
