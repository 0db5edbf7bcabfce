"""What runs in the cluster, and what it may do there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from paddock.plan.engine.graph import Resource
from paddock.plan.engine.values import Secret
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Hit, Rule, example, hit, resource
from paddock.plan.rules.inputs import access
from paddock.plan.rules.inputs.pods import RELEASE, Pod, chart, is_in, name_of, pods, scale_sets

NAMESPACE = "kubernetes:core/v1:Namespace"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
SECRET = "kubernetes:core/v1:Secret"  # noqa: S105 - a type
ROLES = ("kubernetes:rbac.authorization.k8s.io/v1:Role", "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole")
BINDINGS = (
    "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding",
    "kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding",
)
ADMISSION = "kubernetes:admissionregistration.k8s.io/v1:ValidatingAdmissionPolicy"
ADMISSION_BINDING = f"{ADMISSION}Binding"
LEVEL = "pod-security.kubernetes.io/enforce"
BECAUSE = "paddock.dev/privileged-because"
"""Annotation of a namespace that says why its pods may be privileged."""
IMDS = "169.254.169.254"
SCALE_SET_CHART = "oci://ghcr.io/actions/actions-runner-controller-charts/gha-runner-scale-set"


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
    return access.at(container, "securityContext", "privileged") is True


class PodSecurity(Rule):
    id = "PAD-28"
    severity: ClassVar[Severity] = "error"
    title = "Namespaces enforce a Pod Security level; privileged ones say why and hold nothing else"
    why = "A privileged pod is root on its node; in a namespace without a level any workflow can ask for one."
    fix = f"label {LEVEL}: baseline or restricted; for privileged pods a namespace of their own, with {BECAUSE}"
    equivalents = (*(f"CIS 4.2.{n}" for n in range(1, 6)), "KSV-0001", "KSV-0012", "KSV-0017", "KSV-0118", "KSV-0104")

    def check(self, context: Context) -> Iterator[Hit]:
        levels: list[tuple[Resource, str]] = []
        for made in context.all(NAMESPACE):
            level = access.at(made.inputs, "metadata", "labels", LEVEL)
            if access.unknown(level):
                continue
            levels.append((made, str(level)))
            if level not in ("restricted", "baseline", "privileged"):
                yield hit(made, "it enforces no Pod Security level")
            elif level == "privileged" and not access.given(access.at(made.inputs, "metadata", "annotations", BECAUSE)):
                yield hit(made, f"it allows privileged pods and has no {BECAUSE}")
        for pod in pods(context):
            needs = any(map(privileged, pod.containers)) or any(access.on(pod.spec.get(key)) for key in _HOST)
            level = next((level for made, level in levels if is_in(pod.resource, made)), None)
            if needs and level != "privileged":
                yield hit(
                    pod.resource, f"{pod.where} are privileged, which {pod.namespace or 'its namespace'} is not for"
                )
            elif pod.kind == "runner" and level == "privileged" and not needs:
                yield hit(pod.resource, f"{pod.where} need no privileges, but {pod.namespace} would grant them")

    def example_pass(self) -> Context:
        return example(_namespace("baseline"))

    def example_fail(self) -> Context:
        return example(_namespace(None))


_HOST = ("hostNetwork", "hostPID", "hostIPC")


class ServiceAccounts(Rule):
    id = "PAD-29"
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

    def check(self, context: Context) -> Iterator[Hit]:
        bounded = list(self._bounded(context))
        for pod in pods(context):
            if pod.kind in ("runner", "job") and self._mounts_token(pod):
                used = access.text(pod.spec, "serviceAccountName") or "default"
                if not any(f"{pod.namespace}:{used}'" in condition for condition in bounded):
                    yield hit(pod.resource, f"{pod.where} mount a token that no admission policy bounds")
            mode = access.text(pod.resource.inputs, "values", "containerMode", "type")
            steers = pod.kind == "runner" and mode.startswith("kubernetes")  # ARC gives it an account to make job pods
            token = access.at(pod.spec, "automountServiceAccountToken")
            if pod.kind == "listener" or steers or token is False or access.unknown(token):
                continue
            account = pod.spec.get("serviceAccountName")
            if pod.kind in ("runner", "job"):
                yield hit(pod.resource, f"{pod.where} get a Kubernetes token")
            elif account in (None, "", "default"):
                yield hit(pod.resource, f"{pod.where} use the namespace's default account")
        for role in context.all(*ROLES):
            for rule in access.each(role.inputs, "rules"):
                for key in ("verbs", "resources", "apiGroups"):
                    if "*" in access.each(rule, key):
                        yield hit(role, f"a rule allows every one of {key}")
                if "secrets" in access.each(rule, "resources"):
                    yield hit(role, "a rule allows to read secrets")
        for binding in context.all(*BINDINGS):
            if access.text(binding.inputs, "roleRef", "name") == "cluster-admin":
                yield hit(binding, "it gives cluster-admin away")
            for subject in access.each(binding.inputs, "subjects"):
                who = access.text(subject, "name")
                anyone = who in ("system:anonymous", "system:unauthenticated", "system:authenticated")
                if anyone or (access.text(subject, "kind") == "ServiceAccount" and who == "default"):
                    yield hit(binding, f"{who} is not one account")

    @staticmethod
    def _mounts_token(pod: Pod) -> bool:
        return any(
            access.given(access.at(source, "serviceAccountToken"))
            for volume in access.each(pod.spec, "volumes")
            for source in access.each(volume, "projected", "sources")
        )

    @staticmethod
    def _bounded(context: Context) -> Iterator[str]:
        """Conditions of the policies that deny, and that deny too where they cannot be judged."""
        enforced = [
            access.at(each.inputs, "spec", "policyName")
            for each in context.all(ADMISSION_BINDING)
            if "Deny" in access.each(each.inputs, "spec", "validationActions")
        ]
        for policy in context.all(ADMISSION):
            fails = access.at(policy.inputs, "spec", "failurePolicy") in (None, "Fail")
            if fails and any(access.unknown(name) or name == name_of(policy) for name in enforced):
                for condition in access.each(policy.inputs, "spec", "matchConditions"):
                    yield access.text(condition, "expression")

    def example_pass(self) -> Context:
        return _runner_pod()

    def example_fail(self) -> Context:
        return _runner_pod(automountServiceAccountToken=True)


class Isolated(Rule):
    id = "PAD-30"
    severity: ClassVar[Severity] = "error"
    title = "Every namespace of ours denies traffic by default and cuts pods off from instance metadata"
    why = "Without a policy each job reaches every other pod, and on a misconfigured node the node's own credentials."
    fix = f"a NetworkPolicy with podSelector {{}}, both policyTypes, and {IMDS} among the exceptions"
    equivalents = ("CIS 4.3.1", "CIS 4.3.2", "non-isolated-pod")

    def check(self, context: Context) -> Iterator[Hit]:
        policies = list(context.all(POLICY))
        for policy in policies:
            for cidr, exceptions in self._open(policy):
                if access.covers(cidr, IMDS) and not any(
                    access.unknown(e) or access.covers(e, IMDS) for e in exceptions
                ):
                    yield hit(policy, f"its egress to {cidr} reaches {IMDS}")
        for made in context.all(NAMESPACE):
            if not any(is_in(policy, made) and self._denies(policy) for policy in policies):
                yield hit(made, "it has no NetworkPolicy that denies by default")

    @staticmethod
    def _denies(policy: Resource) -> bool:
        spec = access.at(policy.inputs, "spec")
        types = access.at(spec, "policyTypes")
        everyone = not access.pairs(spec, "podSelector")
        return everyone and (access.unsure(types) or {"Ingress", "Egress"} <= set(map(str, access.many(types))))

    @staticmethod
    def _open(policy: Resource) -> Iterator[tuple[Any, list[Any]]]:
        for rule in access.each(policy.inputs, "spec", "egress"):
            peers = access.at(rule, "to")
            if not access.given(peers):
                yield "0.0.0.0/0", []
            for peer in access.each(rule, "to"):
                if cidr := access.text(peer, "ipBlock", "cidr"):
                    yield cidr, access.many(access.at(peer, "ipBlock", "except"))

    def example_pass(self) -> Context:
        return self._with(["169.254.0.0/16"])

    def example_fail(self) -> Context:
        return self._with([])

    @staticmethod
    def _with(exceptions: list[str]) -> Context:
        spec = {
            "podSelector": {},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": exceptions}}]}],
        }
        policy = resource(
            POLICY, "default", {"metadata": {"name": "default", "namespace": "arc-runners"}, "spec": spec}
        )
        return example(_namespace("baseline"), policy)


_CREDENTIAL = re.compile(
    r"(^|_)(TOKEN|PASSWORD|PASSWD|SECRET|SECRET_ACCESS_KEY|PRIVATE_KEY|API_?KEY|CREDENTIALS?)$", re.I
)


class SecretsKept(Rule):
    id = "PAD-31"
    severity: ClassVar[Severity] = "error"
    milder = True
    title = "Secrets are encrypted, stay out of environments, and runners register as a GitHub App"
    why = "An environment is printed by the first crash; a personal token has its owner's rights and leaves with them."
    fix = "pulumi config set --secret, or a Secrets Manager ARN; github.app in place of github.token"
    equivalents = ("CIS 4.4.1", "CIS 4.4.2", "env-var-secret")

    def check(self, context: Context) -> Iterator[Hit]:
        for secret in context.all(SECRET):
            for key in ("data", "stringData"):
                held = secret.inputs.get(key)
                if context.marks_secrets and access.given(access.opened(held)) and not self._encrypted(held):
                    yield hit(secret, f"{key} would be in the stack's state in clear")
                if "github_token" in access.pairs(held):
                    yield hit(secret, "runners register with a personal token", "warning")
        for release in scale_sets(context):
            if isinstance(access.at(release.inputs, "values", "githubConfigSecret"), Mapping):
                yield hit(release, "the credential is among the chart's values, which Helm keeps in clear")
        for pod in pods(context):
            for container in pod.containers:
                for variable in access.each(container, "env"):
                    name = access.text(variable, "name")
                    if access.unknown(variable):
                        continue
                    if access.given(access.at(variable, "valueFrom", "secretKeyRef")):
                        yield hit(pod.resource, f"{name} puts a secret into the environment of {pod.where}")
                    elif _CREDENTIAL.search(name) and access.given(access.at(variable, "value")):
                        yield hit(pod.resource, f"{name} looks like a credential in clear in {pod.where}")

    @staticmethod
    def _encrypted(held: Any) -> bool:
        if isinstance(held, Mapping):
            return all(isinstance(value, Secret) or access.unknown(value) for value in held.values())
        return isinstance(held, Secret) or access.unknown(held)

    def example_pass(self) -> Context:
        return example(resource(SECRET, "credential", {"stringData": Secret({"github_app_private_key": "..."})}))

    def example_fail(self) -> Context:
        return example(resource(SECRET, "credential", {"stringData": {"github_app_private_key": "..."}}))


_VALUES_WITH_RESOURCES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "nvidia-device-plugin": (("resources",), ("nfd", "worker", "resources")),
    "dcgm-exporter": (("resources",),),
    "cluster-autoscaler": (("resources",),),
    "gha-runner-scale-set-controller": (("resources",),),
}


class ModestPods(Rule):
    id = "PAD-32"
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

    def check(self, context: Context) -> Iterator[Hit]:
        for pod in pods(context):
            yield from (hit(pod.resource, f"{pod.where}: {message}") for message in self._pod(pod))
        for release in context.all(RELEASE):
            for path in _VALUES_WITH_RESOURCES.get(chart(release), ()):
                if missing := _missing(access.at(release.inputs, "values", *path)):
                    yield hit(release, f"{'.'.join(path)} gives no {missing}")

    def _pod(self, pod: Pod) -> Iterator[str]:
        for volume in access.each(pod.spec, "volumes"):
            if path := access.text(volume, "hostPath", "path"):
                yield f"mounts the host's {path}"
        for key in _HOST:
            if access.on(pod.spec.get(key)):
                yield f"{key} is on"
        for container in pod.containers:
            yield from (f"{access.text(container, 'name')} {message}" for message in self._container(pod, container))

    @staticmethod
    def _container(pod: Pod, container: Mapping[str, Any]) -> Iterator[str]:
        if missing := _missing(container.get("resources"), cpu_only_requests=privileged(container)):
            yield f"gives no {missing}"
        if pod.kind == "listener":  # ARC gives the rest
            return
        image, given = access.text(container, "image"), not access.unknown(container.get("image"))
        # A job's image is the workflow's own.
        if pod.kind != "job" and given and not re.search(r"@sha256:|:(?!latest$)[^/:]+$", image):
            yield "has an image that changes under its name"
        if privileged(container):  # PAD-28 asks why
            return
        drops = access.at(container, "securityContext", "capabilities", "drop")
        dropped = {str(each).upper() for each in access.many(drops)}
        if not access.unsure(drops) and not dropped & {"ALL", "NET_RAW"}:
            yield "keeps NET_RAW, with which it can forge packets of its neighbours"
        if pod.kind == "object" and not access.on(access.at(container, "securityContext", "readOnlyRootFilesystem")):
            yield "can write to its own root file system"

    def example_pass(self) -> Context:
        return self._runner("ghcr.io/actions/actions-runner:2.336.0")

    def example_fail(self) -> Context:
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
    if access.unknown(resources):
        return ""
    wanted = [("requests", "cpu"), ("requests", "memory")]
    # A Docker daemon's limit would be that of all containers a job starts in it.
    wanted += [] if cpu_only_requests else [("limits", "memory")]
    return ", ".join(f"{kind}.{what}" for kind, what in wanted if not access.given(access.at(resources, kind, what)))


_OLD_RUNNERS = ("RunnerDeployment", "RunnerSet", "RunnerReplicaSet", "Runner")


class Ephemeral(Rule):
    id = "PAD-33"
    severity: ClassVar[Severity] = "error"
    milder = True
    title = "A runner runs one job and is gone; its group says which repositories may use it"
    why = "A runner that outlives a job carries the job's files and processes into somebody else's."
    fix = "gha-runner-scale-set only; github.runnerGroup: a group with chosen private repositories, approval for forks"

    def check(self, context: Context) -> Iterator[Hit]:
        for release in scale_sets(context):
            values = access.at(release.inputs, "values")
            if not access.unknown(values):
                group = access.text(values, "runnerGroup").lower() or "default"
                url = access.text(values, "githubConfigUrl").rstrip("/")
                if group == "default" and not re.search(r"^https?://[^/]+/(?!enterprises/)[^/]+/[^/]+$", url):
                    yield hit(
                        release, "runner group Default: every repository that the group is open to may use it", "info"
                    )
        for release in context.all(RELEASE):
            if chart(release) == "actions-runner-controller":
                yield hit(release, "the old controller's runners are not ephemeral unless each one says so")
        for made in context.graph.resources.values():
            if (
                made.type.startswith("kubernetes:actions.summerwind.dev/")
                and made.type.rpartition(":")[2] in _OLD_RUNNERS
            ):
                spec = access.at(made.inputs, "spec")
                own = access.at(spec, "template", "spec", "ephemeral")
                if own is False or access.at(spec, "ephemeral") is False:
                    yield hit(made, "its runners are used again for the next job")
        for pod in pods(context):
            for container in pod.containers:
                for variable in access.each(container, "env"):
                    disabled = str(access.at(variable, "value")).lower() in ("false", "0")
                    if access.text(variable, "name") in ("EPHEMERAL", "RUNNER_EPHEMERAL") and disabled:
                        yield hit(pod.resource, f"{pod.where} are used again for the next job")

    def example_pass(self) -> Context:
        return example(runners({"runnerGroup": "gpu", "githubConfigUrl": "https://github.com/acme"}))

    def example_fail(self) -> Context:
        spec = {"template": {"spec": {"ephemeral": False, "organization": "acme"}}}
        return example(resource("kubernetes:actions.summerwind.dev/v1alpha1:RunnerDeployment", "old", {"spec": spec}))


RULES = (PodSecurity(), ServiceAccounts(), Isolated(), SecretsKept(), ModestPods(), Ephemeral())
