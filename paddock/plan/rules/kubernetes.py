"""What runs in the cluster, and what it may do there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from infra.charts import CHARTS
from infra.component import PRIVILEGED_BECAUSE
from paddock.plan.engine.graph import Resource
from paddock.plan.engine.resource_types import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    KUBERNETES_ROLE,
    NAMESPACE,
    NETWORK_POLICY,
    RELEASE,
    ROLE_BINDING,
    RUNNER_DEPLOYMENT,
    SECRET,
    VALIDATING_ADMISSION_POLICY,
    VALIDATING_ADMISSION_POLICY_BINDING,
)
from paddock.plan.engine.values import Secret
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, example, resource, violation
from paddock.plan.rules.inputs import fields
from paddock.plan.rules.inputs.pods import Pod, chart, is_in, name_of, pods, scale_sets

ROLES = (KUBERNETES_ROLE, CLUSTER_ROLE)
BINDINGS = (
    ROLE_BINDING,
    CLUSTER_ROLE_BINDING,
)
LEVEL = "pod-security.kubernetes.io/enforce"
IMDS = "169.254.169.254"
SCALE_SET_CHART = CHARTS["gha-runner-scale-set"].source


def runners(values: Mapping[str, Any], namespace: str = "arc-runners", name: str = "gpu") -> Resource:
    """A scale set for an example."""
    return resource(
        RELEASE, name, {"chart": SCALE_SET_CHART, "name": name, "namespace": namespace, "values": dict(values)}
    )


def _runner_pod(**spec: Any) -> Context:
    return example(runners({"template": {"spec": {"automountServiceAccountToken": False, **spec}}}))


def _namespace(level: str | None, **annotations: str) -> Resource:
    labels = {LEVEL: level} if level else {}
    return resource(
        NAMESPACE, "runners", {"metadata": {"name": "arc-runners", "labels": labels, "annotations": annotations}}
    )


def privileged(container: Mapping[str, Any]) -> bool:
    return fields.get(container, "securityContext", "privileged") is True


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
        for namespace in context.all(NAMESPACE):
            level = fields.get(namespace.inputs, "metadata", "labels", LEVEL)
            if fields.is_unknown(level):
                continue
            levels.append((namespace, str(level)))
            if level not in ("restricted", "baseline", "privileged"):
                yield violation(namespace, "it enforces no Pod Security level")
            elif level == "privileged" and not fields.is_set(
                fields.get(namespace.inputs, "metadata", "annotations", PRIVILEGED_BECAUSE)
            ):
                yield violation(namespace, f"it allows privileged pods and has no {PRIVILEGED_BECAUSE}")
        for pod in pods(context):
            needs = any(map(privileged, pod.containers)) or any(fields.is_on(pod.spec.get(key)) for key in _HOST)
            level = next((level for namespace, level in levels if is_in(pod.resource, namespace)), None)
            if needs and level != "privileged":
                yield violation(
                    pod.resource, f"{pod.where} are privileged, which {pod.namespace or 'its namespace'} is not for"
                )
            elif pod.kind == "runner" and level == "privileged" and not needs:
                yield violation(pod.resource, f"{pod.where} need no privileges, but {pod.namespace} would grant them")

    def passing_example(self) -> Context:
        return example(_namespace("baseline"))

    def failing_example(self) -> Context:
        return example(_namespace(None))


_HOST = ("hostNetwork", "hostPID", "hostIPC")


class ServiceAccounts(Rule):
    id = "PAD029"
    severity: ClassVar[Severity] = "error"
    title = "Jobs hold no Kubernetes token that no admission policy bounds; other pods have accounts with few rights"
    why = "A token that lies in a job's pod is in the hands of whatever the job downloads."
    fix = (
        "automountServiceAccountToken: false on job pods; a ValidatingAdmissionPolicy that denies, with failurePolicy"
        " Fail, for one that is mounted; serviceAccountName elsewhere; named verbs and resources"
    )
    equivalents = (
        *(f"CIS 4.1.{n}" for n in range(2, 7)), "KSV-0041", "KSV-0048", "access-to-secrets", "default-service-account"
    )  # fmt: skip

    def check(self, context: Context) -> Iterator[Violation]:
        bounded = list(self._bounded(context))
        for pod in pods(context):
            if pod.kind in ("runner", "job") and self._mounts_token(pod):
                used = fields.text(pod.spec, "serviceAccountName") or "default"
                if not any(f"{pod.namespace}:{used}'" in condition for condition in bounded):
                    yield violation(pod.resource, f"{pod.where} mount a token that no admission policy bounds")
            mode = fields.text(pod.resource.inputs, "values", "containerMode", "type")
            steers = pod.kind == "runner" and mode.startswith("kubernetes")  # ARC gives it an account to make job pods
            token = fields.get(pod.spec, "automountServiceAccountToken")
            if pod.kind == "listener" or steers or token is False or fields.is_unknown(token):
                continue
            account = pod.spec.get("serviceAccountName")
            if pod.kind in ("runner", "job"):
                yield violation(pod.resource, f"{pod.where} get a Kubernetes token")
            elif account in (None, "", "default"):
                yield violation(pod.resource, f"{pod.where} use the namespace's default account")
        for role in context.all(*ROLES):
            for rule in fields.items(role.inputs, "rules"):
                for key in ("verbs", "resources", "apiGroups"):
                    if "*" in fields.items(rule, key):
                        yield violation(role, f"a rule allows every one of {key}")
                if "secrets" in fields.items(rule, "resources"):
                    yield violation(role, "a rule allows to read secrets")
        for binding in context.all(*BINDINGS):
            if fields.text(binding.inputs, "roleRef", "name") == "cluster-admin":
                yield violation(binding, "it gives cluster-admin away")
            for subject in fields.items(binding.inputs, "subjects"):
                who = fields.text(subject, "name")
                anyone = who in ("system:anonymous", "system:unauthenticated", "system:authenticated")
                if anyone or (fields.text(subject, "kind") == "ServiceAccount" and who == "default"):
                    yield violation(binding, f"{who} is not one account")

    @staticmethod
    def _mounts_token(pod: Pod) -> bool:
        return any(
            fields.is_set(fields.get(source, "serviceAccountToken"))
            for volume in fields.items(pod.spec, "volumes")
            for source in fields.items(volume, "projected", "sources")
        )

    @staticmethod
    def _bounded(context: Context) -> Iterator[str]:
        """Conditions of the policies that deny, and that deny too where they cannot be judged."""
        enforced = [
            fields.get(binding.inputs, "spec", "policyName")
            for binding in context.all(VALIDATING_ADMISSION_POLICY_BINDING)
            if "Deny" in fields.items(binding.inputs, "spec", "validationActions")
        ]
        for policy in context.all(VALIDATING_ADMISSION_POLICY):
            fails = fields.get(policy.inputs, "spec", "failurePolicy") in (None, "Fail")
            if fails and any(fields.is_unknown(name) or name == name_of(policy) for name in enforced):
                for condition in fields.items(policy.inputs, "spec", "matchConditions"):
                    yield fields.text(condition, "expression")

    def passing_example(self) -> Context:
        return _runner_pod()

    def failing_example(self) -> Context:
        return _runner_pod(automountServiceAccountToken=True)


class Isolated(Rule):
    id = "PAD030"
    severity: ClassVar[Severity] = "error"
    title = "Every namespace of ours denies traffic by default and cuts pods off from instance metadata"
    why = "Without a policy each job reaches every other pod, and on a misconfigured node the node's own credentials."
    fix = f"a NetworkPolicy with podSelector {{}}, both policyTypes, and {IMDS} among the exceptions"
    equivalents = ("CIS 4.3.1", "CIS 4.3.2", "non-isolated-pod")

    def check(self, context: Context) -> Iterator[Violation]:
        policies = list(context.all(NETWORK_POLICY))
        for policy in policies:
            for cidr, exceptions in self._open(policy):
                if fields.contains(cidr, IMDS) and not any(
                    fields.is_unknown(e) or fields.contains(e, IMDS) for e in exceptions
                ):
                    yield violation(policy, f"its egress to {cidr} reaches {IMDS}")
        for namespace in context.all(NAMESPACE):
            if not any(is_in(policy, namespace) and self._denies(policy) for policy in policies):
                yield violation(namespace, "it has no NetworkPolicy that denies by default")

    @staticmethod
    def _denies(policy: Resource) -> bool:
        spec = fields.get(policy.inputs, "spec")
        types = fields.get(spec, "policyTypes")
        everyone = not fields.mapping(spec, "podSelector")
        return everyone and (fields.has_unknown(types) or {"Ingress", "Egress"} <= set(map(str, fields.as_list(types))))

    @staticmethod
    def _open(policy: Resource) -> Iterator[tuple[Any, list[Any]]]:
        for rule in fields.items(policy.inputs, "spec", "egress"):
            peers = fields.get(rule, "to")
            if not fields.is_set(peers):
                yield "0.0.0.0/0", []
            for peer in fields.items(rule, "to"):
                if cidr := fields.text(peer, "ipBlock", "cidr"):
                    yield cidr, fields.as_list(fields.get(peer, "ipBlock", "except"))

    def passing_example(self) -> Context:
        return self._with(["169.254.0.0/16"])

    def failing_example(self) -> Context:
        return self._with([])

    @staticmethod
    def _with(exceptions: list[str]) -> Context:
        spec = {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": exceptions}}]}],
        }
        policy = resource(
            NETWORK_POLICY, "default", {"metadata": {"name": "default", "namespace": "arc-runners"}, "spec": spec}
        )
        return example(_namespace("baseline"), policy)


_CREDENTIAL = re.compile(
    r"(^|_)(TOKEN|PASSWORD|PASSWD|SECRET|SECRET_ACCESS_KEY|PRIVATE_KEY|API_?KEY|CREDENTIALS?)$", re.I
)


class SecretsKept(Rule):
    id = "PAD031"
    severity: ClassVar[Severity] = "error"
    milder = True
    title = "Secrets are encrypted, stay out of environments, and runners register as a GitHub App"
    why = "An environment is printed by the first crash; a personal token has its owner's rights and leaves with them."
    fix = "pulumi config set --secret, or a Secrets Manager ARN; github.app in place of github.token"
    equivalents = ("CIS 4.4.1", "CIS 4.4.2", "env-var-secret")

    def check(self, context: Context) -> Iterator[Violation]:
        for secret in context.all(SECRET):
            for key in ("data", "stringData"):
                held = secret.inputs.get(key)
                if context.marks_secrets and fields.is_set(fields.unwrap(held)) and not self._encrypted(held):
                    yield violation(secret, f"{key} would be in the stack's state in clear")
                if "github_token" in fields.mapping(held):
                    yield violation(secret, "runners register with a personal token", "warning")
        for release in scale_sets(context):
            if isinstance(fields.get(release.inputs, "values", "githubConfigSecret"), Mapping):
                yield violation(release, "the credential is among the chart's values, which Helm keeps in clear")
        for pod in pods(context):
            for container in pod.containers:
                for variable in fields.items(container, "env"):
                    name = fields.text(variable, "name")
                    if fields.is_unknown(variable):
                        continue
                    if fields.is_set(fields.get(variable, "valueFrom", "secretKeyRef")):
                        yield violation(pod.resource, f"{name} puts a secret into the environment of {pod.where}")
                    elif _CREDENTIAL.search(name) and fields.is_set(fields.get(variable, "value")):
                        yield violation(pod.resource, f"{name} looks like a credential in clear in {pod.where}")

    @staticmethod
    def _encrypted(held: Any) -> bool:
        if isinstance(held, Mapping):
            return all(isinstance(value, Secret) or fields.is_unknown(value) for value in held.values())
        return isinstance(held, Secret) or fields.is_unknown(held)

    def passing_example(self) -> Context:
        return example(resource(SECRET, "credential", {"stringData": Secret({"github_app_private_key": "..."})}))

    def failing_example(self) -> Context:
        return example(resource(SECRET, "credential", {"stringData": {"github_app_private_key": "..."}}))


_VALUES_WITH_RESOURCES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "nvidia-device-plugin": (("resources",), ("nfd", "worker", "resources")),
    "dcgm-exporter": (("resources",),),
    "cluster-autoscaler": (("resources",),),
    "gha-runner-scale-set-controller": (("resources",),),
}


class ModestPods(Rule):
    id = "PAD032"
    severity: ClassVar[Severity] = "warning"
    title = "Pods say what they use, drop raw sockets, and touch neither the host nor its Docker"
    why = "A pod without requests is placed as if it were nothing; with the host's socket it is root on the node."
    fix = (
        "requests for CPU and memory, a memory limit, capabilities.drop, a tag or digest, emptyDir in place of hostPath"
    )
    equivalents = (
        "unset-cpu-requirements", "unset-memory-requirements", "no-read-only-root-fs", "latest-tag",
        "drop-net-raw-capability", "host-network", "docker-sock", "KSV-0014", "KSV-0022", "KSV-0106", "KSV-0121",
    )  # fmt: skip

    def check(self, context: Context) -> Iterator[Violation]:
        for pod in pods(context):
            yield from (violation(pod.resource, f"{pod.where}: {message}") for message in self._pod(pod))
        for release in context.all(RELEASE):
            for path in _VALUES_WITH_RESOURCES.get(chart(release), ()):
                if missing := _missing(fields.get(release.inputs, "values", *path)):
                    yield violation(release, f"{'.'.join(path)} gives no {missing}")

    def _pod(self, pod: Pod) -> Iterator[str]:
        for volume in fields.items(pod.spec, "volumes"):
            if path := fields.text(volume, "hostPath", "path"):
                yield f"mounts the host's {path}"
        for key in _HOST:
            if fields.is_on(pod.spec.get(key)):
                yield f"{key} is on"
        for container in pod.containers:
            yield from (f"{fields.text(container, 'name')} {message}" for message in self._container(pod, container))

    @staticmethod
    def _container(pod: Pod, container: Mapping[str, Any]) -> Iterator[str]:
        if missing := _missing(container.get("resources"), cpu_only_requests=privileged(container)):
            yield f"gives no {missing}"
        if pod.kind == "listener":  # ARC gives the rest
            return
        image, is_known = fields.text(container, "image"), not fields.is_unknown(container.get("image"))
        # A job's image is the workflow's own.
        if pod.kind != "job" and is_known and not re.search(r"@sha256:|:(?!latest$)[^/:]+$", image):
            yield "has an image that changes under its name"
        if privileged(container):  # PAD028 asks why
            return
        drops = fields.get(container, "securityContext", "capabilities", "drop")
        dropped = {str(capability).upper() for capability in fields.as_list(drops)}
        if not fields.has_unknown(drops) and not dropped & {"ALL", "NET_RAW"}:
            yield "keeps NET_RAW, with which it can forge packets of its neighbours"
        if pod.kind == "object" and not fields.is_on(
            fields.get(container, "securityContext", "readOnlyRootFilesystem")
        ):
            yield "can write to its own root file system"

    def passing_example(self) -> Context:
        return self._runner("ghcr.io/actions/actions-runner:2.336.0")

    def failing_example(self) -> Context:
        return self._runner("ghcr.io/actions/actions-runner:latest")

    @staticmethod
    def _runner(image: str) -> Context:
        container = {
            "name": "runner",
            "image": image,
            "resources": {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"memory": "8Gi"}},
            "securityContext": {"capabilities": {"drop": ["NET_RAW"]}},
        }
        return _runner_pod(containers=[container])


def _missing(resources: Any, *, cpu_only_requests: bool = False) -> str:
    """What a container does not say. A limit on CPU is not asked for: it would only slow builds down."""
    if fields.is_unknown(resources):
        return ""
    expected = [("requests", "cpu"), ("requests", "memory")]
    # A Docker daemon's limit would be that of all containers a job starts in it.
    expected += [] if cpu_only_requests else [("limits", "memory")]
    return ", ".join(f"{kind}.{key}" for kind, key in expected if not fields.is_set(fields.get(resources, kind, key)))


_OLD_RUNNERS = ("RunnerDeployment", "RunnerSet", "RunnerReplicaSet", "Runner")


class Ephemeral(Rule):
    id = "PAD033"
    severity: ClassVar[Severity] = "error"
    milder = True
    title = "A runner runs one job and is gone; its group says which repositories may use it"
    why = "A runner that outlives a job carries the job's files and processes into somebody else's."
    fix = "gha-runner-scale-set only; github.runnerGroup: a group with chosen private repositories, approval for forks"

    def check(self, context: Context) -> Iterator[Violation]:
        for release in scale_sets(context):
            values = fields.get(release.inputs, "values")
            if not fields.is_unknown(values):
                group = fields.text(values, "runnerGroup").lower() or "default"
                url = fields.text(values, "githubConfigUrl").rstrip("/")
                if group == "default" and not re.search(r"^https?://[^/]+/(?!enterprises/)[^/]+/[^/]+$", url):
                    yield violation(
                        release, "runner group Default: every repository that the group is open to may use it", "info"
                    )
        for release in context.all(RELEASE):
            if chart(release) == "actions-runner-controller":
                yield violation(release, "the old controller's runners are not ephemeral unless each one says so")
        for item in context.graph.resources.values():
            if (
                item.type.startswith("kubernetes:actions.summerwind.dev/")
                and item.type.rpartition(":")[2] in _OLD_RUNNERS
            ):
                spec = fields.get(item.inputs, "spec")
                own = fields.get(spec, "template", "spec", "ephemeral")
                if own is False or fields.get(spec, "ephemeral") is False:
                    yield violation(item, "its runners are used again for the next job")
        for pod in pods(context):
            for container in pod.containers:
                for variable in fields.items(container, "env"):
                    disabled = str(fields.get(variable, "value")).lower() in ("false", "0")
                    if fields.text(variable, "name") in ("EPHEMERAL", "RUNNER_EPHEMERAL") and disabled:
                        yield violation(pod.resource, f"{pod.where} are used again for the next job")

    def passing_example(self) -> Context:
        return example(runners({"runnerGroup": "gpu", "githubConfigUrl": "https://github.com/acme"}))

    def failing_example(self) -> Context:
        spec = {"template": {"spec": {"ephemeral": False, "organization": "acme"}}}
        return example(resource(RUNNER_DEPLOYMENT, "old", {"spec": spec}))


RULES = (PodSecurity(), ServiceAccounts(), Isolated(), SecretsKept(), ModestPods(), Ephemeral())
