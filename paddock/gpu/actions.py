"""The actions on GPUs by name, for those who read documents: agents' tools, workflow steps and other programs.

As a program (`python -m paddock.gpu.actions NAME`) it performs one action: the parameters come as JSON on standard
input, the document goes to standard output, and an error message to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import IO, Any, TypeVar

from paddock.console import parameters as console
from paddock.console.output import PRINTED_JSON
from paddock.console.parameters import NoParameters, Parameters, one_of, parameter
from paddock.console.report import Report
from paddock.errors import BUG, PaddockError, printable
from paddock.gpu.commands.allocate import Allocate, allocate
from paddock.gpu.commands.criteria import Criteria, LeaseTerms
from paddock.gpu.commands.deallocate import Deallocate, deallocate
from paddock.gpu.commands.health import HealthOptions, health
from paddock.gpu.commands.list import List, list_gpus
from paddock.gpu.commands.ml_env import MlEnv, ml_env
from paddock.gpu.commands.monitor import MonitorOptions, report
from paddock.gpu.commands.render import Render, render
from paddock.gpu.commands.renew import Renew, renew
from paddock.gpu.commands.reset import Reset, reset
from paddock.gpu.commands.run import RunOptions, run
from paddock.gpu.errors import GpuError, GpuInputError

Document = dict[str, Any]
_Set = TypeVar("_Set", bound=Parameters)


@dataclass(frozen=True, slots=True)
class Action:
    """An action: its parameters, the command that performs it and what callers need to know before and after it.

    `about` is what agents read. `describe` says what is about to happen. `destructive` tells whether that takes
    something from others or runs a program, for the process that calls (its pid): an agent has to confirm it, and
    `preview` shows more. `is_valid` tells whether an earlier document still holds.
    """

    name: str
    about: str
    parameters: type[Parameters]
    perform: Callable[[Any], Report]
    describe: Callable[[Any], str]
    destructive: Callable[[Any, int], bool] | None = None
    preview: Callable[[Any], Document] | None = None
    is_valid: Callable[[Document], bool] | None = None
    read_only: bool = True
    separate: bool = False
    """It needs a process of its own, since it forwards signals and its program writes to standard output."""
    restricted: bool = False
    """An agent may perform it only where the user who starts its server allows that."""


@dataclass(frozen=True, kw_only=True)
class InfoOptions(Parameters):
    gpu: str = parameter("", "this one: an index, or the beginning of its UUID; by default all")


@dataclass(frozen=True, kw_only=True)
class CudaInfo(Parameters):
    toolkit: str | None = parameter(None, "judge this CUDA version (12.8) instead of the installed one")


def _view(**view: Any) -> Callable[[Any], Report]:
    return lambda _: list_gpus(List(json=PRINTED_JSON, **view))


def _criteria(request: Criteria) -> str:
    changed = request.changed()
    criteria = ", ".join(f"{name} {getattr(request, name)}" for name in request.names() if name in changed)
    return f"({criteria})" if criteria else "(1 GPU)"


def affects_others(chosen: Deallocate, pid: int) -> bool:
    """Tell whether one of the leases has no such owner."""
    from paddock.gpu.leases.manager import Leases

    named = [
        lease
        for lease in Leases().held()
        if lease.id in chosen.leases or any(device.uuid in chosen.leases for device in lease.devices)
    ]
    return any(all(owner.pid != pid for owner in lease.owners) for lease in named)


def lease_is_held(document: Document) -> bool:
    """Tell whether the lease of an earlier result is still held, where it had one."""
    from paddock.gpu.leases.manager import Leases

    id = (document.get("lease") or {}).get("id")
    return id is None or any(lease.id == id for lease in Leases().held())


ACTIONS: Mapping[str, Action] = {
    action.name: action
    for action in (
        Action("list", "List this machine's GPUs, usable or not.", NoParameters, _view(), lambda _: "list the GPUs"),
        Action("info", "Show everything about each GPU.", InfoOptions, lambda p: _view(details=p.gpu)(p),
            lambda p: f"show {f'GPU {p.gpu}' if p.gpu else 'all GPUs'}"),
        Action("memory-info", "Show the memory of each GPU and MIG part, in MiB.", NoParameters, _view(memory=True),
            lambda _: "show the GPUs' memory"),
        Action("cuda-info", "Tell whether driver and GPUs run a CUDA toolkit, and the cheapest fix where they do not.",
            CudaInfo, lambda p: _view(cuda=True, toolkit=p.toolkit)(p),
            lambda p: f"check CUDA {p.toolkit or 'as it is here'}"),
        Action("processes", "Show the processes on each GPU.", NoParameters, _view(processes=True),
            lambda _: "list the processes on the GPUs"),
        Action("topology", "Show how the GPUs reach each other: the matrix and a picture.", NoParameters,
            _view(topology=True), lambda _: "show how the GPUs are connected"),
        Action("allocate",
            "Lease GPUs; the result holds the variables that show them to a program. They are given back by "
            "deallocate, or when their owner ends.",
            Allocate, allocate, lambda p: f"lease GPUs {_criteria(p)}", is_valid=lease_is_held, read_only=False),
        Action("renew", "Count the time to live of leases from now.", Renew, renew,
            lambda p: f"renew the leases {', '.join(p.leases)}", read_only=False),
        Action("deallocate", "Release leased GPUs.", Deallocate, deallocate,
            lambda p: f"end the leases {', '.join(p.leases)}, no matter who has them", destructive=affects_others,
            read_only=False),
        Action("leases", "List the leased GPUs and their owners.", NoParameters, _view(leases=True),
            lambda _: "list the leases"),
        Action("run", "Run a program on GPUs that are its own until it ends.", RunOptions, run,
            lambda p: f"run {' '.join(p.command)} on GPUs of its own", destructive=lambda *_: True, read_only=False,
            separate=True, restricted=True),
        Action("health",
            "Give one verdict on the GPUs (healthy, degraded, unknown or unhealthy), its evidence, and one thing to "
            "do.", HealthOptions, health, lambda _: "check the GPUs' health"),
        Action("monitor", "Sample the GPUs for a while, and report throttling, idling, full memory and imbalance.",
            MonitorOptions, report, lambda p: f"sample the GPUs every {p.interval:g} s for {p.duration:g} s"),
        Action("reset", "Reset a GPU that nobody uses.", Reset, reset,
            lambda p: f"reset GPU {p.gpu}: everything in its memory is lost",
            destructive=lambda p, _: not p.dry_run, preview=lambda p: reset(replace(p, dry_run=True)).document(),
            read_only=False, restricted=True),
        Action("render", "Write the configuration that gives GPUs to a container, a virtual machine or a cluster.",
            Render, render, lambda p: f"write the configuration of {p.target}"),
        Action("ml-env",
            "Lease GPUs and write what starts an environment on them whose framework this driver runs.", MlEnv,
            ml_env, lambda p: f"lease GPUs {_criteria(p)} and write a {p.target} environment with {p.framework}",
            is_valid=lease_is_held, read_only=False),
    )
}  # fmt: skip


def parse(
    kind: type[_Set], values: Mapping[str, Any], where: str, *, later: Collection[str] = (), prefix: str = ""
) -> _Set | None:
    """Read parameters as `paddock.console.parameters.parse` does. Raises GpuInputError."""
    try:
        return console.parse(kind, values, where, later=later, prefix=prefix)
    except console.BadParameters as error:
        raise GpuInputError(str(error)) from None


def perform(name: str, values: Mapping[str, Any]) -> Report:
    """Perform an action here. Raises GpuError."""
    if name not in ACTIONS:
        raise GpuInputError(f"{name!r} is not a GPU action\n    expected: {one_of(name, list(ACTIONS))}")
    action = ACTIONS[name]
    return call(action, parse(action.parameters, values, name))


def call(action: Action, chosen: Any) -> Report:
    """Perform an action for a caller that reads no exit code. Raises GpuError.

    A lease without an owner and a time to live is this process's: on the console it is that of the shell.
    """
    if isinstance(chosen, LeaseTerms) and not (chosen.owner or chosen.ttl):
        chosen = replace(chosen, owner=os.getpid())
    result = action.perform(chosen)
    if failure := getattr(result, "failure", ""):
        raise GpuError(failure)
    return result


def program(name: str) -> list[str]:
    """Return the command that performs the action in a process of its own."""
    return [sys.executable, "-P", "-m", "paddock.gpu.actions", name]


def _values(stream: IO[str]) -> dict[str, Any]:
    """Read the parameters. Raises GpuInputError."""
    try:
        values = json.load(stream)
    except ValueError as error:
        raise GpuInputError(f"standard input is not JSON: {error}\n    expected: the action's parameters") from None
    if not isinstance(values, dict):
        raise GpuInputError("standard input is not an object of JSON\n    expected: the action's parameters")
    return values


def main(argv: list[str]) -> int:
    output = os.dup(1)
    os.dup2(2, 1)  # a program that an action runs writes to standard error, not into the document
    name = argv[1] if len(argv) > 1 else ""
    try:
        result = perform(name, _values(sys.stdin))
    except PaddockError as error:
        sys.stderr.write(f"{printable(str(error))}\n")
        return error.exit_code
    except Exception as error:
        if os.environ.get("PADDOCK_DEBUG"):
            raise
        sys.stderr.write(f"{type(error).__name__}: {error}. This is a bug in paddock; PADDOCK_DEBUG=1 shows where\n")
        return BUG
    with os.fdopen(output, "w") as stream:
        json.dump(result.document(), stream)
    return result.exit_code if ACTIONS[name].separate else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
