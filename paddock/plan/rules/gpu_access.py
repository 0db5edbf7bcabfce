"""Access to GPUs: strategy of the device plugin, rights of daemons, setting of nodes, environment of pods."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from infra.gpu.access import BOTTLEROCKET, NVIDIA_CTK, STRATEGY, TOOLKIT
from paddock.fleet import KubeconfigCluster
from paddock.fleet.model.runner import RUNTIME_VARIABLES
from paddock.fleet.nodes import GPU
from paddock.plan import fields
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Resource
from paddock.plan.finding import Severity
from paddock.plan.rules.base import Context, Rule, Violation, violation
from paddock.plan.rules.inputs.pods import chart, pods

_NO_GPU = ("", "void", "none")


class GpuAccess(Rule):
    id = "PAD038"
    severity: ClassVar[Severity] = "error"
    milder = True
    title = "A pod sees the GPUs that the device plugin gave it, and no image or variable shows it others"
    why = "Most CUDA images ask for every GPU of their node; a node that refuses it also refuses what envvar hands out."
    fix = f"deviceListStrategy: {STRATEGY}; SYS_ADMIN for what reads every GPU; on nodes, as docs/security.md says"

    def check(self, context: Context) -> Iterator[Violation]:
        others = context.fleet is not None and isinstance(context.fleet.cluster, KubeconfigCluster)
        for release in context.all(types.RELEASE):
            values = fields.get(release.inputs, "values")
            if not fields.is_unknown(values):
                for message, fix in self._daemons(chart(release), values):
                    yield violation(release, message, fix=fix)
            if others and chart(release) == "nvidia-device-plugin":
                message = f"nodes of another owner: not known whether they ran {NVIDIA_CTK}"
                yield violation(release, message, "info", fix="that command on each node, before it takes jobs")
        for group in context.all(types.NODE_GROUP):
            if _has_gpus(group):
                yield from self._node(context, group)
        for pod in pods(context):
            for container in pod.containers:
                for variable in fields.items(container, "env"):
                    name, value = fields.text(variable, "name"), fields.get(variable, "value")
                    if name in RUNTIME_VARIABLES and not fields.is_unknown(value) and value not in _NO_GPU:
                        message = f"{name} asks the container runtime for GPUs in {pod.where}"
                        yield violation(pod.resource, message, fix=f"remove {name}: a GPU comes with {GPU} alone")

    @staticmethod
    def _daemons(name: str, values: Any) -> Iterator[tuple[str, str]]:
        """Yield (what is wrong, what to write)."""
        sees_all = "securityContext.capabilities.add: [SYS_ADMIN]"
        if name == "nvidia-device-plugin":
            strategy = fields.get(values, "deviceListStrategy")
            if strategy != STRATEGY and not fields.is_unknown(strategy):
                message = f"deviceListStrategy is {strategy or 'not set'}, which is envvar by default"
                yield message, f"deviceListStrategy: {STRATEGY}"
            for daemon, settings in (("device plugin", values), ("feature discovery", fields.get(values, "gfd"))):
                if not _reads_every_gpu(fields.get(settings, "securityContext")):
                    yield f"its {daemon} has no SYS_ADMIN, so the node gives it no GPU to read", sees_all
        elif name == "dcgm-exporter":  # SYS_ADMIN is the chart's default
            security = fields.get(values, "securityContext")
            remote = "-r" in fields.items(values, "arguments")
            if security is not None and not remote and not _reads_every_gpu(security):
                yield "its exporter has no SYS_ADMIN, so the node gives it no GPU to read", sees_all

    @staticmethod
    def _node(context: Context, group: Resource) -> Iterator[Violation]:
        used = set(group.property_dependencies.get("launchTemplate", ()))
        templates = [item for item in context.all(types.LAUNCH_TEMPLATE) if item.urn in used]
        if not templates and not fields.is_unknown(fields.get(group.inputs, "launchTemplate")):
            fix = "launchTemplate: one whose user data has the settings of docs/security.md"
            yield violation(group, "no launch template of ours says who may see its GPUs", fix=fix)
        bottlerocket = fields.text(group.inputs, "amiType").startswith("BOTTLEROCKET")
        for template in templates:
            data = context.read(template, "userData")
            if fields.is_unknown(data):
                continue
            text = fields.decode_user_data(data)
            for setting in _of_bottlerocket(text) if bottlerocket else _of_toolkit(text):
                yield violation(template, f"its user data does not set {setting}", fix=f"userData: set {setting}")


def _has_gpus(group: Resource) -> bool:
    tainted = any(fields.text(taint, "key") == GPU for taint in fields.items(group.inputs, "taints"))
    labelled = f"{GPU}.present" in fields.mapping(group.inputs, "labels")
    return tainted or labelled or "NVIDIA" in fields.text(group.inputs, "amiType")


def _reads_every_gpu(security: Any) -> bool:
    added = fields.get(security, "capabilities", "add")
    return (
        fields.is_on(fields.get(security, "privileged"))
        or fields.has_unknown(added)
        or "SYS_ADMIN" in fields.as_list(added)
    )


def _of_toolkit(text: str) -> Iterator[str]:
    """Settings of NVIDIA's container toolkit that a boot script lacks, or sets otherwise at the end."""
    for key, expected in TOOLKIT.items():
        word = str(expected).lower()
        if re.findall(rf"--set[ =]{key}=(\w+)", text)[-1:] != [word]:
            yield f"{key} to {word}"


def _of_bottlerocket(text: str) -> Iterator[str]:
    try:
        settings: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        settings = {}
    for table, expected in BOTTLEROCKET.items():
        for key, value in expected.items():
            if fields.get(settings, "settings", *table.split("."), key) != value:
                yield f"settings.{table}.{key} to {str(value).lower()}"


RULES = (GpuAccess(),)
