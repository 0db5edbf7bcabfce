"""The actions on GPUs by name, one table for workflows and for agents.

As a program (`python -m paddock.gpu.actions NAME`) it does one action: the parameters come as JSON on standard input,
the document goes to standard output, and a message to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.gpu import answers, command, detect, document
from paddock.gpu.asked import (
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
from paddock.gpu.errors import GpuError, GpuInputError, NoGpu
from paddock.gpu.leased import Lease
from paddock.gpu.model import Inventory
from paddock.gpu.parameters import Parameters, did_you_mean, parse

SCHEMA = 1
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """`would` says in words what it is about to do.

    `destroys` says whether that takes something from others or runs a program, for the process that asks (its pid):
    an agent has to confirm it, and `preview` shows it more. `holds` says of a document whether what it tells is still
    so; None is forever.
    """

    name: str
    about: str
    parameters: type[Parameters]
    perform: Callable[[Any], Document]
    would: Callable[[Any], str]
    destroys: Callable[[Any, int], bool] | None = None
    preview: Callable[[Any], Document] | None = None
    holds: Callable[[Document], bool] | None = None
    alone: bool = False
    """It needs a process of its own, since it hands on signals and standard output."""


def _list(_: Nothing) -> Document:
    return _data(detect.inventory(processes=True, topology=True))


def _info(asked: Info) -> Document:
    found = detect.inventory()
    return answers.info(found, (command.pick(found, asked.gpu),) if asked.gpu else found.gpus)


def _monitor(asked: Monitor) -> Document:
    from paddock.gpu.monitor import chosen, monitor
    from paddock.gpu.summary import Collector

    collector = Collector(chosen(asked.metrics))
    ended = None
    try:
        for sample in monitor(asked.interval, asked.duration, asked.metrics):
            collector.add(sample)
    except NoGpu:
        raise
    except GpuError as error:  # the driver has gone; what was seen until then counts
        ended = str(error)
    return _data(collector.summary(ended))


def _allocate(asked: Allocate) -> Document:
    from paddock.gpu import allocate

    owner = asked.owner or (None if asked.ttl else os.getpid())
    return allocate.allocate(asked.request(), owner=owner, ttl=asked.ttl, wait=asked.wait)


def _deallocate(asked: Deallocate) -> Document:
    from paddock.gpu import allocate

    return allocate.deallocate(asked.leases)


def _others(asked: Deallocate, pid: int) -> bool:
    """Whether one of the leases has no such owner."""

    def named(lease: Lease) -> bool:
        return lease.id in asked.leases or any(device.uuid in asked.leases for device in lease.devices)

    return any(all(owner.pid != pid for owner in lease.owners) for lease in held_leases() if named(lease))


def holds_lease(told: Document) -> bool:
    """Whether the lease that was told of is still held, where there was one."""
    id = (told.get("lease") or {}).get("id")
    return id is None or any(lease.id == id for lease in held_leases())


def held_leases() -> tuple[Lease, ...]:
    from paddock.gpu.lease import Leases

    return tuple(lease for lease, state in Leases().all() if state == "held")


def _leases(_: Nothing) -> Document:
    from paddock.gpu import allocate

    return allocate.listed()


def _cuda_info(asked: CudaInfo) -> Document:
    from paddock.gpu import compat

    found = detect.inventory(programs=True)
    return {
        **_data(compat.judge(found, asked.toolkit)),
        "driver_cuda": found.driver.cuda if found.driver else None,
        "installed": document.data(found.toolkit),
        "runtime": document.data(found.runtime),
        "reason": found.reason,
    }


def _reset(asked: Reset) -> Document:
    from paddock.gpu import reset

    def look() -> Inventory:
        return detect.inventory(processes=True, topology=True)

    found = look()
    gpu = command.pick(found, asked.gpu)
    if gpu.uuid is None:
        raise GpuError(f"GPU {gpu.index} tells no UUID, so it cannot be reset\n    fix: reboot the machine")
    made = reset.plan(found, gpu.uuid, held_leases(), kind=asked.kind)
    if asked.dry_run:
        return _data(made)
    done = reset.execute(made, look, held_leases)
    if not done.ok:
        failed = "; ".join(f"{one.step}: {one.output}" for one in done.outcomes if one.code)
        raise GpuError(f"GPU {gpu.uuid} was not reset well: {failed or done.after}")
    return _data(done)


def _reset_plan(asked: Reset) -> Document:
    return _reset(asked.model_copy(update={"dry_run": True}))


def _health(_: Nothing) -> Document:
    from paddock.gpu import health

    return _data(health.check())


def _render(asked: Render) -> Document:
    from paddock.gpu import render

    options = render.options(asked.target, [f"{name}={_written(value)}" for name, value in asked.options.items()])
    chosen = Wanted.model_fields.keys() & asked.model_fields_set
    request = asked.request() if chosen or not asked.fields else None
    wanted, request = (asked.fields, request) if asked.fields else (request, None)
    found = detect.inventory(processes=True, topology=True, programs=True)
    return render.told(render.render(asked.target, found, wanted, request=request, environ=os.environ, **options))


def _ml_env(asked: MlEnv) -> Document:
    from paddock.gpu import ml

    return ml.environment(
        asked.framework,
        request=asked.request(),
        cuda=asked.cuda,
        target=asked.target,
        image=asked.image,
        owner=asked.owner or (None if asked.ttl else os.getpid()),
        ttl=asked.ttl,
    )


def _run(asked: Run) -> Document:
    from paddock.gpu.run import run

    return {"schema": SCHEMA, "exit_code": run(asked.command, asked.request(), wait=asked.wait)}


def _data(value: Any) -> Document:
    told: Document = document.data(value)
    return told


def _written(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _some(asked: Wanted) -> str:
    wanted = ", ".join(f"{name} {value}" for name, value in asked.model_dump(exclude_defaults=True).items())
    return f"({wanted})" if wanted else "(1 GPU)"


ACTIONS: Mapping[str, Action] = {
    one.name: one
    for one in (
        Action("list", "Every GPU of this machine, usable or not.", Nothing, _list, lambda _: "list the GPUs"),
        Action(
            "info",
            "All that is known of a GPU.",
            Info,
            _info,
            lambda p: f"tell of {(p.gpu and f'GPU {p.gpu}') or 'all'}",
        ),
        Action(
            "monitor",
            "Sample the GPUs for a while, and what that shows: throttling, idleness, memory pressure, imbalance.",
            Monitor,
            _monitor,
            lambda p: f"sample the GPUs every {p.interval:g} s for {p.duration:g} s",
        ),
        Action(
            "allocate",
            "Lease GPUs; the answer holds the variables that show them to a program. They are given back by "
            "deallocate, or when their owner ends.",
            Allocate,
            _allocate,
            lambda p: f"lease GPUs {_some(p)}",
            holds=holds_lease,
        ),
        Action(
            "deallocate",
            "Give leased GPUs back.",
            Deallocate,
            _deallocate,
            lambda p: f"end the leases {', '.join(p.leases)}, whoever has them",
            _others,
        ),
        Action("leases", "Who has which GPUs.", Nothing, _leases, lambda _: "list the leases"),
        Action(
            "cuda-info",
            "Whether driver and GPUs run a CUDA toolkit, and the cheapest fix where they do not.",
            CudaInfo,
            _cuda_info,
            lambda p: f"judge CUDA {p.toolkit or 'as it is here'}",
        ),
        Action(
            "memory-info",
            "The memory of each GPU and MIG part, in MiB.",
            Nothing,
            lambda _: answers.memory(detect.inventory()),
            lambda _: "tell of the GPUs' memory",
        ),
        Action(
            "processes",
            "Who is on which GPU.",
            Nothing,
            lambda _: answers.processes(detect.inventory(processes=True)),
            lambda _: "list the processes on the GPUs",
        ),
        Action(
            "topology",
            "How the GPUs reach each other.",
            Nothing,
            lambda _: answers.topology(detect.inventory(topology=True)),
            lambda _: "tell how the GPUs are connected",
        ),
        Action(
            "reset",
            "Reset a GPU that nobody uses.",
            Reset,
            _reset,
            lambda p: f"reset GPU {p.gpu}: everything in its memory is lost",
            lambda p, _: not p.dry_run,
            preview=_reset_plan,
        ),
        Action(
            "health",
            "One verdict on the GPUs (healthy, degraded, unknown or unhealthy), what it rests on, and one thing to do.",
            Nothing,
            _health,
            lambda _: "judge the GPUs' health",
        ),
        Action(
            "render",
            "The configuration that gives GPUs to a container, a virtual machine or a cluster.",
            Render,
            _render,
            lambda p: f"write the configuration of {p.target}",
        ),
        Action(
            "ml-env",
            "Lease GPUs and write what starts an environment on them whose framework this driver runs.",
            MlEnv,
            _ml_env,
            lambda p: f"lease GPUs {_some(p)} and write a {p.target} environment with {p.framework}",
            holds=holds_lease,
        ),
        Action(
            "run",
            "Run a program on GPUs that are its own until it ends.",
            Run,
            _run,
            lambda p: f"run {' '.join(p.command)} on GPUs of its own",
            lambda *_: True,
            alone=True,
        ),
    )
}


def find(name: str, where: str = "") -> Action:
    """Raises GpuInputError."""
    try:
        return ACTIONS[name]
    except KeyError:
        begin = f"{where}: " if where else ""
        raise GpuInputError(
            f"{begin}there is no GPU action {name!r}\n    expected: {did_you_mean(name, list(ACTIONS))}"
        ) from None


def perform(name: str, given: Mapping[str, Any]) -> Document:
    """Does one action here. Raises GpuError."""
    action = find(name)
    return action.perform(parse(action.parameters, given, name))


def program(name: str) -> list[str]:
    """The command that does it in a process of its own."""
    return [sys.executable, "-P", "-m", "paddock.gpu.actions", name]


def main(argv: list[str]) -> int:
    told = os.dup(1)
    os.dup2(2, 1)  # a program that an action runs writes beside the document, not into it
    try:
        found = perform(argv[1], json.load(sys.stdin))
    except GpuError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    with os.fdopen(told, "w") as out:
        json.dump(found, out)
    code = found.get("exit_code", 0) if argv[1] == "run" else 0
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
