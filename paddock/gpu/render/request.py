"""A renderer's input: the GPUs to name, and the settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paddock.errors import program
from paddock.gpu.errors import GpuError, NoGpu
from paddock.gpu.health.check import unfit
from paddock.gpu.health.xid import Event
from paddock.gpu.host.visibility import visible
from paddock.gpu.leases.eligibility import LeasableDevice, SelectionContext, devices, refusal
from paddock.gpu.leases.lease import Lease
from paddock.gpu.leases.request import Request, max_per_task
from paddock.gpu.leases.selection import choose
from paddock.gpu.model import Gpu, Inventory, Vendor
from paddock.gpu.render.fields import Connector, Docker, Fields, Kubernetes, Proxmox, wrong

_OTHER = "render on that machine, or from its inventory (gpu.list --json)"


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """Input of a renderer. `devices` are those to name, in PCI order; empty where there are none or none is enabled."""

    inventory: Inventory
    devices: tuple[LeasableDevice, ...]
    fields: Fields | None = None
    request: Request | None = None
    connector: Connector = field(default_factory=Connector)
    environ: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def enabled(self) -> bool:
        return self.fields is None or self.fields.enabled

    @property
    def uuids(self) -> list[str]:
        return [device.uuid for device in self.devices]

    @property
    def vendor(self) -> Vendor | None:
        """Vendor of the named devices, else of the machine's GPUs."""
        vendors = [gpu.gpu.vendor for gpu in self.devices] or [gpu.vendor for gpu in self.inventory.gpus]
        return vendors[0] if vendors else None

    @property
    def whole(self) -> bool:
        """True where the devices are all of the machine's, so that `all` means the same."""
        every, refused = devices(self.inventory)
        lost = [gpu for gpu in self.inventory.gpus if gpu.state != "ok" or not gpu.uuid]
        empty = [refusal for refusal in refused if refusal.index not in {device.gpu.index for device in every}]
        return bool(self.devices) and not lost and not empty and {device.uuid for device in every} == set(self.uuids)

    @property
    def share(self) -> float | None:
        """Requested fraction of each GPU's memory; None for exclusive use."""
        return self.request.share if self.request else None


def build_request(
    inventory: Inventory,
    fields: Fields | None,
    request: Request | None,
    *,
    connector: Connector,
    leases: Sequence[Lease],
    environ: Mapping[str, str],
    limited: bool,
    xids: Sequence[Event] = (),
    accept_degraded: bool = False,
) -> RenderRequest:
    """Choose the devices: every working GPU without fields and request. `limited` applies the limit per task.

    `xids` are the driver's errors in the kernel log; `accept_degraded` takes GPUs that fail the health check.

    Raises NoGpu where too few are available, and GpuInputError.
    """
    if fields is not None and not fields.enabled:
        return RenderRequest(inventory, (), fields, None, connector, environ, ("Enabled is false: no GPU is given.",))
    request = _request(fields, request)
    allowed = visible(inventory, environ)
    notes = list(allowed.notes if allowed else ())
    warnings: list[str] = []
    accept_degraded = accept_degraded or (request is not None and request.accept_degraded)
    context = SelectionContext(visible=allowed, unfit={} if accept_degraded else unfit(inventory, xids))
    indexes = fields.gpu_ids if isinstance(fields, Docker | Proxmox) else ()
    if isinstance(fields, Proxmox) and fields.pci_devices:
        chosen = list(_by_index(inventory, indexes, context))
        _healthy([gpu for gpu in inventory.gpus if gpu.pci_address in fields.pci_devices], context)
    elif indexes:
        chosen = list(_by_index(inventory, indexes, context))
        uuids = ", ".join(f"{device.gpu.index} is {device.uuid}" for device in chosen)
        notes.append(f"GPUIDs are indexes, which change with cards and drivers; here {uuids}.")
    elif request:
        choice = choose(inventory, request, leases, allowed, xids=xids)
        if not choice.satisfied:
            raise NoGpu(f"{choice}\n    fix: ask for less, or {_OTHER}")
        notes = list(choice.notes)
        selected = {device.uuid for device in choice.taken}
        chosen = [device for device in devices(inventory)[0] if device.uuid in selected]
    else:
        chosen = list(_working(inventory, context, warnings))
        if fields is not None and not chosen:
            raise NoGpu("\n    ".join([inventory.reason or "no GPU is available", *warnings, f"fix: {_OTHER}"]))
    if len({device.gpu.vendor for device in chosen}) > 1:
        raise wrong("GPUs of two makers", "of one", "name those of one maker by their UUIDs in a request")
    if limited and (fields is not None or request is not None):
        _within(len(chosen), connector, environ)
    warnings += _cuda(inventory, [device.gpu for device in chosen], connector)
    if connector.nvidia_smi_path not in ("", "nvidia-smi"):
        notes.append("NvidiaSMIPath is not needed: the driver is asked through its library.")
    if inventory.reason and not chosen:
        notes.append(inventory.reason)
    return RenderRequest(inventory, tuple(chosen), fields, request, connector, environ, tuple(notes), tuple(warnings))


def _request(fields: Fields | None, request: Request | None) -> Request | None:
    """Return the request to choose by; None where the fields name the GPUs or mean all. Raises GpuInputError."""
    named, count = False, 0
    match fields:
        case Docker(gpu_ids=ids, all=every):
            if ids and every:
                raise wrong("GPUIDs and All are both given", "one of them", "leave All out to have those GPUs alone")
            named = bool(ids) or every
        case Proxmox(gpu_ids=ids, pci_devices=addresses):
            named = bool(ids or addresses)
        case Kubernetes(limit=limit, request=requested):
            if limit and requested and limit != requested:
                raise wrong(
                    f"Request is {requested} and Limit is {limit}",
                    "both the same: Kubernetes does not overcommit GPUs",
                    "give Limit alone; for several pods on one GPU ask for a share of its memory",
                )
            count = limit or requested
        case None:
            return request
    if request is None:
        return None if named else Request(count=count or 1)
    if named or count not in (0, request.count):
        raise wrong("both the fields and the request say which GPUs", "one of them")
    return request


def _healthy(gpus: Iterable[Gpu], context: SelectionContext) -> None:
    """Check GPUs that were named one by one. Raises NoGpu."""
    for gpu in gpus:
        if fault := context.fault(LeasableDevice(gpu.uuid or "", gpu)):
            raise NoGpu(
                f"GPU {gpu.index} cannot be given: {fault}"
                f"\n    fix: leave it out, do what `{program()} gpu.health` says, or --accept-degraded"
            )


def _by_index(inventory: Inventory, indexes: Iterable[int], context: SelectionContext) -> Iterable[LeasableDevice]:
    allowed = context.visible
    gpus = {gpu.index: gpu for gpu in inventory.gpus}
    requested = list(indexes)
    for index in requested:
        gpu = gpus.get(index)
        if gpu is None:
            available = ", ".join(map(str, gpus)) or "none: " + (inventory.reason or "there is no GPU")
            raise wrong(f"GPUIDs has {index}", f"of {available}", _OTHER)
        if requested.count(index) > 1:
            raise wrong(f"GPUIDs has {index} twice", "each once")
        if gpu.state != "ok" or not gpu.uuid:
            why = gpu.reason or ("it has no UUID" if gpu.state == "ok" else "")
            raise NoGpu(
                f"GPU {index} cannot be given: it is {gpu.state}{f' ({why})' if why else ''}\n    fix: leave it out"
            )
        if gpu.mig and gpu.mig.enabled:
            raise wrong(
                f"GPU {index} is divided by MIG", "a part of it", "name the part: a request with `mig` or `uuids`"
            )
        if allowed and not allowed.shows(gpu.uuid, gpu.uuid):
            raise wrong(f"GPU {index} is hidden", "one that the environment shows", f"{' '.join(allowed.notes)}")
        _healthy([gpu], context)
        yield LeasableDevice(gpu.uuid, gpu)


def _working(inventory: Inventory, context: SelectionContext, warnings: list[str]) -> Iterable[LeasableDevice]:
    """Yield the healthy and visible devices, no matter who uses them now."""
    every, unavailable = devices(inventory)
    divided = {device.gpu.index for device in every if device.part}
    warnings += [
        f"GPU {refused.index} is left out: {refused.reason}." for refused in unavailable if refused.index not in divided
    ]
    for device in every:
        reason = refusal(device, Request(), context)
        if reason is None or reason.transient:
            yield device
        else:
            warnings.append(f"GPU {device.gpu.index} is left out: {reason.reason}.")


def _within(count: int, connector: Connector, environ: Mapping[str, str]) -> None:
    limit = connector.max_gpus_per_task or max_per_task(environ)
    if count > limit:
        name = "MaxGPUsPerTask" if connector.max_gpus_per_task else "PADDOCK_MAX_GPUS_PER_TASK"
        raise wrong(f"{count} GPUs are more than one task may have", f"at most {limit}", f"ask for less, or set {name}")


def _cuda(inventory: Inventory, gpus: Iterable[Gpu], connector: Connector) -> list[str]:
    """Return warnings about CUDAVersion on these GPUs and their driver. Raises GpuError where it cannot run."""
    version = connector.cuda_version
    if not version:
        return []
    from paddock.gpu.health.cuda import evaluate

    compatibility = evaluate(replace(inventory, gpus=tuple(gpus)), version)
    if compatibility.verdict == "ok":
        return []
    fix = compatibility.fixes[0].text if compatibility.fixes else ""
    if compatibility.verdict == "impossible":
        raise GpuError(f"CUDA {version} cannot run here: {compatibility.why}\n    fix: {fix}")
    return [f"CUDA {version}: {compatibility.why}{f' ({fix})' if fix else ''}."]
