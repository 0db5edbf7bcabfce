"""Controllers that a cluster has already, of whatever owner: their versions, what they see, and their CRDs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock import labels
from paddock.operate.sources.kubernetes import KubernetesReader, Object
from paddock.operate.sources.unavailable import NotFound

ARC, LEGACY_ARC = "Actions Runner Controller", "the older actions-runner-controller"
DEVICE_PLUGIN, GPU_OPERATOR, DCGM_EXPORTER = "NVIDIA device plugin", "GPU Operator", "DCGM Exporter"
AUTOSCALER, KUBERAY = "cluster-autoscaler", "KubeRay operator"
HELM = "Helm release"
PROGRAMS: Mapping[str, frozenset[str]] = {
    ARC: frozenset({"gha-rs-controller", "gha-runner-scale-set-controller"}),
    LEGACY_ARC: frozenset({"actions-runner-controller"}),
    # By its container: feature discovery and the MPS daemon run the same image.
    DEVICE_PLUGIN: frozenset({"nvidia-device-plugin-ctr", "nvidia-device-plugin"}),
    GPU_OPERATOR: frozenset({"gpu-operator"}),
    DCGM_EXPORTER: frozenset({"dcgm-exporter", "nvidia-dcgm-exporter"}),
    AUTOSCALER: frozenset({"cluster-autoscaler"}),
    KUBERAY: frozenset({"kuberay-operator"}),
}
"""Names by which a workload is known: its containers', and what its labels and its images are called."""
_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/part-of", "k8s-app", "app")
_BY_CONTAINER = (DEVICE_PLUGIN,)
_VERSION = "app.kubernetes.io/version"
_SET_LABELS = "runnerScaleSetLabels"
PULUMI = "pulumi-kubernetes"
"""Beginning of the name under which Pulumi's provider manages fields."""


@dataclass(frozen=True, slots=True)
class Program:
    """A Deployment or DaemonSet of a kind in `PROGRAMS`."""

    kind: str
    namespace: str
    name: str
    version: str
    """As its label says, or the tag of its image; empty where neither does."""
    account: str
    """Its service account."""
    release: tuple[str, str]
    """Namespace and name of its Helm release; empty where Helm did not make it."""
    arguments: tuple[str, ...]
    """Of its containers."""
    tolerates: tuple[Mapping[str, Any], ...]
    selects: Mapping[str, str]
    """Labels of the nodes that its pods need."""
    marked: bool
    """True where a label of Paddock's is on it or chooses its nodes."""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}{f' {self.version}' if self.version else ''}"

    def flag(self, name: str) -> str:
        """Return the value of a flag of its command line, empty where it is not given."""
        given = (argument.lstrip("-").partition("=") for argument in self.arguments)
        return next((value for key, _, value in given if key == name), "")

    def bears(self, taint: Mapping[str, Any]) -> bool:
        """Return whether its pods tolerate a taint, which is given as the toleration of it."""
        return any(
            toleration.get("effect") in (None, "", taint.get("effect"))
            and toleration.get("key") in (None, "", taint.get("key"))
            and (toleration.get("operator") == "Exists" or toleration.get("value") == taint.get("value"))
            for toleration in self.tolerates
        )


@dataclass(frozen=True, slots=True)
class ScaleSet:
    """An AutoscalingRunnerSet."""

    namespace: str
    name: str
    version: str
    """Version of the chart that made it, which ARC's controller compares with its own; empty where it does not say."""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}{f' {self.version}' if self.version else ''}"


@dataclass(frozen=True, slots=True)
class Thing:
    """A namespace, or a CRD."""

    name: str
    managers: tuple[str, ...]
    """Who set fields of it, by the names that Kubernetes keeps; it is Pulumi's where one begins with `PULUMI`."""
    knows_labels: bool = True
    """False for a CRD of scale sets that drops their labels, as those before 0.14 do."""

    @property
    def of_pulumi(self) -> bool:
        return any(manager.startswith(PULUMI) for manager in self.managers)


def read_programs(reader: KubernetesReader) -> tuple[Program, ...]:
    """Return the controllers and DaemonSets of the kinds in `PROGRAMS`. Raises Unavailable."""
    workloads = [*reader.all("apps/v1", "Deployment"), *reader.all("apps/v1", "DaemonSet")]
    return tuple(program for item in workloads for program in _programs(item))


def read_scale_sets(reader: KubernetesReader) -> tuple[ScaleSet, ...]:
    """Return the scale sets of all namespaces; none where the cluster does not know the kind. Raises Unavailable."""
    try:
        items = reader.all("actions.github.com/v1alpha1", "AutoscalingRunnerSet")
    except NotFound:
        return ()
    return tuple(
        ScaleSet(item["metadata"]["namespace"], item["metadata"]["name"], _labels(item).get(_VERSION, ""))
        for item in items
    )


def read_crds(reader: KubernetesReader, names: Iterable[str]) -> dict[str, Thing]:
    """Return the CRDs of these names that are there. Raises Unavailable."""
    return _read(reader, "apiextensions.k8s.io/v1", "CustomResourceDefinition", names)


def read_namespaces(reader: KubernetesReader, names: Iterable[str]) -> dict[str, Thing]:
    """Return the namespaces of these names that are there. Raises Unavailable."""
    return _read(reader, "v1", "Namespace", names)


def read_objects(reader: KubernetesReader, type_: str, names: Iterable[str]) -> dict[str, Thing]:
    """Return the objects without a namespace of a type of Pulumi's that are there. Raises Unavailable."""
    _, version, kind = type_.split(":")
    try:
        return _read(reader, version.removeprefix("core/"), kind, names)
    except NotFound:
        return {}


def minor(version: str) -> tuple[str, ...]:
    """Return the first two numbers of a version, by which ARC's controller takes or deletes a scale set."""
    return tuple(version.removeprefix("v").split(".")[:2])


def _read(reader: KubernetesReader, version: str, kind: str, names: Iterable[str]) -> dict[str, Thing]:
    return {item["metadata"]["name"]: _thing(item) for item in reader.named(version, kind, names)}


def _thing(item: Object) -> Thing:
    fields = item["metadata"].get("managedFields") or []
    # The API server's own writes: conditions of a CRD, the label with a namespace's name.
    managers = [str(entry.get("manager")) for entry in fields if not entry.get("subresource")]
    return Thing(item["metadata"]["name"], tuple(dict.fromkeys(managers)), _knows_labels(item))


def _knows_labels(item: Object) -> bool:
    if item["metadata"]["name"] != "autoscalingrunnersets.actions.github.com":
        return True
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") or {} for version in item["spec"]["versions"]]
    return all(_open(schema) or _in_spec(schema) for schema in schemas)


def _open(schema: Mapping[str, Any]) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields"))


def _in_spec(schema: Mapping[str, Any]) -> bool:
    spec = (schema.get("properties") or {}).get("spec") or {}
    return _open(spec) or _SET_LABELS in (spec.get("properties") or {})


def _programs(item: Object) -> Iterator[Program]:
    meta, pod = item["metadata"], item["spec"]["template"]["spec"]
    containers = pod.get("containers") or []
    own = {str(container.get("name")) for container in containers}
    images = [str(container.get("image", "")) for container in containers]
    named = {_labels(item).get(label, "") for label in _LABELS} | {_base(image) for image in images} | {meta["name"]}
    annotations = meta.get("annotations") or {}
    for kind, names in PROGRAMS.items():
        if not names & (own if kind in _BY_CONTAINER else named):
            continue
        tag = next((image.rpartition(":")[2] for image in images if ":" in image and "@" not in image), "")
        yield Program(
            kind,
            meta["namespace"],
            meta["name"],
            _labels(item).get(_VERSION, "") or tag,
            str(pod.get("serviceAccountName") or "default"),
            (annotations.get("meta.helm.sh/release-namespace", ""), annotations.get("meta.helm.sh/release-name", "")),
            tuple(
                str(word)
                for container in containers
                for word in (*(container.get("command") or []), *(container.get("args") or []))
            ),
            tuple(pod.get("tolerations") or []),
            pod.get("nodeSelector") or {},
            labels.OURS in repr(item["spec"]["template"]),
        )
        return


def _base(image: str) -> str:
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def _labels(item: Object) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}
