"""Consistency between resources: mistakes that neither of two resources shows by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from infra.helm.charts import CHARTS
from paddock.fleet.nodes import EKS_EFFECTS, TEMPLATE
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Resource
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Examples, Rule, Violation, example, resource, violation
from paddock.plan.rules.inputs import fields
from paddock.plan.rules.inputs.placement import (
    GPU,
    fits,
    left_out,
    node_groups,
    taints,
    tolerates,
    workloads,
)
from paddock.plan.rules.inputs.pods import chart, scale_sets
from paddock.plan.rules.kubernetes import SCALE_SET_CHART, runners


def _gpu_group(**inputs: Any) -> Resource:
    taint = {"key": GPU, "value": "true", "effect": "NO_SCHEDULE"}
    return resource(types.NODE_GROUP, "t4-spot", {"labels": {"paddock.dev/pool": "t4"}, "taints": [taint], **inputs})


_TOLERATION = {"key": GPU, "operator": "Equal", "value": "true", "effect": "NoSchedule"}


def _gpu_runner(**spec: Any) -> Resource:
    return runners(
        {"template": {"spec": {"nodeSelector": {"paddock.dev/pool": "t4"}, "tolerations": [_TOLERATION], **spec}}}
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

    def examples(self) -> Examples:
        passing = example(_gpu_group(), _gpu_runner())
        return Examples(passing, example(_gpu_group(), _gpu_runner(tolerations=[{**_TOLERATION, "value": "present"}])))


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

    def examples(self) -> Examples:
        passing = example(_gpu_group(), _gpu_runner())
        return Examples(passing, example(_gpu_group(), _gpu_runner(nodeSelector={"paddock.dev/pool": "a100"})))


class ScaleFromZero(Rule):
    id = "CON003"
    severity: ClassVar[Severity] = "error"
    title = "A GPU node group that can be empty says what its nodes offer"
    why = (
        "The autoscaler reads labels and taints of an empty group from EKS, but what pods can have of a node from these"
        " tags: without ephemeral-storage no runner fits the node, and it is never bought."
    )
    fix = "tags of the node group from nodes.template_tags(), as in infra/gpu/pool.py"

    def check(self, context: Context) -> Iterator[Violation]:
        for group in context.all(types.NODE_GROUP):
            empty = fields.get(group.inputs, "scalingConfig", "minSize") == 0
            if not empty or not taints(group) or fields.is_unknown(fields.get(group.inputs, "tags")):
                continue
            tags = fields.mapping(group.inputs, "tags")
            if missing := [name for name in self._NEEDED if f"{TEMPLATE}{name}" not in tags]:
                fix = f"tags {', '.join(f'{TEMPLATE}{name}' for name in missing)}, from nodes.template_tags()"
                yield violation(group, f"no tag says how much of {', '.join(missing)} its nodes offer", fix=fix)

    _NEEDED: ClassVar = (GPU, "cpu", "memory", "ephemeral-storage")

    def examples(self) -> Examples:
        tags = {f"{TEMPLATE}{name}": "1" for name in self._NEEDED}
        passing = example(_gpu_group(scalingConfig={"minSize": 0}, tags=tags))
        return Examples(passing, example(_gpu_group(scalingConfig={"minSize": 0})))


class TaintSpelling(Rule):
    id = "CON005"
    severity: ClassVar[Severity] = "error"
    title = "Taints are spelled as each API spells them"
    why = "EKS takes NO_SCHEDULE and Kubernetes NoSchedule; the wrong one is refused, or matches nothing."
    fix = "NO_SCHEDULE in node groups; NoSchedule in tolerations and user data"

    def check(self, context: Context) -> Iterator[Violation]:
        kubernetes = (*EKS_EFFECTS.values(), "")
        for group in context.all(types.NODE_GROUP):
            for taint in fields.items(group.inputs, "taints"):
                effect = fields.get(taint, "effect")
                if str(effect) not in EKS_EFFECTS and not fields.is_unknown(effect):
                    fix = f"one of {', '.join(EKS_EFFECTS)}"
                    yield violation(group, f"the effect {effect} of a taint is not EKS's", fix=fix)
        for work in workloads(context):
            for toleration in work.tolerations:
                effect = fields.get(toleration, "effect")
                if str(effect or "") not in kubernetes and not fields.is_unknown(effect):
                    message = f"{work.what}: {effect} is no effect of a toleration in Kubernetes"
                    yield violation(work.resource, message, fix=f"one of {', '.join(EKS_EFFECTS.values())}")

    def examples(self) -> Examples:
        passing = example(_gpu_group())
        return Examples(passing, example(_gpu_group(taints=[{"key": GPU, "value": "true", "effect": "NoSchedule"}])))


class SameArc(Rule):
    id = "CON006"
    severity: ClassVar[Severity] = "error"
    title = "ARC's controller and its scale sets are of one version"
    why = "The controller deletes scale sets of another minor, with the jobs that run in them."
    fix = "take both from versions.ARC"

    def check(self, context: Context) -> Iterator[Violation]:
        controllers = [r for r in context.all(types.RELEASE) if chart(r) == "gha-runner-scale-set-controller"]
        for controller in controllers:
            expected = fields.get(controller.inputs, "version")
            for release in scale_sets(context):
                version = fields.get(release.inputs, "version")
                if version != expected and not fields.is_unknown(version) and not fields.is_unknown(expected):
                    yield violation(
                        release,
                        f"version {version or 'not pinned'}, but {controller.name} is {expected or 'not pinned'}",
                    )

    def examples(self) -> Examples:
        return Examples(self._arc("0.14.2"), self._arc("0.13.1"))

    @staticmethod
    def _arc(version: str) -> Context:
        return example(
            resource(
                types.RELEASE, "arc", {"chart": CHARTS["gha-runner-scale-set-controller"].source, "version": "0.14.2"}
            ),
            resource(types.RELEASE, "gpu", {"chart": SCALE_SET_CHART, "version": version}),
        )


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

    def examples(self) -> Examples:
        passing = example(resource(types.NAMESPACE, "runners", {"metadata": {"name": "arc-runners"}}))
        return Examples(
            passing, example(resource(types.NAMESPACE, "runners", {"metadata": {"name": "arc-runners"}}, provider=""))
        )


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

    def examples(self) -> Examples:
        return Examples(example(resource(types.QUEUE, "queue")), example(resource(types.QUEUE, "queue", provider="")))


RULES = (
    Tolerated(), Selected(), ScaleFromZero(), TaintSpelling(), SameArc(), NamedCluster(), NamedAccount(),
)  # fmt: skip
