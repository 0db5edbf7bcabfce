"""Names that are too long, and names of what is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from paddock.fleet.model.runner import SCALE_SET_NAME_MAX
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Hit, Rule, example, hit, resource
from paddock.plan.rules.inputs import access
from paddock.plan.rules.inputs.pods import CONFIG_MAP, RELEASE, name_of, namespace_of, pods, scale_sets
from paddock.plan.rules.kubernetes import NAMESPACE, SECRET, runners
from paddock.plan.rules.network import NODE_GROUP

_SUFFIX = 8
"""A dash and seven digits: what Pulumi appends to a name it chooses."""
_LIMITS: Mapping[str, int] = {
    NODE_GROUP: 63,
    "aws:iam/role:Role": 64,
    "aws:iam/rolePolicy:RolePolicy": 128,
    "aws:iam/instanceProfile:InstanceProfile": 128,
    "aws:ec2/launchTemplate:LaunchTemplate": 128,
    "aws:ec2/securityGroup:SecurityGroup": 255,
    "aws:eks/cluster:Cluster": 100,
    "aws:ecr/repository:Repository": 256,
    RELEASE: 53,
}
_KUBERNETES_LIMITS: Mapping[str, int] = {
    "kubernetes:batch/v1:CronJob": 52,
    NAMESPACE: 63,
    "kubernetes:core/v1:Service": 63,
}
_AUTONAME_PROPERTIES = {NODE_GROUP: "nodeGroupName"}


class Names(Rule):
    id = "CON-09"
    severity: ClassVar[Severity] = "error"
    title = "Names are within the limits of who takes them"
    why = "A name too long is found out when everything before it has been made."
    fix = "a shorter name for the pool, the runner or the fleet"

    def check(self, context: Context) -> Iterator[Hit]:
        for type_, limit in _LIMITS.items():
            for made in context.all(type_):
                key = _AUTONAME_PROPERTIES.get(type_, "name")
                name = access.at(made.inputs, key)
                length = len(name) if isinstance(name, str) else len(made.name) + _SUFFIX
                if not access.unknown(name) and length > limit:
                    yield hit(made, f"a name of {length} characters, where {limit} fit")
        for made in context.graph.resources.values():
            if made.type.startswith("kubernetes:") and made.type != RELEASE:
                limit, name = _KUBERNETES_LIMITS.get(made.type, 253), name_of(made)
                if len(name) > limit:
                    yield hit(made, f"{name} has {len(name)} characters, where {limit} fit")
        for release in scale_sets(context):
            name = access.text(release.inputs, "values", "runnerScaleSetName") or access.text(release.inputs, "name")
            if len(name) > SCALE_SET_NAME_MAX:
                yield hit(release, f"a scale set's name of {len(name)} characters, where {SCALE_SET_NAME_MAX} fit")

    def example_pass(self) -> Context:
        return example(resource("aws:iam/role:Role", "node"))

    def example_fail(self) -> Context:
        return example(resource("aws:iam/role:Role", "n" * 60))


class References(Rule):
    id = "CON-10"
    severity: ClassVar[Severity] = "error"
    title = "What pods mount, and the namespaces they are put into, exist"
    why = "A pod that names a ConfigMap of another namespace never starts, and ARC tries again for ever."
    fix = "declare the ConfigMap in the pod's namespace, and take names from the object that is referred to"

    _GIVEN = frozenset({"kube-system", "default", "kube-public", ""})

    def check(self, context: Context) -> Iterator[Hit]:
        ours = {name_of(made) for made in context.all(NAMESPACE)}
        named = {name_of(made) and namespace_of(made) for made in context.all(CONFIG_MAP, SECRET)}
        if not ours or "" in ours | named:  # a name that is not known yet may be any
            return
        maps = {(namespace_of(made), name_of(made)) for made in context.all(CONFIG_MAP)}
        for made in context.graph.resources.values():
            namespace = namespace_of(made) if made.type.startswith("kubernetes:") and made.type != NAMESPACE else ""
            if namespace not in ours | self._GIVEN:
                yield hit(made, f"there is no namespace {namespace}")
        for pod in pods(context):
            if pod.namespace in ours:
                for volume in access.each(pod.spec, "volumes"):
                    name = access.text(volume, "configMap", "name")
                    if name and (pod.namespace, name) not in maps:
                        yield hit(pod.resource, f"there is no ConfigMap {name} in {pod.namespace}")
        secrets = {(namespace_of(made), name_of(made)) for made in context.all(SECRET)}
        foreign = context.fleet.github.kubernetes_secret if context.fleet else None
        for release in scale_sets(context):
            name, namespace = access.text(release.inputs, "values", "githubConfigSecret"), namespace_of(release)
            if name and name != foreign and namespace in ours and (namespace, name) not in secrets:
                yield hit(release, f"there is no secret {name} in {namespace}")

    def example_pass(self) -> Context:
        return self._mounting("arc-runners")

    def example_fail(self) -> Context:
        return self._mounting("arc-systems")

    @staticmethod
    def _mounting(namespace: str) -> Context:
        return example(
            resource(NAMESPACE, "runners", {"metadata": {"name": "arc-runners"}}),
            resource(NAMESPACE, "systems", {"metadata": {"name": "arc-systems"}}),
            resource(CONFIG_MAP, "hooks", {"metadata": {"name": "hooks", "namespace": namespace}}),
            runners({"template": {"spec": {"volumes": [{"name": "hooks", "configMap": {"name": "hooks"}}]}}}),
        )


RULES = (Names(), References())
