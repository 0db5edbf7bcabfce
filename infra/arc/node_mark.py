"""Lets the job hook mark the node it runs on for replacement, with a token that is of no other use to a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra import workloads
from infra.arc.runner_pod import MARKS_NODE, MARKS_NODE_AS
from infra.component import Component
from infra.manifests import manifest
from infra.network.policies import Egress, network_policy
from paddock.labels import REPLACE, REPLACE_SINCE

ANNOTATIONS = (REPLACE, REPLACE_SINCE)
"""What is wrong with the node, and since when."""

_CHANGES_BY_ITSELF = ("managedFields", "resourceVersion", "generation")


class NodeMark(Component):
    """RBAC cannot say "its own node" or "only these fields"; an admission policy says both."""

    accounts: Mapping[str, k8s.core.v1.ServiceAccount]
    """By namespace: what runner pods name."""

    def __init__(
        self,
        name: str,
        shared_name: str,
        namespaces: Mapping[str, k8s.core.v1.Namespace],
        api: Sequence[pulumi.Input[Egress]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`shared_name`: of what belongs to no namespace; `namespaces`: those of runner pods that may mark their node;
        `api`: the way to the Kubernetes API."""
        super().__init__(name, opts)
        self.accounts = {name: self._account(name, resource, api) for name, resource in namespaces.items()}
        policy = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
            name, metadata={"name": shared_name}, spec=_policy(sorted(namespaces)), opts=self.child()
        )
        bound = k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
            name,
            metadata={"name": shared_name},
            spec={"policy_name": policy.metadata.name, "validation_actions": ["Deny"]},
            opts=self.child(),
        )
        role = k8s.rbac.v1.ClusterRole(
            name,
            metadata={"name": shared_name},
            # No get: the answer to a patch shows the node, and the policy keeps patches to the pod's own.
            rules=[{"api_groups": [""], "resources": ["nodes"], "verbs": ["patch"]}],
            opts=self.child(),
        )
        k8s.rbac.v1.ClusterRoleBinding(
            name,
            metadata={"name": shared_name},
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role.metadata.name},
            subjects=[
                {"kind": "ServiceAccount", "name": MARKS_NODE_AS, "namespace": namespace}
                for namespace in sorted(namespaces)
            ],
            # The right comes after what bounds it, and goes before it.
            opts=self.child(depends_on=[bound]),
        )
        self.register_outputs({})

    def _account(
        self, namespace: str, resource: k8s.core.v1.Namespace, api: Sequence[pulumi.Input[Egress]]
    ) -> k8s.core.v1.ServiceAccount:
        metadata = workloads.within(resource, MARKS_NODE_AS)
        network_policy(self, f"{self.name}-{namespace}-api", metadata, pods=MARKS_NODE, egress=api)
        return k8s.core.v1.ServiceAccount(
            f"{self.name}-{namespace}", metadata=metadata, automount_service_account_token=False, opts=self.child()
        )


def _policy(namespaces: Sequence[str]) -> Any:
    annotations = list(ANNOTATIONS)
    return manifest(
        "node-mark",
        accounts=[f"system:serviceaccount:{namespace}:{MARKS_NODE_AS}" for namespace in namespaces],
        annotations=annotations,
        names=" and ".join(annotations),
        same_metadata=_same("object.metadata", "oldObject.metadata", ["annotations", *_CHANGES_BY_ITSELF]),
        same_spec=_same("object.spec", "oldObject.spec", ["unschedulable"]),
        same_annotations=_same("variables.after", "variables.before", annotations),
    )


def _same(new: str, old: str, but: Sequence[str]) -> str:
    """CEL: two objects have the same keys with the same values, whatever those in `but` are."""
    return " && ".join(
        f"dyn({one}).all(key, key in {list(but)} || (key in dyn({other}) && dyn({one})[key] == dyn({other})[key]))"
        for one, other in ((new, old), (old, new))
    )
