"""What each action on GPUs does with its parameters, on this machine. Raises GpuError."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from paddock.gpu import inventory as detect
from paddock.gpu import serialization
from paddock.gpu.actions import documents
from paddock.gpu.actions.parameters import (
    Allocate,
    CudaInfo,
    Deallocate,
    Info,
    MlEnv,
    Monitor,
    Nothing,
    Render,
    Reset,
    Run,
    Wanted,
)
from paddock.gpu.errors import GpuError, NoGpu
from paddock.gpu.leases.allocation import LEASE
from paddock.gpu.leases.lease import Lease
from paddock.gpu.leases.manager import Leases
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Inventory

if TYPE_CHECKING:
    from paddock.gpu.render import Rendered

SCHEMA = 1
Document = dict[str, Any]


def listing(_: Nothing) -> Document:
    return _data(detect.inventory(processes=True, topology=True))


def info(asked: Info) -> Document:
    found = detect.inventory()
    return documents.info(found, (documents.pick(found, asked.gpu),) if asked.gpu else found.gpus)


def monitor(asked: Monitor) -> Document:
    from paddock.gpu.monitoring.sampling import monitor, select_metrics
    from paddock.gpu.monitoring.summary import Collector

    collector = Collector(select_metrics(asked.metrics))
    ended = None
    try:
        for sample in monitor(asked.interval, asked.duration, asked.metrics):
            collector.add(sample)
    except NoGpu:
        raise
    except GpuError as error:  # the driver has gone; what was seen until then counts
        ended = str(error)
    return _data(collector.summary(ended))


def allocate(asked: Allocate) -> Document:
    from paddock.gpu.leases import allocation

    owner = asked.owner or (None if asked.ttl else os.getpid())
    return allocation.allocate(asked.request(), owner=owner, ttl=asked.ttl, wait=asked.wait)


def deallocate(asked: Deallocate) -> Document:
    from paddock.gpu.leases import allocation

    return allocation.deallocate(asked.leases)


def takes_from_others(asked: Deallocate, pid: int) -> bool:
    """Whether one of the leases has no such owner."""

    def named(lease: Lease) -> bool:
        return lease.id in asked.leases or any(device.uuid in asked.leases for device in lease.devices)

    return any(all(owner.pid != pid for owner in lease.owners) for lease in Leases().held() if named(lease))


def holds_lease(told: Document) -> bool:
    """Whether the lease that was told of is still held, where there was one."""
    id = (told.get("lease") or {}).get("id")
    return id is None or any(lease.id == id for lease in Leases().held())


def leases(_: Nothing) -> Document:
    from paddock.gpu.leases import allocation

    return allocation.list_leases()


def cuda_info(asked: CudaInfo) -> Document:
    from paddock.gpu.health import cuda as compat

    found = detect.inventory(programs=True)
    return documents.cuda(found, compat.evaluate(found, asked.toolkit))


def reset(asked: Reset) -> Document:
    from paddock.gpu.health import reset

    def look() -> Inventory:
        return detect.inventory(processes=True, topology=True)

    found = look()
    made = reset.plan_for(found, documents.pick(found, asked.gpu), Leases().held(), kind=asked.kind)
    if asked.dry_run:
        return _data(made)
    done = reset.execute(made, look, Leases().held)
    if not done.ok:
        failed = "; ".join(f"{one.step}: {one.output}" for one in done.outcomes if one.code)
        raise GpuError(f"GPU {made.uuid} was not reset well: {failed or done.after}")
    return _data(done)


def reset_plan(asked: Reset) -> Document:
    return reset(asked.model_copy(update={"dry_run": True}))


def health(_: Nothing) -> Document:
    from paddock.gpu.health import check as health

    return _data(health.check())


def render(asked: Render) -> Document:
    from paddock.gpu import render

    options = render.options(asked.target, [f"{name}={_written(value)}" for name, value in asked.options.items()])
    chosen = Wanted.model_fields.keys() & asked.model_fields_set
    request = asked.request() if chosen or not asked.fields else None
    wanted, request = (asked.fields, request) if asked.fields else (request, None)
    return render.to_document(configuration(asked.target, wanted, options, request=request))


def configuration(
    target: str,
    wanted: Request | dict[str, Any] | None,
    options: Mapping[str, Any],
    *,
    request: Request | None = None,
    source: Inventory | None = None,
) -> Rendered:
    """For the GPUs here that nobody else has leased, or for those of `source`. Raises NoGpu and GpuInputError."""
    from paddock.gpu import render

    if source is not None:
        return render.render(target, source, wanted, request=request, environ=os.environ, **options)
    if target == "slurm":
        from paddock.gpu.render.slurm import node

        options = {**node.installed(), **options}
    found = detect.inventory(processes=True, topology=True, programs=True)
    mine = {os.getpid(), os.getppid()}
    others = [
        lease
        for lease in Leases().held()
        if lease.id != os.environ.get(LEASE) and not any(owner.pid in mine for owner in lease.owners)
    ]
    return render.render(target, found, wanted, request=request, leases=others, environ=os.environ, **options)


def ml_env(asked: MlEnv) -> Document:
    from paddock.gpu.ml import environment as ml

    return ml.environment(
        asked.framework,
        request=asked.request(),
        cuda=asked.cuda,
        target=asked.target,
        image=asked.image,
        owner=asked.owner or (None if asked.ttl else os.getpid()),
        ttl=asked.ttl,
    )


def run(asked: Run) -> Document:
    from paddock.gpu.leases.run import run

    return {"schema": SCHEMA, "exit_code": run(asked.command, asked.request(), wait=asked.wait)}


def _data(value: Any) -> Document:
    told: Document = serialization.data(value)
    return told


def _written(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
