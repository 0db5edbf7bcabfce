"""Names that are too long, and names of what is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from paddock.catalog.limits import limit as limit_of
from paddock.fleet.model.runner import SCALE_SET_NAME_MAX
from paddock.plan import fields
from paddock.plan.engine import resource_types as types
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, violation
from paddock.plan.rules.inputs.pods import name_of, namespace_of, pods, scale_sets

_SUFFIX = 8
"""A dash and seven digits: what Pulumi appends to a name it chooses."""
_LIMITS: Mapping[str, int] = {
    types.NODE_GROUP: limit_of("eks.node-group-name"),
    types.ROLE: limit_of("iam.role-name"),
    types.ROLE_POLICY: limit_of("iam.policy-name"),
    types.INSTANCE_PROFILE: limit_of("iam.instance-profile-name"),
    types.LAUNCH_TEMPLATE: limit_of("ec2.launch-template-name"),
    types.SECURITY_GROUP: limit_of("ec2.security-group-name"),
    types.CLUSTER: limit_of("eks.cluster-name"),
    types.REPOSITORY: limit_of("ecr.repository-name"),
    types.RELEASE: limit_of("helm.release-name"),
}
_KUBERNETES_LIMITS: Mapping[str, int] = {
    types.CRON_JOB: limit_of("kubernetes.cron-job-name"),
    types.NAMESPACE: limit_of("kubernetes.label-name"),
    types.SERVICE: limit_of("kubernetes.label-name"),
}
_AUTONAME_PROPERTIES = {types.NODE_GROUP: "nodeGroupName"}


class Names(Rule):
    id = "CON009"
    severity: ClassVar[Severity] = "error"
    title = "Names are within the limits of who takes them"
    why = "A name too long is found out when everything before it has been made."
    fix = "a shorter name for the pool, the runner or the fleet"

    def check(self, context: Context) -> Iterator[Violation]:
        for type_, limit in _LIMITS.items():
            for item in context.all(type_):
                key = _AUTONAME_PROPERTIES.get(type_, "name")
                name = fields.get(item.inputs, key)
                length = len(name) if isinstance(name, str) else len(item.name) + _SUFFIX
                if not fields.is_unknown(name) and length > limit:
                    fix = f"a name of {limit - (0 if isinstance(name, str) else _SUFFIX)} characters or fewer"
                    yield violation(item, f"a name of {length} characters, where {limit} fit", fix=fix)
        for item in context.graph.resources.values():
            if item.type.startswith("kubernetes:") and item.type != types.RELEASE:
                limit, name = _KUBERNETES_LIMITS.get(item.type, limit_of("kubernetes.object-name")), name_of(item)
                if len(name) > limit:
                    message = f"{name} has {len(name)} characters, where {limit} fit"
                    yield violation(item, message, fix=f"metadata.name: {limit} characters or fewer")
        for release in scale_sets(context):
            name = fields.text(release.inputs, "values", "runnerScaleSetName") or fields.text(release.inputs, "name")
            if len(name) > SCALE_SET_NAME_MAX:
                extent = f"{len(name)} characters, where {SCALE_SET_NAME_MAX} fit"
                fix = f"runners.{release.name}.name: {SCALE_SET_NAME_MAX} characters or fewer"
                yield violation(release, f"a scale set's name of {extent}", fix=fix)


class References(Rule):
    id = "CON010"
    severity: ClassVar[Severity] = "error"
    title = "What pods mount, and the namespaces they are put into, exist"
    why = "A pod that names a ConfigMap of another namespace never starts, and ARC tries again for ever."
    fix = "declare the ConfigMap in the pod's namespace, and take names from the object that is referred to"

    _BUILT_IN = frozenset({"kube-system", "default", "kube-public", ""})

    def check(self, context: Context) -> Iterator[Violation]:
        namespaces = {name_of(item) for item in context.all(types.NAMESPACE)}
        named = {name_of(item) and namespace_of(item) for item in context.all(types.CONFIG_MAP, types.SECRET)}
        if not namespaces or "" in namespaces | named:  # a name that is not known yet may be any
            return
        maps = {(namespace_of(item), name_of(item)) for item in context.all(types.CONFIG_MAP)}
        for item in context.graph.resources.values():
            namespace = (
                namespace_of(item) if item.type.startswith("kubernetes:") and item.type != types.NAMESPACE else ""
            )
            if namespace not in namespaces | self._BUILT_IN:
                yield violation(item, f"there is no namespace {namespace}", fix=f"a Namespace {namespace}")
        for pod in pods(context):
            if pod.namespace in namespaces:
                for volume in fields.items(pod.spec, "volumes"):
                    name = fields.text(volume, "configMap", "name")
                    if name and (pod.namespace, name) not in maps:
                        message = f"there is no ConfigMap {name} in {pod.namespace}"
                        yield violation(pod.resource, message, fix=f"a ConfigMap {name} in {pod.namespace}")
        secrets = {(namespace_of(item), name_of(item)) for item in context.all(types.SECRET)}
        foreign = context.fleet.github.kubernetes_secret if context.fleet else None
        for release in scale_sets(context):
            name, namespace = fields.text(release.inputs, "values", "githubConfigSecret"), namespace_of(release)
            if name and name != foreign and namespace in namespaces and (namespace, name) not in secrets:
                fix = f"a Secret {name} in {namespace}, or github.token: kubernetes:{name}"
                yield violation(release, f"there is no secret {name} in {namespace}", fix=fix)


RULES = (Names(), References())
