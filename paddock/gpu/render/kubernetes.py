"""A pod that requests GPUs, and the device plugin's configuration where they are shared or divided."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from paddock.gpu.errors import GpuInputError
from paddock.gpu.leases.eligibility import LeasableDevice
from paddock.gpu.render.access import capabilities, hidden
from paddock.gpu.render.fields import Kubernetes, Toleration, image_reference, matching, wrong
from paddock.gpu.render.rendered import File, Rendered, headed
from paddock.gpu.render.request import RenderRequest

_DOMAIN = {"nvidia": "nvidia.com", "amd": "amd.com"}
_NAME = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_LABEL_NAME = r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL_VALUE = r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?"
_PLUGIN_NAMESPACE, _PLUGIN = "kube-system", "nvidia-device-plugin-config"


def render(
    request: RenderRequest,
    *,
    name: str = "gpu",
    namespace: str = "default",
    image: str = "ubuntu:24.04",
    sharing: str = "time-slicing",
    mig: str = "mixed",
) -> Rendered:
    """Render a pod. `sharing` (time-slicing or mps) applies to a share of memory; `mig` is the plugin's strategy."""
    for option, value in (("name", name), ("namespace", namespace)):
        matching(option, value, _NAME, "lower-case letters, digits and dashes, 63 at most")
    image_reference(image)
    for option, value, allowed in (("sharing", sharing, ("time-slicing", "mps")), ("mig", mig, ("mixed", "single"))):
        if value not in allowed:
            raise wrong(f"{option} is {value!r}", " or ".join(allowed))
    fields = request.fields if isinstance(request.fields, Kubernetes) else Kubernetes()
    notes, warnings = list(request.notes), list(request.warnings)
    replicas = _replicas(request)
    limits = _limits(request, fields, mig)
    renamed = any(resource.endswith(".shared") for resource in limits)
    if renamed and replicas is None:
        raise wrong(f"{next(iter(limits))} is a shared GPU's name", "a share of memory in the request")
    container: dict[str, Any] = {"name": name, "image": image}
    environment = _environment(request)
    if environment:
        container["env"] = [{"name": key, "value": value} for key, value in environment.items()]
    if limits:
        container["resources"] = {"limits": limits}
    spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
    if request.devices:
        spec |= _placement(request, fields, mig, shared=replicas is not None and not renamed, warnings=warnings)
        notes.append("Kubernetes chooses the GPU on the node: a pod asks for a number of one kind, not for a UUID.")
        if any(device.part for device in request.devices) and sum(limits.values()) > 1:
            warnings.append("Several MIG parts are asked for, and a process can use one of them only.")
    metadata = {"name": name, "namespace": namespace}
    files = [_file("pod.yaml", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})]
    config = _plugin(request, replicas, sharing, mig, renamed)
    if config:
        files.append(_config_map(config))
        notes.append(
            f"device-plugin.yaml holds for all GPUs of a node; the plugin's chart takes config.name={_PLUGIN}."
        )
        if replicas and sharing == "time-slicing":
            warnings.append("Time slicing shares time alone: nothing keeps a pod from the memory of another.")
    return Rendered("kubernetes", tuple(files), tuple(notes), tuple(warnings))


def _limits(request: RenderRequest, fields: Kubernetes, mig: str) -> dict[str, int]:
    if not request.devices:
        return {}
    domain = _DOMAIN[str(request.vendor)]
    resource_name = fields.resource_name or request.environ.get("KUBE_GPU_RESOURCE", "").strip()
    limits = Counter(_resource(device, domain, mig) for device in request.devices)
    if not resource_name:
        return dict(limits)
    matching("ResourceName", resource_name, _LABEL_NAME, f"a resource, such as {domain}/gpu")
    if resource_name.partition("/")[0] != domain:
        if fields.resource_name:
            raise wrong(
                f"ResourceName is {resource_name}", f"one of {domain}, whose GPUs these are", "leave ResourceName out"
            )
        return dict(limits)
    parts = {name for name in limits if "/mig-" in name}
    if resource_name not in parts | {f"{domain}/gpu"} if parts else "/mig-" in resource_name:
        raise wrong(f"ResourceName is {resource_name}", f"{', '.join(limits)}, as these GPUs are divided")
    return dict(limits) if parts else {resource_name: len(request.devices)}


def _resource(device: LeasableDevice, domain: str, mig: str) -> str:
    if device.part is None or mig == "single":
        return f"{domain}/gpu"
    return f"{domain}/mig-{device.part.profile.replace('+', '.')}"


def _replicas(request: RenderRequest) -> int | None:
    """Return the plugin's replicas per GPU, so that each is at least the requested share."""
    if request.share is None:
        return None
    replicas = int(1 / request.share + 1e-9)
    if replicas < 2:
        raise wrong(f"a share of {request.share:g} leaves nothing to another pod", "0.5 or less", "leave share out")
    if request.vendor == "amd":
        raise GpuInputError(
            "AMD's device plugin shares no GPU\n    expected: whole GPUs\n    fix: leave share out, or divide the GPU"
            " by its compute partitions (`amd-smi set --compute-partition`)"
        )
    if len(request.devices) > 1:
        raise wrong(f"{len(request.devices)} shared GPUs", "1: two shares may be of the same GPU", "ask for one")
    return replicas


def _environment(request: RenderRequest) -> Mapping[str, str]:
    if not request.devices:
        return hidden(request)
    if request.vendor != "nvidia":
        return {}
    driver_capabilities = capabilities(request)
    return {"NVIDIA_DRIVER_CAPABILITIES": ",".join(driver_capabilities)} if driver_capabilities else {}


def _placement(
    request: RenderRequest, fields: Kubernetes, mig: str, *, shared: bool, warnings: list[str]
) -> dict[str, Any]:
    placement: dict[str, Any] = {}
    if fields.runtime_class:
        placement["runtimeClassName"] = matching("RuntimeClass", fields.runtime_class, _NAME, "a name, such as nvidia")
    selector = _product(request, mig, shared, warnings)
    for key, value in fields.node_selector.items():
        matching("a label in NodeSelector", key, _LABEL_NAME, "a label's name, such as nvidia.com/gpu.present")
        selector[key] = matching(f"NodeSelector.{key}", value, _LABEL_VALUE, "a label's value")
    if fields.node_selector.get("accelerator") == "nvidia-tesla-gpu":
        warnings.append(
            "nothing sets the label accelerator: nvidia-tesla-gpu, so the pod waits until somebody does;"
            ' feature discovery sets nvidia.com/gpu.present: "true" and nvidia.com/gpu.product.'
        )
    if selector:
        placement["nodeSelector"] = selector
    own = Toleration(key=f"{_DOMAIN[str(request.vendor)]}/gpu", operator="Exists", effect="NoSchedule")
    placement["tolerations"] = [toleration.kubernetes() for toleration in dict.fromkeys((own, *fields.tolerations))]
    return placement


def _product(request: RenderRequest, mig: str, shared: bool, warnings: list[str]) -> dict[str, str]:
    """Return the node label with the model, set by feature discovery."""
    if request.vendor != "nvidia":
        return {}
    if len({gpu.name for gpu in request.inventory.gpus if gpu.name}) > 1:
        warnings.append("The machine has several models, and its node is labelled by one: the pod may get any of them.")
        return {}
    gpu, part = request.devices[0].gpu, request.devices[0].part
    if not gpu.name:
        return {}
    product = re.sub(r"[^A-Za-z0-9._-]", "-", gpu.name)
    suffix = f"-MIG-{part.profile.replace('+', '.')}" if part and mig == "single" else ""
    # A plugin that shares nvidia.com/gpu without renaming it marks the model instead.
    shared = shared and (part is None or mig == "single")
    return {"nvidia.com/gpu.product": f"{product}{suffix}{'-SHARED' if shared else ''}"}


def _plugin(request: RenderRequest, replicas: int | None, sharing: str, mig: str, renamed: bool) -> dict[str, Any]:
    parts = any(device.part for device in request.devices)
    if replicas is None and not parts:
        return {}
    config: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": mig if parts else "none"}}
    if replicas is not None:
        (resource,) = {_resource(device, "nvidia.com", mig) for device in request.devices}
        shared: dict[str, Any] = {"resources": [{"name": resource, "replicas": replicas}]}
        if renamed:
            shared = {"renameByDefault": True, **shared}
        if sharing == "mps" and parts:
            raise wrong("MPS of a MIG part", "one of them", "time-slicing, or leave share out")
        if sharing == "mps":
            config["sharing"] = {"mps": shared}
        else:
            config["sharing"] = {"timeSlicing": {"failRequestsGreaterThanOne": True, **shared}}
    return config


def _config_map(config: Mapping[str, Any]) -> File:
    import yaml

    metadata = {"name": _PLUGIN, "namespace": _PLUGIN_NAMESPACE}
    data = {"default": yaml.safe_dump(dict(config), sort_keys=False)}
    return _file("device-plugin.yaml", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def _file(path: str, body: Mapping[str, Any]) -> File:
    return headed(path, _yaml(body))


def _yaml(body: Mapping[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Dumper that writes multi-line texts as blocks."""

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    document: str = yaml.dump(dict(body), Dumper=Dumper, sort_keys=False, width=1000)
    return document
