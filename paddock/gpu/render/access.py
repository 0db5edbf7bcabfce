"""A container's access to GPUs, independent of the output format."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from paddock.console.parameters import one_of
from paddock.gpu.catalog_match import catalog_entry
from paddock.gpu.leases.eligibility import LeasableDevice
from paddock.gpu.render.fields import Docker, matching, wrong
from paddock.gpu.render.request import RenderRequest

CAPABILITIES = ("compute", "compat32", "graphics", "utility", "video", "display", "ngx", "all")
"""Capabilities of NVIDIA's driver that a container can request."""
_UNITS = {"": 1 / (1 << 20), "k": 1 / 1024, "m": 1, "g": 1024, "t": 1 << 20}
_UNFILTERED = (
    "seccomp=unconfined lifts the filter of system calls, which ROCm's memory mapping wants; leave it out where the"
    " program runs without."
)


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Docker's request to its NVIDIA driver. Without `device_ids` it is every GPU."""

    device_ids: tuple[str, ...]
    capabilities: tuple[str, ...]

    @property
    def flags(self) -> list[str]:
        """Capabilities with `gpu`, which every request needs."""
        return ["gpu", *self.capabilities]


@dataclass(frozen=True, slots=True)
class Access:
    runtime: str | None = None
    request: DeviceRequest | None = None
    environment: dict[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """By number: many images do not have the names."""
    security: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def access(request: RenderRequest) -> Access:
    """Return the container's access. Raises GpuInputError for what Docker cannot do."""
    _refuse_memory(request)
    if not request.devices:
        # CUDA images request all GPUs, which takes effect where the NVIDIA runtime is the default.
        return Access(environment=hidden(request), notes=request.notes, warnings=request.warnings)
    return _amd(request) if request.vendor == "amd" else _nvidia(request)


def capabilities(request: RenderRequest) -> tuple[str, ...]:
    """Return those of the field, else of the environment; empty for the runtime's default. Raises GpuInputError."""
    own = request.fields.capabilities if isinstance(request.fields, Docker) else ()
    name = "Capabilities" if own else "NVIDIA_DRIVER_CAPABILITIES"
    requested = own or [
        capability.strip() for capability in request.environ.get(name, "").split(",") if capability.strip()
    ]
    for capability in requested:
        if capability not in (*CAPABILITIES, "gpu"):
            raise wrong(f"{name} has {capability!r}", one_of(capability, CAPABILITIES))
    result = [capability for capability in dict.fromkeys(requested) if capability != "gpu"]
    if result and request.connector.enable_monitoring and not {"utility", "all"} & set(result):
        result.append("utility")
    return tuple(result)


def hidden(request: RenderRequest) -> dict[str, str]:
    """Return the variables that hide every GPU from a container."""
    return {} if request.vendor == "amd" else {"NVIDIA_VISIBLE_DEVICES": "void"}


def wsl(request: RenderRequest) -> bool:
    """Return True in WSL, where a container gets every GPU. Raises GpuInputError where only some are requested."""
    if not request.inventory.machine.wsl:
        return False
    if not request.whole:
        raise wrong(
            "WSL gives a container every GPU or none", "all of them", "render `environment`, and hide them there"
        )
    return True


def render_nodes(devices: Iterable[LeasableDevice]) -> tuple[str, ...]:
    """Return the device files of AMD GPUs, without the shared /dev/kfd. Raises GpuInputError."""
    nodes = []
    for device in devices:
        if device.gpu.minor is None:
            raise wrong(f"GPU {device.gpu.index} has no render node", "/dev/dri/renderD…", "read the inventory again")
        nodes.append(f"/dev/dri/renderD{device.gpu.minor}")
    return tuple(nodes)


def kfd_group(request: RenderRequest) -> int:
    """Return the number of the group that may open /dev/kfd. Raises GpuInputError."""
    groups = {device.gpu.device_group for device in request.devices}
    group = groups.pop()
    if group is None:
        raise wrong(
            "the group of /dev/kfd is not known", "its number in the inventory", "save the inventory there again"
        )
    return group


def _nvidia(request: RenderRequest) -> Access:
    runtime, driver_capabilities = _runtime(request), capabilities(request)
    all_gpus = wsl(request) or (request.whole and isinstance(request.fields, Docker) and request.fields.all)
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    warnings = list(request.warnings)
    parts = [device for device in request.devices if device.part]
    if len(parts) > 1:
        warnings.append(f"{len(parts)} MIG parts are given, and a process can use one of them only.")
    if (
        runtime
        and request.inventory.runtime
        and (runtimes := request.inventory.runtime.runtimes)
        and runtime not in runtimes
    ):
        warnings.append(
            f"Docker there has no runtime {runtime}: `nvidia-ctk runtime configure --runtime=docker` adds nvidia."
        )
    if runtime and runtime.startswith("nvidia"):
        # This runtime and --gpus would both bring the driver in, which newer toolkits refuse.
        environment["NVIDIA_VISIBLE_DEVICES"] = "all" if all_gpus else ",".join(request.uuids)
        if driver_capabilities:
            environment["NVIDIA_DRIVER_CAPABILITIES"] = ",".join(driver_capabilities)
        return Access(runtime, None, environment, notes=request.notes, warnings=tuple(warnings))
    device_request = DeviceRequest(() if all_gpus else tuple(request.uuids), driver_capabilities)
    return Access(runtime, device_request, environment, notes=request.notes, warnings=tuple(warnings))


def _amd(request: RenderRequest) -> Access:
    warnings = [*request.warnings, _UNFILTERED]
    if isinstance(request.fields, Docker) and request.fields.capabilities:
        warnings.append("Capabilities are of NVIDIA's driver; an AMD GPU has none.")
    group = kfd_group(request)
    return Access(
        _runtime(request),
        devices=("/dev/kfd", *render_nodes(request.devices)),
        groups=(str(group),) if group else (),  # root has what is root's
        security=("seccomp=unconfined",),
        notes=request.notes,
        warnings=tuple(warnings),
    )


def _runtime(request: RenderRequest) -> str | None:
    own = request.fields.runtime if isinstance(request.fields, Docker) else ""
    name = own or request.connector.docker_runtime or request.environ.get("DOCKER_RUNTIME", "").strip()
    if not name:
        return None
    matching("the Docker runtime", name, r"[A-Za-z0-9][A-Za-z0-9_.-]*", "a name, such as nvidia or runc")
    if request.vendor == "amd" and name.startswith("nvidia"):
        if own:
            raise wrong(f"Runtime {name} gives no AMD GPU", "runc", "leave Runtime out")
        return None
    return name


def _refuse_memory(request: RenderRequest) -> None:
    memory = request.fields.memory if isinstance(request.fields, Docker) else ""
    if not memory:
        return
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", memory, re.IGNORECASE)
    mib = float(match[1]) * _UNITS[match[2].lower()] if match else 0
    if mib <= 0:
        raise wrong(f"Memory is {memory!r}", "leave it out: Docker has no limit of GPU memory")
    raise wrong(
        f"Memory is {memory!r}: Docker has no limit of GPU memory, it would be ignored",
        "leave Memory out",
        "; or ".join(_instead(request, mib)),
    )


def _instead(request: RenderRequest, mib: float) -> Iterable[str]:
    gpu = request.devices[0].gpu if request.devices else None
    model = catalog_entry(gpu) if gpu else None
    fitting = [profile for profile in model.mig if profile.memory_gib * 1024 >= mib] if model else []
    if fitting:
        yield f"a MIG part, enforced by the GPU: {min(fitting, key=lambda profile: profile.memory_gib).name}"
    if request.vendor != "amd":
        yield f"under MPS, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={max(1, round(mib))}M"
    if gpu and gpu.memory and gpu.memory.total > mib:
        yield f"in the program, torch.cuda.set_per_process_memory_fraction({mib / gpu.memory.total:.2f})"
    else:
        yield "in the program, torch.cuda.set_per_process_memory_fraction(…)"
