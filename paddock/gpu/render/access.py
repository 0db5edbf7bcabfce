"""What a container is given, whatever writes it down."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from paddock.gpu.catalog_match import catalog_entry
from paddock.gpu.leases.eligibility import Device
from paddock.gpu.render.fields import Docker
from paddock.gpu.render.problems import matching, one_of, wrong
from paddock.gpu.render.request import Order

CAPABILITIES = ("compute", "compat32", "graphics", "utility", "video", "display", "ngx", "all")
"""What a container may use the driver for."""
_UNITS = {"": 1 / (1 << 20), "k": 1 / 1024, "m": 1, "g": 1024, "t": 1 << 20}
_UNFILTERED = (
    "seccomp=unconfined lifts the filter of system calls, which ROCm's memory mapping wants; leave it out where the"
    " program runs without."
)


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What Docker asks its NVIDIA driver for. Without `device_ids` it is every GPU."""

    device_ids: tuple[str, ...]
    capabilities: tuple[str, ...]

    @property
    def flags(self) -> list[str]:
        """With the one that means a GPU at all."""
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


def access(order: Order) -> Access:
    """Raises GpuInputError for what Docker cannot do."""
    _refuse_memory(order)
    if not order.devices:
        # An image of CUDA's asks for all of them where the NVIDIA runtime is the default one.
        return Access(environment=hidden(order), notes=order.notes, warnings=order.warnings)
    return _amd(order) if order.vendor == "amd" else _nvidia(order)


def capabilities(order: Order) -> tuple[str, ...]:
    """Of the field, else of the environment; none are the runtime's own, compute and utility. Raises GpuInputError."""
    own = order.fields.capabilities if isinstance(order.fields, Docker) else ()
    name = "Capabilities" if own else "NVIDIA_DRIVER_CAPABILITIES"
    given = own or [one.strip() for one in order.environ.get(name, "").split(",") if one.strip()]
    for one in given:
        if one not in (*CAPABILITIES, "gpu"):
            raise wrong(f"{name} has {one!r}", one_of(one, CAPABILITIES))
    found = [one for one in dict.fromkeys(given) if one != "gpu"]
    if found and order.connector.enable_monitoring and not {"utility", "all"} & set(found):
        found.append("utility")
    return tuple(found)


def hidden(order: Order) -> dict[str, str]:
    """The variables that keep every GPU from a container."""
    return {} if order.vendor == "amd" else {"NVIDIA_VISIBLE_DEVICES": "void"}


def wsl(order: Order) -> bool:
    """Whether a container gets every GPU, whatever is named. Raises GpuInputError where that is not what is wanted."""
    if not order.inventory.machine.wsl:
        return False
    if not order.whole:
        raise wrong(
            "WSL gives a container every GPU or none", "all of them", "render `environment`, and hide them there"
        )
    return True


def render_nodes(devices: Iterable[Device]) -> tuple[str, ...]:
    """The files of AMD's GPUs, without the one that all share. Raises GpuInputError."""
    found = []
    for one in devices:
        if one.gpu.minor is None:
            raise wrong(f"GPU {one.gpu.index} has no render node", "/dev/dri/renderD…", "read the inventory anew")
        found.append(f"/dev/dri/renderD{one.gpu.minor}")
    return tuple(found)


def kfd_group(order: Order) -> int:
    """The group that may open /dev/kfd. Raises GpuInputError."""
    groups = {one.gpu.device_group for one in order.devices}
    found = groups.pop()
    if found is None:
        raise wrong(
            "the group of /dev/kfd is not known", "its number in the inventory", "save the inventory there anew"
        )
    return found


def _nvidia(order: Order) -> Access:
    runtime, wanted = _runtime(order), capabilities(order)
    everything = wsl(order) or (order.whole and isinstance(order.fields, Docker) and order.fields.all)
    environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    warnings = list(order.warnings)
    parts = [one for one in order.devices if one.part]
    if len(parts) > 1:
        warnings.append(f"{len(parts)} MIG parts are given, and a process can use one of them only.")
    if runtime and order.inventory.runtime and (there := order.inventory.runtime.runtimes) and runtime not in there:
        warnings.append(
            f"Docker there has no runtime {runtime}: `nvidia-ctk runtime configure --runtime=docker` adds nvidia."
        )
    if runtime and runtime.startswith("nvidia"):
        # This runtime and --gpus would both bring the driver in, which newer toolkits refuse.
        environment["NVIDIA_VISIBLE_DEVICES"] = "all" if everything else ",".join(order.uuids)
        if wanted:
            environment["NVIDIA_DRIVER_CAPABILITIES"] = ",".join(wanted)
        return Access(runtime, None, environment, notes=order.notes, warnings=tuple(warnings))
    request = DeviceRequest(() if everything else tuple(order.uuids), wanted)
    return Access(runtime, request, environment, notes=order.notes, warnings=tuple(warnings))


def _amd(order: Order) -> Access:
    warnings = [*order.warnings, _UNFILTERED]
    if isinstance(order.fields, Docker) and order.fields.capabilities:
        warnings.append("Capabilities are of NVIDIA's driver; an AMD GPU has none.")
    group = kfd_group(order)
    return Access(
        _runtime(order),
        devices=("/dev/kfd", *render_nodes(order.devices)),
        groups=(str(group),) if group else (),  # root has what is root's
        security=("seccomp=unconfined",),
        notes=order.notes,
        warnings=tuple(warnings),
    )


def _runtime(order: Order) -> str | None:
    own = order.fields.runtime if isinstance(order.fields, Docker) else ""
    name = own or order.connector.docker_runtime or order.environ.get("DOCKER_RUNTIME", "").strip()
    if not name:
        return None
    matching("the Docker runtime", name, r"[A-Za-z0-9][A-Za-z0-9_.-]*", "a name, such as nvidia or runc")
    if order.vendor == "amd" and name.startswith("nvidia"):
        if own:
            raise wrong(f"Runtime {name} gives no AMD GPU", "runc", "leave Runtime out")
        return None
    return name


def _refuse_memory(order: Order) -> None:
    wanted = order.fields.memory if isinstance(order.fields, Docker) else ""
    if not wanted:
        return
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", wanted, re.IGNORECASE)
    mib = float(found[1]) * _UNITS[found[2].lower()] if found else 0
    if mib <= 0:
        raise wrong(f"Memory is {wanted!r}", "leave it out: Docker has no limit of GPU memory")
    raise wrong(
        f"Memory is {wanted!r}: Docker has no limit of GPU memory, it would be ignored",
        "leave Memory out",
        "; or ".join(_instead(order, mib)),
    )


def _instead(order: Order, mib: float) -> Iterable[str]:
    gpu = order.devices[0].gpu if order.devices else None
    model = catalog_entry(gpu) if gpu else None
    fitting = [one for one in model.mig if one.memory_gib * 1024 >= mib] if model else []
    if fitting:
        yield f"a MIG part, enforced by the GPU: {min(fitting, key=lambda one: one.memory_gib).name}"
    if order.vendor != "amd":
        yield f"under MPS, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0={max(1, round(mib))}M"
    if gpu and gpu.memory and gpu.memory.total > mib:
        yield f"in the program, torch.cuda.set_per_process_memory_fraction({mib / gpu.memory.total:.2f})"
    else:
        yield "in the program, torch.cuda.set_per_process_memory_fraction(…)"
