"""Namespaces of the cluster: pod security, service accounts and network policies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fnmatch import filter as filter_names
from typing import Any, ClassVar

from infra.component import LINK_LOCAL
from paddock.fleet.model.network import PRIVATE_RANGES
from paddock.labels import PRIVILEGED_BECAUSE
from paddock.plan import fields
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Resource
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, violation
from paddock.plan.rules.inputs.pods import Pod, is_in, name_of, namespace_of, pods

ROLES = (types.KUBERNETES_ROLE, types.CLUSTER_ROLE)
BINDINGS = (types.ROLE_BINDING, types.CLUSTER_ROLE_BINDING)
LEVEL = "pod-security.kubernetes.io/enforce"
IMDS = "169.254.169.254"


def privileged(container: Mapping[str, Any]) -> bool:
    return fields.get(container, "securityContext", "privileged") is True


def host_path(volume: Any) -> str:
    """Return the path of the host that a volume mounts; empty for any other volume."""
    return fields.text(volume, "hostPath", "path")


def says_why(context: Context, pod: Pod) -> bool:
    """Return whether the pod's namespace states why its pods are more than ordinary ones."""
    return any(
        is_in(pod.resource, namespace)
        and fields.is_set(fields.get(namespace.inputs, "metadata", "annotations", PRIVILEGED_BECAUSE))
        for namespace in context.all(types.NAMESPACE)
    )


class PodSecurity(Rule):
    id = "PAD028"
    severity: ClassVar[Severity] = "error"
    title = "Namespaces enforce a Pod Security level; privileged ones say why and hold nothing else"
    why = "A privileged pod is root on its node; in a namespace without a level any workflow can ask for one."
    fix = (
        f"label {LEVEL}: baseline or restricted; for privileged pods a namespace of their own, with"
        f" {PRIVILEGED_BECAUSE}"
    )
    equivalents = (*(f"CIS 4.2.{n}" for n in range(1, 6)), "KSV-0001", "KSV-0012", "KSV-0017", "KSV-0118", "KSV-0104")

    def check(self, context: Context) -> Iterator[Violation]:
        levels: list[tuple[Resource, str]] = []
        own = f"a namespace of their own, with {LEVEL}: privileged and {PRIVILEGED_BECAUSE}"
        for namespace in context.all(types.NAMESPACE):
            level = fields.get(namespace.inputs, "metadata", "labels", LEVEL)
            if fields.is_unknown(level):
                continue
            levels.append((namespace, str(level)))
            if level not in ("restricted", "baseline", "privileged"):
                fix = f"the label {LEVEL}: baseline"
                yield violation(namespace, "it enforces no Pod Security level", fix=fix)
            elif level == "privileged" and not fields.is_set(
                fields.get(namespace.inputs, "metadata", "annotations", PRIVILEGED_BECAUSE)
            ):
                fix = f"the annotation {PRIVILEGED_BECAUSE}, with the reason; or {LEVEL}: baseline"
                yield violation(namespace, f"it allows privileged pods and has no {PRIVILEGED_BECAUSE}", fix=fix)
        for pod in pods(context):
            needs = any(map(privileged, pod.containers)) or any(
                fields.is_on(pod.spec.get(key)) for key in HOST_NAMESPACES
            )
            mounts = pod.kind == "object" and any(host_path(volume) for volume in fields.items(pod.spec, "volumes"))
            level = next((level for namespace, level in levels if is_in(pod.resource, namespace)), None)
            if needs and level != "privileged":
                message = f"{pod.where} are privileged, which {pod.namespace or 'its namespace'} is not for"
                yield violation(pod.resource, message, fix=own)
            elif mounts and level != "privileged":
                message = f"{pod.where} mount files of the host, which {pod.namespace or 'its namespace'} refuses"
                yield violation(pod.resource, message, fix=own)
            elif pod.kind == "runner" and level == "privileged" and not needs:
                message = f"{pod.where} need no privileges, but {pod.namespace} would grant them"
                yield violation(pod.resource, message, fix="a namespace with the level baseline, such as arc-runners")


HOST_NAMESPACES = ("hostNetwork", "hostPID", "hostIPC")


_AS_OTHERS = ("bind", "escalate", "impersonate")
_INTO_OTHERS = ("nodes/proxy", "pods/attach", "pods/ephemeralcontainers", "pods/exec", "serviceaccounts/token")
"""A role may name them by `pods/*` and `*/exec`, too."""


class ServiceAccounts(Rule):
    id = "PAD029"
    severity: ClassVar[Severity] = "error"
    milder = True
    title = "Jobs hold no Kubernetes token that no admission policy bounds; other pods have accounts with few rights"
    why = "A token in a job's pod is in the hands of whatever the job downloads."
    fix = (
        "automountServiceAccountToken: false on job pods; a ValidatingAdmissionPolicy that denies, with failurePolicy"
        " Fail, for one that is mounted; serviceAccountName elsewhere; named verbs and resources"
    )
    equivalents = (
        *(f"CIS 4.1.{n}" for n in (2, 3, 4, 5, 6, 8)), "KSV-0041", "KSV-0048", "access-to-secrets",
        "default-service-account",
    )  # fmt: skip

    def check(self, context: Context) -> Iterator[Violation]:
        bounded = dict(self._bounded(context))
        for pod in pods(context):
            if pod.kind in ("runner", "job") and self._mounts_token(pod):
                used = fields.text(pod.spec, "serviceAccountName") or "default"
                seen = [at for condition, at in bounded.items() if f"{pod.namespace}:{used}'" in condition]
                if not seen:
                    fix = f"a ValidatingAdmissionPolicy that denies, with failurePolicy Fail, for the account {used}"
                    message = f"{pod.where} mount a token that no admission policy bounds"
                    yield violation(pod.resource, message, fix=fix)
                else:
                    yield from self._unbounded(context, pod, used, {part for parts in seen for part in parts})
            mode = fields.text(pod.resource.inputs, "values", "containerMode", "type")
            steers = pod.kind == "runner" and mode.startswith("kubernetes")  # ARC gives it an account to make job pods
            if steers and not pod.spec.get("serviceAccountName"):
                # The hook refuses to work with less, and ARC reads the credential in its scale set's namespace only.
                secret = fields.text(pod.resource.inputs, "values", "githubConfigSecret") or "the credential"
                message = f"ARC's chart lets the account that steers jobs read {secret} (docs/security.md)"
                fix = f"runners.{pod.resource.name}.container: none, or a stack of its own with a GitHub App of its own"
                yield violation(pod.resource, message, "info", fix=fix)
            token = fields.get(pod.spec, "automountServiceAccountToken")
            if pod.kind == "listener" or steers or token is False or fields.is_unknown(token):
                continue
            account = pod.spec.get("serviceAccountName")
            if pod.kind in ("runner", "job"):
                fix = "automountServiceAccountToken: false"
                yield violation(pod.resource, f"{pod.where} get a Kubernetes token", fix=fix)
            elif account in (None, "", "default"):
                fix = "serviceAccountName: an account of their own; or automountServiceAccountToken: false"
                yield violation(pod.resource, f"{pod.where} use the namespace's default account", fix=fix)
        for role in context.all(*ROLES):
            for rule in fields.items(role.inputs, "rules"):
                for key in ("verbs", "resources", "apiGroups"):
                    if "*" in fields.items(rule, key):
                        yield violation(
                            role, f"a rule allows every one of {key}", fix=f"rules.{key}: those that are needed"
                        )
                if "secrets" in fields.items(rule, "resources"):
                    yield violation(role, "a rule allows to read secrets", fix="remove secrets from rules.resources")
                for key, of_others in (("verbs", _AS_OTHERS), ("resources", _INTO_OTHERS)):
                    patterns = [str(pattern) for pattern in fields.items(rule, key) if pattern != "*"]
                    if rights := ", ".join(pattern for pattern in patterns if filter_names(of_others, pattern)):
                        message = f"a rule allows {rights}, by which its holder has the rights of others"
                        yield violation(role, message, fix=f"rules.{key}: without {rights}")
        for binding in context.all(*BINDINGS):
            if fields.text(binding.inputs, "roleRef", "name") == "cluster-admin":
                fix = "roleRef: a role with the verbs and resources that are needed"
                yield violation(binding, "it grants cluster-admin", fix=fix)
            for subject in fields.items(binding.inputs, "subjects"):
                who = fields.text(subject, "name")
                anyone = who in ("system:anonymous", "system:unauthenticated", "system:authenticated")
                # The last is also that of the account whose token a job mounts.
                if (
                    anyone
                    or who.startswith("system:serviceaccounts")
                    or (fields.text(subject, "kind") == "ServiceAccount" and who == "default")
                ):
                    fix = "subjects: a ServiceAccount of its own"
                    yield violation(binding, f"{who} is not one account", fix=fix)

    @staticmethod
    def _mounts_token(pod: Pod) -> bool:
        return any(
            fields.is_set(fields.get(source, "serviceAccountToken"))
            for volume in fields.items(pod.spec, "volumes")
            for source in fields.items(volume, "projected", "sources")
        )

    @staticmethod
    def _unbounded(context: Context, pod: Pod, account: str, seen: Collection[str]) -> Iterator[Violation]:
        """Find rights of a job's account that its policies, which look at changes of `seen`, never see used."""
        roles = {(item.type.rpartition(":")[2], name_of(item)): item for item in context.all(*ROLES)}
        for binding in context.all(*BINDINGS):
            whose = [
                (fields.text(subject, "kind"), fields.text(subject, "name"), fields.text(subject, "namespace"))
                for subject in fields.items(binding.inputs, "subjects")
            ]
            reference = fields.get(binding.inputs, "roleRef")
            if ("ServiceAccount", account, pod.namespace) not in whose or fields.has_unknown(reference):
                continue
            role = roles.get((fields.text(reference, "kind"), fields.text(reference, "name")))
            if role is None:
                fix = "a role that is declared here, of which a policy bounds every right"
                yield violation(binding, f"the token of {pod.where} gets a role that is declared elsewhere", fix=fix)
                continue
            for rule in fields.items(role.inputs, "rules"):
                reads = [verb for verb in fields.items(rule, "verbs") if verb in ("get", "list", "watch")]
                rest = [
                    part for part in fields.items(rule, "resources") if part not in seen and not _any_of(part, seen)
                ]
                if reads:
                    message = f"the token of {pod.where} may {', '.join(reads)}, and no admission policy sees a read"
                    yield violation(role, message, fix=f"rules.verbs: without {', '.join(reads)}")
                if rest and not fields.has_unknown([rest, *seen]):
                    message = (
                        f"the token of {pod.where} is for {', '.join(rest)} too, which its policy does not look at"
                    )
                    yield violation(role, message, fix=f"rules.resources: without {', '.join(rest)}")

    @staticmethod
    def _bounded(context: Context) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield (condition, resources) of the policies that deny, and that deny too where they cannot be judged."""
        enforced = [
            fields.get(binding.inputs, "spec", "policyName")
            for binding in context.all(types.VALIDATING_ADMISSION_POLICY_BINDING)
            if "Deny" in fields.items(binding.inputs, "spec", "validationActions")
        ]
        for policy in context.all(types.VALIDATING_ADMISSION_POLICY):
            fails = fields.get(policy.inputs, "spec", "failurePolicy") in (None, "Fail")
            if fails and any(fields.is_unknown(name) or name == name_of(policy) for name in enforced):
                matched = fields.items(policy.inputs, "spec", "matchConstraints", "resourceRules")
                parts = tuple(str(part) for rule in matched for part in fields.items(rule, "resources"))
                for condition in fields.items(policy.inputs, "spec", "matchConditions"):
                    yield fields.text(condition, "expression"), parts


def _any_of(part: Any, seen: Collection[str]) -> bool:
    """Return whether a policy's resources have a wildcard for one of a role's."""
    whole, _, sub = str(part).partition("/")
    return bool({"*/*", f"{whole}/*" if sub else "*"} & set(seen))


class Isolated(Rule):
    id = "PAD030"
    severity: ClassVar[Severity] = "error"
    title = "Every namespace of ours denies traffic by default and cuts pods off from instance metadata"
    why = "Without a policy each job reaches every other pod, and on a misconfigured node the node's own credentials."
    fix = f"a NetworkPolicy with podSelector {{}}, both policyTypes, and {IMDS} among the exceptions"
    equivalents = ("CIS 4.3.1", "CIS 4.3.2", "non-isolated-pod")

    def check(self, context: Context) -> Iterator[Violation]:
        policies = list(context.all(types.NETWORK_POLICY))
        for policy in policies:
            for cidr, exceptions, _ in _open(policy):
                if fields.contains(cidr, IMDS) and not any(
                    fields.is_unknown(e) or fields.contains(e, IMDS) for e in exceptions
                ):
                    fix = f"ipBlock.except of {cidr}: {LINK_LOCAL}"
                    yield violation(policy, f"its egress to {cidr} reaches {IMDS}", fix=fix)
        for namespace in context.all(types.NAMESPACE):
            here = [policy for policy in policies if is_in(policy, namespace)]
            if not any(map(self._denies, here)):
                fix = "a NetworkPolicy with podSelector {} and policyTypes [Ingress, Egress]"
                yield violation(namespace, "it has no NetworkPolicy that denies by default", fix=fix)
            for policy in here:
                if any(map(self._lets_in, fields.items(policy.inputs, "spec", "ingress"))):
                    fix = "ingress.from: the namespaces and pods that call"
                    yield violation(policy, "it lets everybody in who has a way here", fix=fix)
        of_jobs = _of_jobs(context)
        for policy in policies:
            if namespace_of(policy) in of_jobs and any(map(_is_any_pod, _callees(policy))):
                fix = "egress.to: a namespaceSelector and a podSelector with labels"
                yield violation(policy, "jobs reach pods of every namespace, or each other", fix=fix)

    @staticmethod
    def _lets_in(rule: Any) -> bool:
        if fields.is_unknown(rule) or fields.has_unknown(fields.get(rule, "from")):
            return False
        peers = fields.items(rule, "from")
        return not peers or any(fields.is_internet(fields.get(peer, "ipBlock", "cidr")) for peer in peers)

    @staticmethod
    def _denies(policy: Resource) -> bool:
        spec = fields.get(policy.inputs, "spec")
        kinds = fields.get(spec, "policyTypes")
        everyone = not fields.mapping(spec, "podSelector")
        return everyone and (fields.has_unknown(kinds) or {"Ingress", "Egress"} <= set(map(str, fields.as_list(kinds))))


def _of_jobs(context: Context) -> set[str]:
    """Return the namespaces that jobs run in."""
    return {pod.namespace for pod in pods(context) if pod.kind in ("runner", "job")} - {""}


def _callees(policy: Resource) -> Iterator[Any]:
    for rule in fields.items(policy.inputs, "spec", "egress"):
        yield from fields.items(rule, "to")


def _is_any_pod(peer: Any) -> bool:
    """Return whether a peer is every pod of the cluster, or every pod of the namespace of the policy."""
    if fields.is_unknown(peer) or fields.has_unknown(peer) or not isinstance(peer, Mapping):
        return False
    selectors = [fields.get(peer, key) for key in ("namespaceSelector", "podSelector")]
    return any(selector is not None for selector in selectors) and not any(map(fields.is_set, selectors))


def _open(policy: Resource) -> Iterator[tuple[str, list[Any], bool]]:
    """Yield the ranges that a policy lets pods call: (range, exceptions, whether on some ports only)."""
    for rule in fields.items(policy.inputs, "spec", "egress"):
        ports = fields.is_set(fields.get(rule, "ports"))
        if not fields.is_set(fields.get(rule, "to")):
            yield "0.0.0.0/0", [], ports
        for peer in fields.items(rule, "to"):
            if cidr := fields.text(peer, "ipBlock", "cidr"):
                yield cidr, fields.as_list(fields.get(peer, "ipBlock", "except")), ports


class PrivateNetworksShut(Rule):
    id = "PAD037"
    severity: ClassVar[Severity] = "warning"
    title = "Jobs reach no private network as a whole"
    why = "Strangers' code that reaches the VPC, its peers or the network on premises finds every service there."
    fix = "network.egress.allow: only the networks that jobs need, or nothing"

    def check(self, context: Context) -> Iterator[Violation]:
        vpcs = [fields.text(vpc.inputs, "cidrBlock") for vpc in context.all(types.VPC)]
        services = [
            fields.text(cluster.inputs, "kubernetesNetworkConfig", "serviceIpv4Cidr")
            for cluster in context.all(types.CLUSTER)
        ]
        shut = dict.fromkeys((*PRIVATE_RANGES, *filter(None, (*vpcs, *services))))
        for policy in context.all(types.NETWORK_POLICY):
            if namespace_of(policy) not in _of_jobs(context):
                continue
            whole: list[str] = []
            for cidr, exceptions, some_ports in _open(policy):
                if some_ports or any(map(fields.is_unknown, exceptions)):
                    continue
                if not exceptions:
                    whole.append(cidr)
                reached = [
                    network
                    for network in shut
                    if fields.covers(cidr, network) and not any(fields.covers(e, network) for e in exceptions)
                ]
                if reached:
                    named = context.fleet is not None and cidr in context.fleet.network.egress.allow
                    fix = f"ipBlock.except of {cidr}: {', '.join(reached)}"
                    fix = f"network.egress.allow: only those parts of {cidr} that jobs need" if named else fix
                    yield violation(policy, f"jobs reach all of {', '.join(reached)}", fix=fix)
            yield from self._together(policy, whole, list(shut))
            yield from self._kubernetes(policy, whole, services)

    @staticmethod
    def _together(policy: Resource, whole: list[str], shut: list[str]) -> Iterator[Violation]:
        """Find networks of which every part is open, and no range covers the whole."""
        joined = fields.joined(whole)
        alone = [network for network in shut if any(fields.covers(cidr, network) for cidr in whole)]
        reached = [
            network for network in shut if network not in alone and any(fields.covers(cidr, network) for cidr in joined)
        ]
        if reached:
            fix = "network.egress.allow: only the parts that jobs need"
            yield violation(policy, f"jobs reach all of {', '.join(reached)}, part by part", fix=fix)

    @staticmethod
    def _kubernetes(policy: Resource, whole: list[str], services: list[str]) -> Iterator[Violation]:
        """Find the Kubernetes API, the first address of services, among what all jobs reach."""
        if fields.mapping(policy.inputs, "spec", "podSelector"):
            return
        for first in filter(None, map(fields.first_address, services)):
            found = [cidr for cidr in whole if fields.contains(cidr, first)]
            if found and not any(fields.covers(cidr, network) for cidr in found for network in services if network):
                fix = f"network.egress.allow: without {first}, the address of the Kubernetes API"
                yield violation(policy, f"every job reaches the Kubernetes API, which is in {found[0]}", fix=fix)


RULES = (PodSecurity(), ServiceAccounts(), Isolated(), PrivateNetworksShut())
