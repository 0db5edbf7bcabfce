"""Lets the job hook mark the node it runs on for replacement, with a token that is of no other use to a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from infra.arc.runner_pod import MARKS_NODE, MARKS_NODE_AS
from infra.component import Component
from infra.network.policies import Egress, network_policy
from paddock.fleet import nodes

NAME = "paddock-node-mark"
"""Of everything here that belongs to no namespace."""
ANNOTATIONS = ("paddock.dev/replace", "paddock.dev/replace-since")
"""What is wrong with the node, and since when."""

_NODE = "authentication.kubernetes.io/node-name"
_CHANGES_BY_ITSELF = ("managedFields", "resourceVersion", "generation")


class NodeMark(Component):
    """RBAC cannot say "its own node" or "only these fields"; an admission policy says both."""

    accounts: Mapping[str, k8s.core.v1.ServiceAccount]
    """By namespace: what runner pods name."""

    def __init__(
        self,
        name: str,
        namespaces: Mapping[str, k8s.core.v1.Namespace],
        api: Sequence[pulumi.Input[Egress]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`namespaces`: those of runner pods that may mark their node; `api`: the way to the Kubernetes API."""
        super().__init__(name, opts)
        self.accounts = {name: self._account(name, resource, api) for name, resource in namespaces.items()}
        policy = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
            name, metadata={"name": NAME}, spec=_policy(sorted(namespaces)), opts=self.child()
        )
        bound = k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
            name,
            metadata={"name": NAME},
            spec={"policy_name": policy.metadata.name, "validation_actions": ["Deny"]},
            opts=self.child(),
        )
        role = k8s.rbac.v1.ClusterRole(
            name,
            metadata={"name": NAME},
            # No get: the answer to a patch shows the node, and the policy keeps patches to the pod's own.
            rules=[{"api_groups": [""], "resources": ["nodes"], "verbs": ["patch"]}],
            opts=self.child(),
        )
        k8s.rbac.v1.ClusterRoleBinding(
            name,
            metadata={"name": NAME},
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
        metadata = k8s.meta.v1.ObjectMetaArgs(name=MARKS_NODE_AS, namespace=resource.metadata.name)
        network_policy(self, f"{self.name}-{namespace}-api", metadata, pods=MARKS_NODE, egress=api)
        return k8s.core.v1.ServiceAccount(
            f"{self.name}-{namespace}", metadata=metadata, automount_service_account_token=False, opts=self.child()
        )


def _policy(namespaces: Sequence[str]) -> k8s.admissionregistration.v1.ValidatingAdmissionPolicySpecArgsDict:
    """Admission policy: what it does not name must stay as it was, fields of a later Kubernetes included."""
    accounts = [f"system:serviceaccount:{namespace}:{MARKS_NODE_AS}" for namespace in namespaces]
    annotations = list(ANNOTATIONS)
    rules = {
        "a job may mark the node that it runs on, and no other": (
            f"request.userInfo.extra[?'{_NODE}'].orValue([]) == [request.name]"
        ),
        "only nodes with GPUs are marked": (
            f"oldObject.metadata.?labels[?'{nodes.GPU}.present'].orValue('') == 'true'"
        ),
        "a mark changes annotations and spec.unschedulable, and nothing else": " && ".join(
            [
                _same("object.metadata", "oldObject.metadata", ["annotations", *_CHANGES_BY_ITSELF]),
                _same("object.spec", "oldObject.spec", ["unschedulable"]),
                "object.?status == oldObject.?status",
            ]
        ),
        f"of the annotations, a mark changes only {' and '.join(annotations)}": _same(
            "variables.after", "variables.before", annotations
        ),
        "what a mark says is at most 256 printable characters": (
            f"variables.after.all(key, !(key in {annotations}) || variables.after[key].matches('^[ -~]{{1,256}}$'))"
        ),
        "a mark is taken back by people, not by jobs": (
            f"{annotations}.all(key, !(key in variables.before) || key in variables.after)"
            " && (object.spec.?unschedulable.orValue(false) || !oldObject.spec.?unschedulable.orValue(false))"
        ),
    }
    return {
        "failure_policy": "Fail",
        # With the API's defaults written out: this field has one owner as a whole, and an `up` after one that broke off
        # would otherwise be in conflict with what that one left.
        "match_constraints": {
            "match_policy": "Equivalent",
            "namespace_selector": {},
            "object_selector": {},
            "resource_rules": [
                {
                    "api_groups": [""],
                    "api_versions": ["*"],
                    "operations": ["*"],
                    "resources": ["nodes", "nodes/*"],
                    "scope": "*",
                }
            ],
        },
        "match_conditions": [{"name": "job", "expression": f"request.userInfo.username in {accounts}"}],
        "variables": [
            {"name": "before", "expression": "oldObject.metadata.?annotations.orValue({})"},
            {"name": "after", "expression": "object.metadata.?annotations.orValue({})"},
        ],
        "validations": [
            {"expression": expression, "message": message, "reason": "Forbidden"}
            for message, expression in rules.items()
        ],
    }


def _same(new: str, old: str, but: Sequence[str]) -> str:
    """CEL: two objects have the same keys with the same values, whatever those in `but` are."""
    return " && ".join(
        f"dyn({one}).all(key, key in {list(but)} || (key in dyn({other}) && dyn({one})[key] == dyn({other})[key]))"
        for one, other in ((new, old), (old, new))
    )
