"""Which GPUs a renderer is to name, and what else it was told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paddock.gpu.errors import GpuError, NoGpu
from paddock.gpu.host.visibility import Visible, visible
from paddock.gpu.leases.eligibility import Circumstances, Device, devices, refusal
from paddock.gpu.leases.lease import Lease
from paddock.gpu.leases.request import Request, max_per_task
from paddock.gpu.leases.selection import choose
from paddock.gpu.model import Gpu, Inventory, Vendor
from paddock.gpu.render.fields import Connector, Docker, Fields, Kubernetes, Proxmox
from paddock.gpu.render.problems import wrong

_OTHER = "render on that machine, or from its inventory (`paddock gpu.list --json`)"


@dataclass(frozen=True, slots=True)
class Order:
    """`devices` are what to name, in the order of the bus; none where no GPU is wanted or there is none."""

    inventory: Inventory
    devices: tuple[Device, ...]
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
        return [one.uuid for one in self.devices]

    @property
    def vendor(self) -> Vendor | None:
        """Of what is named, else of what there is."""
        vendors = [one.gpu.vendor for one in self.devices] or [one.vendor for one in self.inventory.gpus]
        return vendors[0] if vendors else None

    @property
    def whole(self) -> bool:
        """Whether nothing of this machine is left out, so that `all` means the same."""
        every, refused = devices(self.inventory)
        lost = [one for one in self.inventory.gpus if one.state != "ok" or not one.uuid]
        empty = [one for one in refused if one.index not in {each.gpu.index for each in every}]
        return bool(self.devices) and not lost and not empty and {one.uuid for one in every} == set(self.uuids)

    @property
    def share(self) -> float | None:
        """The part of each GPU's memory that is wanted beside others."""
        return self.request.share if self.request else None


def order(
    inventory: Inventory,
    fields: Fields | None,
    request: Request | None,
    *,
    connector: Connector,
    leases: Sequence[Lease],
    environ: Mapping[str, str],
    limited: bool,
) -> Order:
    """With neither fields nor request, every GPU that works. `limited`: for one task, which may have only so many.

    Raises NoGpu where too few can be had, and GpuInputError.
    """
    if fields is not None and not fields.enabled:
        return Order(inventory, (), fields, None, connector, environ, ("Enabled is false: no GPU is given.",))
    request = _request(fields, request)
    shown = visible(inventory, environ)
    notes = list(shown.notes if shown else ())
    warnings: list[str] = []
    indexes = fields.gpu_ids if isinstance(fields, Docker | Proxmox) else ()
    if isinstance(fields, Proxmox) and fields.pci_devices:
        named = list(_by_index(inventory, indexes, shown))
    elif indexes:
        named = list(_by_index(inventory, indexes, shown))
        uuids = ", ".join(f"{one.gpu.index} is {one.uuid}" for one in named)
        notes.append(f"GPUIDs are indexes, which change with cards and drivers; here {uuids}.")
    elif request:
        choice = choose(inventory, request, leases, shown)
        if not choice.satisfied:
            raise NoGpu(f"{choice}\n    fix: ask for less, or {_OTHER}")
        notes = list(choice.notes)
        taken = {one.uuid for one in choice.taken}
        named = [one for one in devices(inventory)[0] if one.uuid in taken]
    else:
        named = list(_working(inventory, shown, warnings))
        if fields is not None and not named:
            raise NoGpu("\n    ".join([inventory.reason or "no GPU can be had", *warnings, f"fix: {_OTHER}"]))
    if len({one.gpu.vendor for one in named}) > 1:
        raise wrong("GPUs of two makers", "of one", "name those of one maker by their UUIDs in a request")
    if limited and (fields is not None or request is not None):
        _within(len(named), connector, environ)
    warnings += _cuda(inventory, [one.gpu for one in named], connector)
    if connector.nvidia_smi_path not in ("", "nvidia-smi"):
        notes.append("NvidiaSMIPath is not needed: the driver is asked through its library.")
    if inventory.reason and not named:
        notes.append(inventory.reason)
    return Order(inventory, tuple(named), fields, request, connector, environ, tuple(notes), tuple(warnings))


def _request(fields: Fields | None, request: Request | None) -> Request | None:
    """What chooses; None where the fields name the GPUs, or all are meant. Raises GpuInputError."""
    named, count = False, 0
    match fields:
        case Docker(gpu_ids=ids, all=every):
            if ids and every:
                raise wrong("GPUIDs and All are both given", "one of them", "leave All out to have those GPUs alone")
            named = bool(ids) or every
        case Proxmox(gpu_ids=ids, pci_devices=addresses):
            named = bool(ids or addresses)
        case Kubernetes(limit=limit, request=asked):
            if limit and asked and limit != asked:
                raise wrong(
                    f"Request is {asked} and Limit is {limit}",
                    "both the same: Kubernetes does not overcommit GPUs",
                    "give Limit alone; for several pods on one GPU ask for a share of its memory",
                )
            count = limit or asked
        case None:
            return request
    if request is None:
        return None if named else Request(count=count or 1)
    if named or count not in (0, request.count):
        raise wrong("both the fields and the request say which GPUs", "one of them")
    return request


def _by_index(inventory: Inventory, indexes: Iterable[int], shown: Visible | None) -> Iterable[Device]:
    known = {one.index: one for one in inventory.gpus}
    wanted = list(indexes)
    for index in wanted:
        gpu = known.get(index)
        if gpu is None:
            there = ", ".join(map(str, known)) or "none: " + (inventory.reason or "there is no GPU")
            raise wrong(f"GPUIDs has {index}", f"of {there}", _OTHER)
        if wanted.count(index) > 1:
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
        if shown and not shown.shows(gpu.uuid, gpu.uuid):
            raise wrong(f"GPU {index} is hidden", "one that the environment shows", f"{' '.join(shown.notes)}")
        yield Device(gpu.uuid, gpu)


def _working(inventory: Inventory, shown: Visible | None, warnings: list[str]) -> Iterable[Device]:
    """All that answer, are not sick and not hidden, whoever uses them now."""
    every, never = devices(inventory)
    divided = {one.gpu.index for one in every if one.part}
    warnings += [f"GPU {one.index} is left out: {one.reason}." for one in never if one.index not in divided]
    for device in every:
        reason = refusal(device, Request(), Circumstances(visible=shown))
        if reason is None or reason.passing:
            yield device
        else:
            warnings.append(f"GPU {device.gpu.index} is left out: {reason.reason}.")


def _within(count: int, connector: Connector, environ: Mapping[str, str]) -> None:
    most = connector.max_gpus_per_task or max_per_task(environ)
    if count > most:
        name = "MaxGPUsPerTask" if connector.max_gpus_per_task else "PADDOCK_MAX_GPUS_PER_TASK"
        raise wrong(f"{count} GPUs are more than one task may have", f"at most {most}", f"ask for less, or set {name}")


def _cuda(inventory: Inventory, gpus: Iterable[Gpu], connector: Connector) -> list[str]:
    """What is to be said of CUDAVersion on these GPUs and their driver. Raises GpuError where it cannot run."""
    wanted = connector.cuda_version
    if not wanted:
        return []
    from paddock.gpu.health.cuda import evaluate

    found = evaluate(replace(inventory, gpus=tuple(gpus)), wanted)
    if found.verdict == "ok":
        return []
    fix = found.fixes[0].text if found.fixes else ""
    if found.verdict == "impossible":
        raise GpuError(f"CUDA {wanted} cannot run here: {found.why}\n    fix: {fix}")
    return [f"CUDA {wanted}: {found.why}{f' ({fix})' if fix else ''}."]
