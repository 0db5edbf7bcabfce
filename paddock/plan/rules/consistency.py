"""Consistency between resources: mistakes that neither of two resources shows by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from paddock.plan import fields
from paddock.plan.engine.graph import Resource
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, violation
from paddock.plan.rules.inputs.placement import (
    fits,
    left_out,
    node_groups,
    tolerates,
    workloads,
)


class Tolerated(Rule):
    id = "CON001"
    severity: ClassVar[Severity] = "error"
    title = "Whatever belongs on a node tolerates the node's taints"
    why = (
        "A device plugin that does not tolerate a pool's taint leaves its GPUs invisible, and every job waits for ever."
    )
    fix = "give it nodes.TAINT.toleration()"

    def check(self, context: Context) -> Iterator[Violation]:
        groups = node_groups(context)
        for work in workloads(context):
            if work.daemon:
                meant = [group for group in groups.gpus if not left_out(work, group.labels)]
            else:
                candidates = groups.candidates(work) if work.selector or work.terms else []
                meant = [group for group in candidates if fits(work, group.labels)]
            for group in meant:
                repelling = [taint for taint in group.taints if taint.get("effect") != "PreferNoSchedule"]
                if refused := [t for t in repelling if not tolerates(work.tolerations, t)]:
                    descriptions = ", ".join(f"{t.get('key')}={t.get('value')}:{t.get('effect')}" for t in refused)
                    message = f"{work.what} does not tolerate {descriptions} of {group.name}"
                    yield violation(work.resource, message, fix=f"tolerations: one for {descriptions}")


class Selected(Rule):
    id = "CON002"
    severity: ClassVar[Severity] = "error"
    title = "Labels that select nodes are labels that nodes have"
    why = "A pod whose selector matches no pool waits for ever, and the autoscaler says nothing about it."
    fix = "give the pool the label, or take the selector from nodes.gpu_selector()"

    def check(self, context: Context) -> Iterator[Violation]:
        groups = node_groups(context)
        if any(fields.is_unknown(fields.get(group.resource.inputs, "labels")) for group in groups.all):
            return
        for work in workloads(context) if groups.all else ():
            if work.daemon:
                missed = [
                    group.name
                    for group in groups.gpus
                    if fits(work, group.labels) is False and not left_out(work, group.labels)
                ]
                if missed:
                    message = f"{work.what} selects no node of {', '.join(missed)}"
                    yield violation(work.resource, message, fix="a selector of labels that all of these have")
            elif (work.selector or work.terms) and all(
                fits(work, group.labels) is False for group in groups.candidates(work)
            ):
                selector = ", ".join(f"{key}={value}" for key, value in work.selector.items()) or "its affinity"
                yield violation(work.resource, f"{work.what}: no pool has {selector}", fix=f"a pool with {selector}")


def _made_by_default(resource_: Resource, package: str) -> bool:
    own = resource_.type.startswith(f"{package}:") and resource_.custom
    name = resource_.provider.split("::")[-2] if resource_.provider.count("::") >= 4 else resource_.provider
    return own and (not name or name == "default" or name.startswith("default_"))


class NamedCluster(Rule):
    id = "CON007"
    severity: ClassVar[Severity] = "error"
    title = "Every Kubernetes object names its provider"
    why = "Without one it goes to whatever cluster the operator's kubeconfig points at."
    fix = "ResourceOptions(provider=cluster.provider), or a parent that has it"

    def check(self, context: Context) -> Iterator[Violation]:
        for resource_ in context.graph.resources.values():
            if _made_by_default(resource_, "kubernetes"):
                yield violation(resource_, "it would go to the current cluster of the kubeconfig")


class NamedAccount(Rule):
    id = "CON008"
    severity: ClassVar[Severity] = "error"
    title = "Every AWS resource names its provider"
    why = "Without one it goes to the region of the operator's shell, and misses the fleet's tags."
    fix = "ResourceOptions(providers=[cloud]) on the component"

    def check(self, context: Context) -> Iterator[Violation]:
        for resource_ in context.graph.resources.values():
            if _made_by_default(resource_, "aws"):
                yield violation(resource_, "it would go to the region of the shell, without the fleet's tags")


RULES = (
    Tolerated(), Selected(), NamedCluster(), NamedAccount(),
)  # fmt: skip
