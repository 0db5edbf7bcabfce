"""A pod that runs jobs, as the older controller and ARC's chart describe it."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from paddock import catalog
from paddock.fleet.model.github import CLEAR_TEXT
from paddock.fleet.model.quantity import format_cpu, format_memory, parse_cpu, parse_memory
from paddock.fleet.model.runner import RESERVED_ENVIRONMENT, RUNTIME_VARIABLES
from paddock.init.moving.model import Found

GPU = "nvidia.com/gpu"
_TYPE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_PRODUCTS = (
    "nvidia.com/gpu.product", "karpenter.k8s.aws/instance-gpu-name", "eks.amazonaws.com/instance-gpu-name",
    "k8s.amazonaws.com/accelerator", "cloud.google.com/gke-accelerator",
)  # fmt: skip
_FAMILIES = ("karpenter.k8s.aws/instance-family", "eks.amazonaws.com/instance-family")
_CAPACITY_LABELS = ("karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType")
CONTAINER = ("name", "image", "resources", "env", "volumeMounts", "imagePullPolicy")
"""Keys of the runner's container that are read."""
_NODE = "the pool chooses nodes, and taints and tolerates them by itself"
_CHOSEN = "; the pool has that of --gpu"
_OF_DOCKER = ("/var/lib/docker", "/var/run", "/run/docker", "/var/run/docker.sock", "/certs/client")
"""Where a pod's runner and its Docker meet."""
_DOCKER = (
    "DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_TLS_CERTDIR", "DOCKER_CERT_PATH", "RUNNER_WAIT_FOR_DOCKER_IN_SECONDS",
)  # fmt: skip
_TYPES = (str, int, float)
_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|credential|webhook|private|(^|_)(api|access|auth|ssh|gpg|license)?_?key($|_)|_dsn$|_pat$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(
    rf"{CLEAR_TEXT.pattern}|://[^/\s:@]*:[^/\s@]+@|\b(A[KS]IA[0-9A-Z]{{16}}|hf_\w{{16,}}|glpat-|npm_\w{{20,}}|xox[abp]-|"
    r"sk-[\w-]{20,}|eyJ[\w-]{10,}\.)|hooks\.slack\.com"
)
"""Forms of credentials that their makers gave them, and addresses with a password."""
_SECRET = "a secret stays where it is: jobs take it from GitHub or from a role"  # noqa: S105 - a sentence


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping, empty where the file has something else."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the mappings of a list."""
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def words(value: Any) -> list[str]:
    """Return the texts of a list, or of one text with commas; of anything else none."""
    listed = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return [str(word).strip() for word in listed if isinstance(word, _TYPES)]


def labels(found: Found, given: Any, source: str, *before: str) -> None:
    """Take labels, less those that GitHub would not take."""
    good = []
    for word in dict.fromkeys([*before, *words(given)]):
        if re.fullmatch(r"[^\s,]{1,255}", word):
            good.append(word)
        else:
            found.leave(source, f'"{word}" is not a label that GitHub takes')
    if given is not None and not isinstance(given, list | str):
        found.leave(source, "not a list of labels")
    found.take("labels", good, source)


def count(value: Any) -> int | None:
    """Return a whole number that is not negative, also where it is written as text."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


def resources(found: Found, given: Any, at: str) -> None:
    """Take GPUs, CPU and memory: the limits, and where there are none the requests."""
    limits, requests = mapping(mapping(given).get("limits")), mapping(mapping(given).get("requests"))
    asked = {**requests, **limits}
    for name, amount in asked.items():
        key = f"{at}.{'limits' if name in limits else 'requests'}.{name}"
        try:
            if name in (GPU, f"{GPU}.shared"):
                if (number := float(str(amount))) > 0 and number == int(number):
                    found.take("gpus", int(number), key)
                    if name != GPU:
                        found.changed(key, "shares of a GPU: write sharing: {timeSlicing: N} for the pool")
                elif number:
                    found.elsewhere = f"{key}: {amount} is not a number of GPUs"
            elif name == "cpu":
                found.take("cpu", format_cpu(parse_cpu(amount)), key)
            elif name == "memory":
                found.take("memory", format_memory(parse_memory(str(amount))), key)
            elif name.startswith("nvidia.com/mig-"):
                profile = name.removeprefix("nvidia.com/mig-")
                found.elsewhere = f"it asks for a part of a GPU: write a pool with sharing: {{mig: {profile}}} by hand"
            elif name == "ephemeral-storage":
                found.leave(
                    key, "the disk is the node's, pools.NAME.disk; a volume with scratch has a limit of its own"
                )
            else:
                if ("/gpu" in name or name.startswith("aws.amazon.com/neuron")) and GPU not in asked:
                    found.elsewhere = f"it asks for {name}: a pool is of NVIDIA GPUs"
                found.leave(key, "a runner asks for GPUs, CPU and memory alone")
        except (ValueError, OverflowError) as error:
            found.leave(key, str(error))
            if name.startswith(GPU):
                found.elsewhere = f"{key}: {amount} is not a number of GPUs"


def nodes(found: Found, spec: Mapping[str, Any], at: str) -> None:
    """Take what a node selector and a required node affinity say of the machine."""
    for key, label, values in _asked_of_nodes(found, spec, at):
        texts = ", ".join(values)
        if label in _TYPE_LABELS:
            machines(found, values, key)
        elif label in _FAMILIES and (gpus := {gpu for family in values if (gpu := _gpu_of_family(family))}):
            _one_gpu(found, key, sorted(gpus))
        elif label in _PRODUCTS and "-MIG-" in texts:
            found.elsewhere = f"{key}: {texts} is a part of a GPU: write a pool with sharing: {{mig: ...}} by hand"
        elif label in _PRODUCTS and (gpus := {gpu for text in values if (gpu := product(text))}):
            _one_gpu(found, key, sorted(gpus))
        elif label in (*_PRODUCTS, *_FAMILIES):
            found.leave(key, f"{texts}: not a GPU that the catalogue knows by this name{_CHOSEN}")
        elif label in _CAPACITY_LABELS:
            bought = {"spot" if value.lower() == "spot" else "on-demand" for value in values}
            found.capacity = "on-demand" if bought == {"on-demand"} else "spot"
            found.taken["capacity"] = key
        elif label == "kubernetes.io/arch" and "amd64" not in values:
            found.elsewhere = f"{key}: {texts}: pools made here are x64"
        elif label == "kubernetes.io/os" and "linux" not in values:
            found.elsewhere = f"{key}: {texts}: a pool has Linux nodes"
        else:
            found.leave(key, _NODE)
    for name in ("tolerations", "topologySpreadConstraints", "priorityClassName"):
        if name in spec:
            found.leave(f"{at}.{name}", _NODE)


def _asked_of_nodes(found: Found, spec: Mapping[str, Any], at: str) -> list[tuple[str, str, list[str]]]:
    """Return what must hold of nodes as key, label and values, and say of every other affinity that it is left out."""
    asked = [
        (f"{at}.nodeSelector.{label}", str(label), [str(value)])
        for label, value in mapping(spec.get("nodeSelector")).items()
    ]
    affinity = mapping(spec.get("affinity"))
    node = mapping(affinity.get("nodeAffinity"))
    required = mapping(node.get("requiredDuringSchedulingIgnoredDuringExecution"))
    terms = items(required.get("nodeSelectorTerms"))
    rows = items(terms[0].get("matchExpressions")) if len(terms) == 1 else []
    for row in rows:
        label, key = str(row.get("key")), f"{at}.affinity.{row.get('key')}"
        if row.get("operator") == "In":
            asked.append((key, label, words(row.get("values"))))
        else:
            found.leave(key, _NODE)
    if affinity and not (rows and len(affinity) == len(node) == 1):
        found.leave(f"{at}.affinity", _NODE)
    return asked


def _one_gpu(found: Found, key: str, gpus: Sequence[str]) -> None:
    found.gpu = gpus[0]
    found.taken["gpu"] = key
    for other in gpus[1:]:
        found.leave(key, f"{catalog.gpu(other).name}: another GPU than {catalog.gpu(gpus[0]).name}, and a pool has one")


def _gpu_of_family(family: str) -> str:
    """Return the GPU of a family of instance types, such as `g5`; `` if unknown."""
    known = catalog.instances().values()
    return next((type_.gpu for type_ in known if type_.gpu and type_.name.startswith(f"{family}.")), "")


def machines(found: Found, types: Sequence[str], source: str) -> None:
    """Take instance types of one GPU, and say of each other why the pool cannot have it."""
    first = next((type_ for type_ in types if gpu_of(type_)), "")
    gpu = gpu_of(first)
    for type_ in types:
        if not gpu_of(type_):
            reason = catalog.other_type(type_) or "not a type that the catalogue has"
            found.leave(source, f"{type_}: {reason}{'' if gpu else _CHOSEN}")
        elif gpu_of(type_) != gpu:
            found.leave(source, f"{type_}: another GPU than {first}, and a pool has one model")
    if gpu:
        found.instances = tuple(type_ for type_ in types if gpu_of(type_) == gpu)
        found.taken["instances"] = source


def gpu_of(type_: str) -> str:
    """Return the GPU of an instance type, `` where it has none or is not known."""
    known = catalog.instances().get(type_)
    return (known and known.gpu) or ""


def product(text: str) -> str:
    """Return the GPU of a label of GPU Feature Discovery, such as `Tesla-T4` or `NVIDIA-A10G`; `` if unknown."""
    words = set(text.lower().split("-"))
    found = [key for key in catalog.gpus() if set(key.split("-")) <= words]
    whole = [key for key in catalog.gpus() if key.partition("-")[0] in words]
    return next(iter(found or (whole if len(whole) == 1 else [])), "")


def environment(found: Found, given: Any, at: str) -> None:
    """Take variables that have a value and hold no secret."""
    taken = {}
    listed = [{"name": name, "value": value} for name, value in given.items()] if isinstance(given, Mapping) else given
    for entry in items(listed):
        name, value = str(entry.get("name")), entry.get("value")
        if name.upper().startswith((*RESERVED_ENVIRONMENT, "ACTIONS_RUNNER_")) or name.upper() in RUNTIME_VARIABLES:
            found.leave(f"{at}.{name}", "ARC, the runner and the device plugin set such variables by themselves")
        elif not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            found.leave(f"{at}.{name}", "not a name of a variable")
        elif name in _DOCKER:
            found.leave(f"{at}.{name}", "container: dind says by itself where Docker is")
        elif (source := next(iter(mapping(entry.get("valueFrom"))), "")) and source != "secretKeyRef":
            found.leave(f"{at}.{name}", f"its value is Kubernetes' ({source}), and a stack file has values alone")
        elif value is None or _SECRET_NAME.search(name) or _is_secret(str(value)):
            found.leave(f"{at}.{name}", _SECRET)
        else:
            taken[name] = str(value)
    if taken:
        found.take("environment", taken, at)


def _is_secret(value: str) -> bool:
    """Return whether a value looks like a credential, also in base64."""
    try:
        decoded = base64.b64decode(value, validate=True).decode("latin-1")
    except ValueError:
        decoded = ""
    return bool(_SECRET_VALUE.search(value) or CLEAR_TEXT.search(decoded))


def volumes(found: Found, mounts: Any, given: Any, templates: Any, at: str) -> None:
    """Take volumes of a claim, of the node's disk or memory, and those made for each runner."""
    sources = {str(volume.get("name")): volume for volume in items(given)}
    made = {str(mapping(claim.get("metadata")).get("name")): claim for claim in items(templates)}
    taken: dict[str, Any] = {}
    for mount in items(mounts):
        name, path = str(mount.get("name")), str(mount.get("mountPath"))
        key, source = f"{at}.volumes.{name}", sources.get(name, {})
        if mount.get("subPath") or mount.get("subPathExpr"):
            found.changed(f"{key}.subPath", "the whole volume is mounted")
        claim, empty = mapping(source.get("persistentVolumeClaim")), source.get("emptyDir")
        if path in _OF_DOCKER:
            found.leave(key, "Docker runs in a container of its own, on the node's disk")
            continue
        template = made.get(name) or mapping(mapping(source.get("ephemeral")).get("volumeClaimTemplate"))
        if claim.get("claimName"):
            read_only = {"readOnly": True} if mount.get("readOnly") or claim.get("readOnly") else {}
            taken[name] = {"claim": claim["claimName"], "mount": path} | read_only
        elif template:
            spec = mapping(template.get("spec"))
            size = mapping(mapping(spec.get("resources")).get("requests")).get("storage", "10Gi")
            taken[name] = {"volume": str(size), "mount": path}
            if "storageClassName" in spec:
                found.leave(f"{key}.storageClassName", "the fleet's encrypted class; storageClass names another")
            if name in made:
                found.changed(key, "it is made for each runner and deleted with it: nothing stays for the next job")
        elif isinstance(empty, Mapping):
            size, memory = str(empty.get("sizeLimit", "")), empty.get("medium") == "Memory"
            if path == "/dev/shm":  # noqa: S108 - where the file mounts it
                if size:
                    found.take("shm", size, key)
                else:
                    found.changed(key, "its size is a part of the runner's memory, or that of shm")
            elif size:
                taken[name] = {"scratch": size, "mount": path} | ({"medium": "memory"} if memory else {})
            elif not path.startswith(("/runner", "/home/runner")):
                found.leave(key, "a scratch volume has a size: write scratch: 20Gi")
        else:
            kind = next((word for word in source if word != "name"), "unknown")
            reasons = {"secret": _SECRET, "projected": _SECRET, "hostPath": "a job is to reach nothing of its node"}
            found.leave(key, reasons.get(kind, f"volumes of kind {kind} are not taken"))
    if taken:
        found.take("volumes", taken, f"{at}.volumeMounts")
