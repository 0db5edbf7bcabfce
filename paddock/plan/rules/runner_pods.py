"""Pods of the cluster, those of runners first: credentials, resources, and one job for each runner."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

from paddock.fleet import Runner
from paddock.plan import fields
from paddock.plan.engine.graph import Resource
from paddock.plan.engine.resource_types import RELEASE, SECRET
from paddock.plan.engine.values import Secret, is_credential
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, violation
from paddock.plan.rules.inputs.pods import Pod, chart, name_of, namespace_of, pods, scale_sets
from paddock.plan.rules.kubernetes import HOST_NAMESPACES, host_path, privileged, says_why


class SecretsKept(Rule):
    id = "PAD031"
    severity: ClassVar[Severity] = "error"
    milder = True
    title = "Secrets are encrypted, stay out of environments and jobs, and runners register as a GitHub App"
    why = "An environment is printed by the first crash; a personal token has its owner's rights and leaves with them."
    fix = "pulumi config set --secret, or a Secrets Manager ARN; github.app in place of github.token"
    equivalents = ("CIS 4.4.1", "CIS 4.4.2", "env-var-secret")

    def check(self, context: Context) -> Iterator[Violation]:
        for secret in context.all(SECRET):
            for key in ("data", "stringData"):
                held = secret.inputs.get(key)
                if context.marks_secrets and fields.is_set(fields.unwrap(held)) and not self._encrypted(held):
                    message, fix = f"{key} would be in the stack's state in clear text", "pulumi config set --secret"
                    yield violation(secret, message, fix=fix)
                if "github_token" in fields.mapping(held):
                    fix = "github.app: {id, installation} in place of github.token"
                    yield violation(secret, "runners register with a personal token", "warning", fix=fix)
        for release in scale_sets(context):
            if isinstance(fields.get(release.inputs, "values", "githubConfigSecret"), Mapping):
                message = "the credential is among the chart's values, which Helm keeps in clear text"
                yield violation(release, message, fix="githubConfigSecret: the name of a Kubernetes secret")
        for pod in pods(context):
            yield from self._mounted(pod)
            for container in pod.containers:
                for source in fields.items(container, "envFrom"):
                    if fields.is_set(fields.get(source, "secretRef")):
                        whole = fields.text(source, "secretRef", "name")
                        message = f"every key of secret {whole} is in the environment of {pod.where}"
                        yield violation(pod.resource, message, fix=f"mount what is needed of {whole} as a file")
                for variable in fields.items(container, "env"):
                    name = fields.text(variable, "name")
                    if fields.is_unknown(variable):
                        continue
                    if fields.is_set(fields.get(variable, "valueFrom", "secretKeyRef")):
                        message = f"{name} puts a secret into the environment of {pod.where}"
                        yield violation(pod.resource, message, fix=f"mount the secret of {name} as a file")
                    elif fields.is_set(held := fields.get(variable, "value")) and is_credential(
                        name, fields.text(held)
                    ):
                        message = f"{name} looks like a credential in clear text in {pod.where}"
                        fix = f"leave {_variable(context, pod, name)} out: a job gets it as a secret of its repository"
                        yield violation(pod.resource, message, fix=fix)

    @staticmethod
    def _mounted(pod: Pod) -> Iterator[Violation]:
        """Find secrets that whatever a job runs can read."""
        if pod.kind not in ("runner", "job"):
            return
        for volume in fields.items(pod.spec, "volumes"):
            held = [(fields.get(volume, "secret"), "secretName")]
            held += [(fields.get(source, "secret"), "name") for source in fields.items(volume, "projected", "sources")]
            if fields.text(volume, "csi", "driver") == "secrets-store.csi.k8s.io":
                held.append((fields.get(volume, "csi", "volumeAttributes"), "secretProviderClass"))
            for secret, key in held:
                if fields.is_set(secret) and not fields.is_unknown(secret):
                    message = f"{pod.where} mount secret {fields.text(secret, key)}, which every job can read"
                    fix = f"take volume {fields.text(volume, 'name')} out: a job gets secrets of its repository"
                    yield violation(pod.resource, message, fix=fix)

    @staticmethod
    def _encrypted(held: Any) -> bool:
        if isinstance(held, Mapping):
            return all(isinstance(value, Secret) or fields.is_unknown(value) for value in held.values())
        return isinstance(held, Secret) or fields.is_unknown(held)


def _runner_of(context: Context, pod: Pod) -> Runner | None:
    """Return the fleet's runner whose pod this is."""
    name = pod.resource.name.removesuffix("-pod-template")
    return context.fleet.runners.get(name) if context.fleet and pod.kind in ("runner", "job") else None


def _variable(context: Context, pod: Pod, name: str) -> str:
    """Return where a variable is written: a key of the stack file, where the fleet's owner wrote it."""
    runner = _runner_of(context, pod)
    return f"runners.{runner.name}.environment.{name}" if runner and name in runner.environment else name


def _image_key(context: Context, pod: Pod, image: str) -> str:
    """Return where an image is written: a key of the stack file, where the fleet's owner wrote it."""
    runner = _runner_of(context, pod)
    if runner and runner.image == image:
        return f"runners.{runner.name}.image"
    return "images.runner" if context.fleet and context.fleet.images.runner == image else "image"


_VALUES_WITH_RESOURCES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "nvidia-device-plugin": (("resources",), ("nfd", "worker", "resources")),
    "dcgm-exporter": (("resources",),),
    "cluster-autoscaler": (("resources",),),
    "gha-runner-scale-set-controller": (("resources",),),
    "kuberay-operator": (("resources",),),
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
            for message, fix in self._pod(context, pod):
                yield violation(pod.resource, f"{pod.where}: {message}", fix=fix)
        for release in context.all(RELEASE):
            for path in _VALUES_WITH_RESOURCES.get(chart(release), ()):
                if missing := _missing(fields.get(release.inputs, "values", *path)):
                    where = ".".join(path)
                    yield violation(release, f"{where} gives no {missing}", fix=f"{where}: an amount for {missing}")

    def _pod(self, context: Context, pod: Pod) -> Iterator[tuple[str, str]]:
        """Yield (what is wrong, what to write)."""
        for volume in fields.items(pod.spec, "volumes"):
            path = host_path(volume)
            if path and not (self._reads_logs(pod, volume) and says_why(context, pod)):
                yield f"mounts the host's {path}", "an emptyDir or a claim in place of hostPath"
        for key in HOST_NAMESPACES:
            if fields.is_on(pod.spec.get(key)):
                yield f"{key} is on", f"{key}: false"
        for container in pod.containers:
            for message, fix in self._container(context, pod, container):
                yield f"{fields.text(container, 'name')} {message}", fix

    @staticmethod
    def _reads_logs(pod: Pod, volume: Any) -> bool:
        """Return whether a volume holds logs of the host that no container can write."""
        name = fields.text(volume, "name")
        mounts = [mount for c in pod.containers for mount in fields.items(c, "volumeMounts")]
        return host_path(volume).startswith("/var/log/") and all(
            fields.is_on(fields.get(mount, "readOnly")) for mount in mounts if fields.text(mount, "name") == name
        )

    @staticmethod
    def _container(context: Context, pod: Pod, container: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        if missing := _missing(container.get("resources"), cpu_only_requests=privileged(container)):
            yield f"gives no {missing}", f"resources: an amount for {missing}"
        if pod.kind == "listener":  # ARC gives the rest
            return
        image, is_known = fields.text(container, "image"), not fields.is_unknown(container.get("image"))
        # A job's image is the workflow's own.
        if pod.kind != "job" and is_known and not re.search(r"@sha256:|:(?!latest$)[^/:]+$", image):
            key = _image_key(context, pod, image)
            yield (
                "has an image that changes under its name",
                f"{key}: a tag that names a version, or @sha256: and a digest",
            )
        if privileged(container):  # PAD028 asks why
            return
        drops = fields.get(container, "securityContext", "capabilities", "drop")
        dropped = {str(capability).upper() for capability in fields.as_list(drops)}
        if not fields.has_unknown(drops) and not dropped & {"ALL", "NET_RAW"}:
            message = "keeps NET_RAW, with which it can forge packets of its neighbours"
            yield message, "securityContext.capabilities.drop: [NET_RAW]"
        if pod.kind == "object" and not fields.is_on(
            fields.get(container, "securityContext", "readOnlyRootFilesystem")
        ):
            yield "can write to its own root file system", "securityContext.readOnlyRootFilesystem: true"


def _missing(resources: Any, *, cpu_only_requests: bool = False) -> str:
    """Return the requests and limits that a container lacks. A limit on CPU would only slow builds down."""
    if fields.is_unknown(resources):
        return ""
    expected = [("requests", "cpu"), ("requests", "memory")]
    # A Docker daemon's limit would be that of all containers a job starts in it.
    expected += [] if cpu_only_requests else [("limits", "memory")]
    return ", ".join(f"{kind}.{key}" for kind, key in expected if not fields.is_set(fields.get(resources, kind, key)))


_REPOSITORY = re.compile(r"https?://[^/]+/(?!enterprises/)[^/]+/[^/]+/?")
_OLD_RUNNERS = ("RunnerDeployment", "RunnerSet", "RunnerReplicaSet", "Runner")


class Ephemeral(Rule):
    id = "PAD033"
    severity: ClassVar[Severity] = "error"
    milder = True
    title = "A runner runs one job and is gone; who may start one is asked of GitHub"
    why = "A runner, node or volume that outlives a job carries the job's files and processes into somebody else's."
    fix = (
        "gha-runner-scale-set only; github.runnerGroup: a group that doctor reads at GitHub; container:"
        " kubernetes-novolume in place of dind; pools and writable claims for one group each"
    )

    def check(self, context: Context) -> Iterator[Violation]:
        root = {pod.resource.name for pod in pods(context) if any(map(privileged, pod.containers))}
        for release in scale_sets(context):
            values = fields.get(release.inputs, "values")
            if not fields.is_unknown(values):
                yield self._admission(release, values, is_root=release.name in root)
        for release in context.all(RELEASE):
            if chart(release) == "actions-runner-controller":
                message = "the old controller's runners are not ephemeral unless each one says so"
                yield violation(release, message, fix="gha-runner-scale-set in its place")
        for item in context.graph.resources.values():
            if (
                item.type.startswith("kubernetes:actions.summerwind.dev/")
                and item.type.rpartition(":")[2] in _OLD_RUNNERS
            ):
                spec = fields.get(item.inputs, "spec")
                own = fields.get(spec, "template", "spec", "ephemeral")
                if own is False or fields.get(spec, "ephemeral") is False:
                    yield violation(item, "its runners are used again for the next job", fix="ephemeral: true")
        for pod in pods(context):
            for container in pod.containers:
                for variable in fields.items(container, "env"):
                    disabled = str(fields.get(variable, "value")).lower() in ("false", "0")
                    if fields.text(variable, "name") in ("EPHEMERAL", "RUNNER_EPHEMERAL") and disabled:
                        message = f"{pod.where} are used again for the next job"
                        yield violation(pod.resource, message, fix=f"take {fields.text(variable, 'name')} out")
        yield from _nodes_after_root(context)
        yield from _claims_that_jobs_write(context)

    @staticmethod
    def _admission(release: Resource, values: Any, *, is_root: bool) -> Violation:
        """Say what only GitHub knows: neither a group's name nor a repository's says who may start a job."""
        group, url = fields.text(values, "runnerGroup") or "default", fields.text(values, "githubConfigUrl")
        if _REPOSITORY.fullmatch(url):
            message = "whether the repository is public is not known here, and its runners have no group"
        else:
            message = f"which repositories may use runner group {group}, and whether public ones, is not known here"
        fix = "./inv doctor asks GitHub; a group with chosen private repositories, approval for forks"
        if is_root:
            message += "; a job of privileged runners is root on its node"
            fix += "; or container: kubernetes-novolume in place of dind"
        return violation(release, message, "warning" if is_root else "info", fix=fix)


def _nodes_after_root(context: Context) -> Iterator[Violation]:
    """Find nodes that jobs of one group are root on, and pods of others come to."""
    groups = _groups(context)
    placed = [pod for pod in pods(context) if fields.is_set(_selector(pod)) and not fields.has_unknown(_selector(pod))]
    for pod in placed:
        if pod.kind != "runner" or not any(map(privileged, pod.containers)):
            continue
        others = [other for other in placed if _selector(other) == _selector(pod) and _apart(groups, pod, other)]
        if others:
            message = f"its jobs are root on nodes, and what they leave there meets pods of others: {_named(others)}"
            fix = f"runners.{pod.resource.name}.pool: one of its own; better a stack with a cluster of its own"
            yield violation(pod.resource, message, "warning", fix=fix)


def _claims_that_jobs_write(context: Context) -> Iterator[Violation]:
    """Find volumes in which a job may leave something that another one runs."""
    groups = _groups(context)
    users: dict[tuple[str, str], list[Pod]] = {}
    for pod in pods(context):
        for claim in _claims(pod):
            users.setdefault((pod.namespace, claim), []).append(pod)
    for pod in pods(context):
        for claim, volume in _claims(pod).items():
            if pod.kind not in ("runner", "job") or not pod.namespace or not _writes(pod, volume):
                continue
            others = [other for other in users[pod.namespace, claim] if _apart(groups, pod, other)]
            runner = pod.resource.name.removesuffix("-pod-template")
            key = f"runners.{runner}.volumes.{fields.text(volume, 'name').removeprefix('volume-')}"
            whom = (
                f"in pods of others: {_named(others)}" if others else "in later jobs, whatever repository they are of"
            )
            message = f"its jobs write to claim {claim}; what one leaves there runs {whom}"
            fix = f"{key}: readOnly: true, or a claim for one group of repositories alone"
            yield violation(pod.resource, message, "warning" if others else "info", fix=fix)


def _selector(pod: Pod) -> Any:
    return fields.mapping(pod.spec, "nodeSelector")


def _claims(pod: Pod) -> dict[str, Any]:
    """Return a pod's volumes that outlive it, by the claim's name."""
    volumes = {
        fields.text(volume, "persistentVolumeClaim", "claimName"): volume
        for volume in fields.items(pod.spec, "volumes")
    }
    return {claim: volume for claim, volume in volumes.items() if claim}


def _writes(pod: Pod, volume: Any) -> bool:
    """Return whether a container of the pod can write to a volume."""
    name = fields.text(volume, "name")
    return not fields.is_on(fields.get(volume, "persistentVolumeClaim", "readOnly")) and any(
        fields.text(mount, "name") == name and not fields.is_on(fields.get(mount, "readOnly"))
        for container in pod.containers
        for mount in fields.items(container, "volumeMounts")
    )


def _groups(context: Context) -> Mapping[str, tuple[str, str]]:
    """Return (address, runner group) of scale sets and of templates of their jobs' pods, by URN; known ones alone."""
    templates = {(namespace_of(pod.resource), name_of(pod.resource)): pod for pod in pods(context) if pod.kind == "job"}
    groups: dict[str, tuple[str, str]] = {}
    for release in scale_sets(context):
        values = fields.get(release.inputs, "values")
        if any(fields.is_unknown(fields.get(values, key)) for key in ("githubConfigUrl", "runnerGroup")):
            continue
        group = fields.text(values, "githubConfigUrl"), (fields.text(values, "runnerGroup") or "default").lower()
        groups[release.urn] = group
        for volume in fields.items(values, "template", "spec", "volumes"):
            name = fields.text(volume, "configMap", "name")
            if template := templates.get((namespace_of(release), name)):
                groups[template.resource.urn] = group
    return groups


def _apart(groups: Mapping[str, tuple[str, str]], pod: Pod, other: Pod) -> bool:
    """Return whether different people may start what runs in two pods; not where GitHub's group is not known."""
    if other.kind not in ("runner", "job"):
        return other.kind == "object"
    known = groups.get(pod.resource.urn), groups.get(other.resource.urn)
    return None not in known and known[0] != known[1]


def _named(found: Iterable[Pod]) -> str:
    return ", ".join(sorted({pod.resource.name.removesuffix("-pod-template") for pod in found}))


RULES = (SecretsKept(), ModestPods(), Ephemeral())
