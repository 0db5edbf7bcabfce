"""Handlers of the actions on GPUs: what each does on this machine. All raise GpuError.

Rooms are imported inside the functions: listing the tasks of the console program must load none of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.gpu.errors import DriverHangs, GpuInputError, NoGpu
from paddock.gpu.parameter import Parameters

if TYPE_CHECKING:
    from paddock.gpu.actions import parameters as p
    from paddock.gpu.health.rules import HealthContext
    from paddock.gpu.leases.request import Request
    from paddock.gpu.model import Inventory
    from paddock.gpu.render import Rendered

Document = dict[str, Any]
_MAX_HOURS = 24 * 365


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an action: `source` is a saved inventory to read in place of this machine.

    `console` is a call by a person, whose shell owns the leases; `as_json` is one whose document is read.
    """

    source: Path | None = None
    console: bool = False
    as_json: bool = True

    @property
    def owner(self) -> int | None:
        """The pid that leases live as long as; None is the process that called this one."""
        return None if self.console else os.getpid()

    def inventory(self, **details: Any) -> Inventory:
        """Read the GPUs. Raises GpuInputError."""
        from paddock.gpu import inventory, serialization
        from paddock.gpu.host import bounded

        if self.source:
            return serialization.load(self.source)
        return bounded.answer(lambda: inventory.inventory(**details))


@dataclass(frozen=True, slots=True)
class Result:
    """Document of an action and its text for people; `notes` go beside the text, `written` are files that it wrote.

    `failure` is the error of a call that reads no exit code.
    """

    document: Document
    text: Callable[[], Iterable[str]]
    notes: Sequence[str] = ()
    written: Sequence[Path] = ()
    exit_code: int = 0
    failure: str = ""


def list_gpus(_: Parameters, call: Call) -> Result:
    from paddock.gpu.actions import text

    # Whoever reads the document may want all of it; a table does not need the slow parts.
    inventory = call.inventory(processes=call.as_json, topology=call.as_json)
    return Result(_data(inventory), lambda: text.listing(inventory))


def info(parameters: p.Info, call: Call) -> Result:
    from paddock.gpu.actions import documents, text

    inventory = call.inventory()
    gpus = (documents.pick(inventory, parameters.gpu),) if parameters.gpu else inventory.gpus
    return Result(documents.info(inventory, gpus), lambda: text.info(inventory, gpus))


def memory(_: Parameters, call: Call) -> Result:
    from paddock.gpu.actions import documents, text

    inventory = call.inventory()
    return Result(documents.memory(inventory), lambda: text.memory(inventory))


def processes(_: Parameters, call: Call) -> Result:
    from paddock.gpu.actions import documents, text

    inventory = call.inventory(processes=True)
    return Result(documents.processes(inventory), lambda: text.processes(inventory))


def topology(_: Parameters, call: Call) -> Result:
    from paddock.gpu.actions import documents, text

    inventory = call.inventory(topology=True)
    return Result(documents.topology(inventory), lambda: text.topology(inventory))


def cuda_info(parameters: p.CudaInfo, call: Call) -> Result:
    from paddock.gpu.actions import documents, text
    from paddock.gpu.health import cuda

    inventory = call.inventory(programs=True)
    compatibility = cuda.evaluate(inventory, parameters.toolkit)
    return Result(documents.cuda(inventory, compatibility), lambda: text.cuda(inventory, compatibility))


def health(parameters: p.Health, call: Call) -> Result:
    from datetime import timedelta

    from paddock.gpu.actions import text
    from paddock.gpu.health import check
    from paddock.gpu.host import bounded

    hours = parameters.since_hours
    if not 0 <= hours <= _MAX_HOURS:
        raise GpuInputError(f"{hours:g} hours are no time\n    expected: 0 to {_MAX_HOURS}\n    fix: --since-hours 2")
    context = _health_context(parameters)
    if call.source is None:
        since = timedelta(hours=hours) if hours else None
        try:
            verdict = bounded.answer(lambda: check.check(context=context, since=since))
        except DriverHangs as error:
            verdict = check.hanging(error)
    else:
        unchecked = ("Xids: a saved inventory holds no kernel log",)
        verdict = check.evaluate(call.inventory(), (), context, unchecked)
    return Result(_data(verdict), lambda: text.health(verdict), exit_code=verdict.exit_code)


def _health_context(parameters: p.Health) -> HealthContext:
    from paddock.gpu.health.check import expected
    from paddock.gpu.health.rules import HealthContext
    from paddock.gpu.host import imds

    if parameters.expect < 0:
        raise GpuInputError(
            f"{parameters.expect} GPUs cannot be expected\n    expected: 1 or more\n    fix: --expect 8"
        )
    instance = imds.instance_type() if parameters.instance == "imds" else parameters.instance
    context = expected(instance) if instance else HealthContext()
    return replace(context, expect=parameters.expect or context.expect, idle=parameters.idle)


def monitor(parameters: p.Monitor, _: Call) -> Result:
    from paddock.gpu.actions import text
    from paddock.gpu.monitoring import sampling
    from paddock.gpu.monitoring.summary import watch

    samples = sampling.monitor(parameters.interval, parameters.duration, parameters.metrics)
    summary = watch(samples, sampling.select_metrics(parameters.metrics))
    return Result(_data(summary), lambda: text.summary(summary))


def allocate(parameters: p.Lease, call: Call) -> Result:
    from paddock.gpu.leases import allocation

    request = parameters.request()
    if call.source is not None:
        return _choice(request, call)
    document = allocation.allocate(request, **_lease(parameters, call))
    notes = [f"{gpu['uuid']}: {gpu['reason']}" for gpu in document["taken"]]
    notes += [f"note: {note}" for note in document["notes"]]
    return Result(document, lambda: allocation.exports(document["environment"]).splitlines(), notes)


def _choice(request: Request, call: Call) -> Result:
    """Choose of a saved inventory as if nothing of it were leased."""
    from paddock.gpu.leases.allocation import choice_document
    from paddock.gpu.leases.manager import NoneFree
    from paddock.gpu.leases.request import within_limit
    from paddock.gpu.leases.selection import choose

    within_limit(request)
    choice = choose(call.inventory(), request)
    if not choice.satisfied:
        raise NoneFree(choice)
    lines = [str(choice), "nothing was leased: these are another machine's"]
    return Result({"lease": None, **choice_document(choice)}, lambda: lines)


def _lease(parameters: p.Lease, call: Call) -> dict[str, Any]:
    owner = parameters.owner or (None if parameters.ttl else call.owner)
    return {"owner": owner, "ttl": parameters.ttl, "wait": parameters.wait, "priority": parameters.priority}


def deallocate(parameters: p.Deallocate, _: Call) -> Result:
    from paddock.gpu.leases import allocation

    document = allocation.deallocate(parameters.leases)
    return Result(document, lambda: (f"{lease['id']} is given back" for lease in document["released"]))


def renew(parameters: p.Renew, _: Call) -> Result:
    from paddock.gpu.leases import allocation

    document = allocation.renew(parameters.leases, parameters.ttl)
    return Result(document, lambda: (f"{lease['id']} is renewed" for lease in document["renewed"]))


def leases(_: Parameters, call: Call) -> Result:
    from paddock.gpu.actions import text
    from paddock.gpu.leases import allocation

    document = allocation.list_leases()
    return Result(document, lambda: text.leases(document))


def affects_others(parameters: p.Deallocate, pid: int) -> bool:
    """Tell whether one of the leases has no such owner."""
    from paddock.gpu.leases.manager import Leases

    named = [
        lease
        for lease in Leases().held()
        if lease.id in parameters.leases or any(device.uuid in parameters.leases for device in lease.devices)
    ]
    return any(all(owner.pid != pid for owner in lease.owners) for lease in named)


def lease_is_held(document: Document) -> bool:
    """Tell whether the lease of an earlier result is still held, where it had one."""
    from paddock.gpu.leases.manager import Leases

    id = (document.get("lease") or {}).get("id")
    return id is None or any(lease.id == id for lease in Leases().held())


def reset(parameters: p.Reset, _: Call) -> Result:
    from paddock.gpu import inventory, reset
    from paddock.gpu.actions import documents, text
    from paddock.gpu.host import bounded
    from paddock.gpu.leases.manager import Leases

    def read() -> Inventory:
        return bounded.answer(lambda: inventory.inventory(processes=True, topology=True))

    current = read()
    gpu = documents.pick(current, parameters.gpu)
    plan = reset.plan_for(current, gpu, Leases().held(), kind=parameters.kind)
    if parameters.dry_run or plan.refused:
        refusal = f"GPU {plan.uuid} is not reset: {'; '.join(plan.refused)}\n    expected: a GPU that nothing uses"
        failure = "" if parameters.dry_run else refusal
        document = {**_data(plan), "done": False}
        return Result(document, lambda: text.reset_plan(plan), exit_code=int(bool(plan.refused)), failure=failure)
    result = reset.execute(plan, read, Leases().held)
    failures = "; ".join(f"{outcome.step}: {outcome.output}" for outcome in result.outcomes if outcome.code)
    return Result(
        {**_data(result), "done": result.ok},
        lambda: text.reset_result(result),
        exit_code=int(not result.ok),
        failure="" if result.ok else f"GPU {plan.uuid} was not reset: {failures or result.after}",
    )


def reset_plan(parameters: p.Reset) -> Document:
    """Return the plan of a reset, and do nothing."""
    return reset(replace(parameters, dry_run=True), Call()).document


def render(parameters: p.Render, call: Call) -> Result:
    from paddock.gpu import render
    from paddock.gpu.actions import documents, text

    file = parameters.fields_file
    fields = documents.read_object(file, "fields and their values") if file else parameters.fields
    options = render.options(parameters.target, [*parameters.option, *map(_option, parameters.options.items())])
    rendered = _rendered(parameters, fields, options, call)
    notes = [f"{kind}: {note}" for kind in ("note", "warning") for note in getattr(rendered, f"{kind}s")]
    if parameters.output is None:
        return Result(render.to_document(rendered), lambda: text.files(rendered), notes)
    written = render.write(rendered, parameters.output, parameters.force)
    return Result(render.to_document(rendered), tuple, notes, written)


def _rendered(parameters: p.Render, fields: dict[str, Any], options: dict[str, Any], call: Call) -> Rendered:
    """Render for the GPUs here that nobody else has leased, or for those of a saved inventory."""
    from paddock.gpu import render
    from paddock.gpu.health.check import logged_events
    from paddock.gpu.leases.allocation import LEASE
    from paddock.gpu.leases.manager import Leases

    # On the console no criterion is every GPU that works; elsewhere it is one GPU.
    is_chosen = bool(parameters.criteria().keys() - {"accept_degraded"}) or not (fields or call.console)
    request = parameters.request() if is_chosen and not parameters.fields_file else None
    options = {"accept_degraded": parameters.accept_degraded, **options}
    subject, request = (fields, request) if fields else (request, None)
    if call.source is not None:
        return render.render(
            parameters.target, call.inventory(), subject, request=request, environ=os.environ, **options
        )
    if parameters.target == "slurm":
        from paddock.gpu.render.slurm import node

        options = {**node.installed(), **options}
    own_pids = {os.getpid(), os.getppid()}
    foreign = [
        lease
        for lease in Leases().held()
        if lease.id != os.environ.get(LEASE) and not any(owner.pid in own_pids for owner in lease.owners)
    ]
    inventory = call.inventory(processes=True, topology=True, programs=True)
    return render.render(
        parameters.target,
        inventory,
        subject,
        request=request,
        leases=foreign,
        environ=os.environ,
        xids=logged_events(),
        **options,
    )


def _option(item: tuple[str, str | int | bool]) -> str:
    name, value = item
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}"


def ml_env(parameters: p.MlEnv, call: Call) -> Result:
    from paddock.gpu.actions import documents, text
    from paddock.gpu.leases.request import Request
    from paddock.gpu.ml import environment as ml

    config = documents.read_object(parameters.config, "an MLEnvironmentConfig") if parameters.config else {}
    arguments = ml.from_dict(config)
    request = asdict(arguments.pop("request")) if "request" in arguments else {}
    names = ("framework", "cuda", "target", "image", "path", "start")
    arguments |= {name: value for name, value in parameters.values().items() if name in names}
    arguments["request"] = Request.from_dict({**request, **parameters.criteria()})
    document = ml.environment(**arguments, **_lease(parameters, call))
    is_missing = parameters.start and not document["started"]
    return Result(document, lambda: text.environment(document), document["notes"], exit_code=int(is_missing))


def run(parameters: p.Run, _: Call) -> Result:
    from paddock.gpu.leases.run import run
    from paddock.gpu.model import SCHEMA

    code = run(parameters.command, parameters.request(), wait=parameters.wait, priority=parameters.priority)
    return Result({"schema": SCHEMA, "exit_code": code}, tuple, exit_code=code)


def refusal(action: str, error: NoGpu) -> Document:
    """Return the document of a call that got no GPU."""
    from paddock.gpu.leases.allocation import choice_document
    from paddock.gpu.leases.manager import NoneFree

    if action == "allocate" and isinstance(error, NoneFree):
        return {"lease": None, **choice_document(error.choice)}
    return {"reason": str(error), "gpus": []}


def _data(value: Any) -> Document:
    from paddock.gpu import serialization

    document: Document = serialization.data(value)
    return document
