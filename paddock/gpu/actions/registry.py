"""The actions on GPUs by name: the one table from which tasks, agents' tools and workflow steps derive.

As a program (`python -m paddock.gpu.actions.registry NAME`) it performs one action: the parameters come as JSON on
standard input, the document goes to standard output, and an error message to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.errors import printable
from paddock.gpu.actions import handlers, parameters
from paddock.gpu.actions.handlers import Call, Document, Result
from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.parameter import Parameters, one_of, parse


@dataclass(frozen=True, slots=True)
class Action:
    """An action: its parameters, its handler and what callers need to know before and after it.

    `help` is the line that people read, `about` what agents read where that differs. `describe` says what is about to
    happen. `destructive` tells whether that takes something from others or runs a program, for the process that calls
    (its pid): an agent has to confirm it, and `preview` shows more. `is_valid` tells whether an earlier document still
    holds.
    """

    name: str
    help: str
    parameters: type[Parameters]
    handler: Callable[[Any, Call], Result]
    describe: Callable[[Any], str]
    about: str = ""
    destructive: Callable[[Any, int], bool] | None = None
    preview: Callable[[Any], Document] | None = None
    is_valid: Callable[[Document], bool] | None = None
    read_only: bool = True
    separate: bool = False
    """It needs a process of its own, since it forwards signals and its program writes to standard output."""
    restricted: bool = False
    """An agent may perform it only where the user who starts its server allows that."""
    words: str = ""
    """Name of the flag whose values may be given as bare words."""
    saved: str = ""
    """Help of the flag that names a saved inventory, for an action that can read one."""


def _criteria(request: parameters.Criteria) -> str:
    criteria = ", ".join(
        f"{name} {value}" for name in request.names() if (value := getattr(request, name)) != _default(request, name)
    )
    return f"({criteria})" if criteria else "(1 GPU)"


def _default(request: Parameters, name: str) -> Any:
    return type(request).__dataclass_fields__[name].default


_SAVED = "a saved inventory (gpu.list --json) instead of this machine"
_BUG = 70
"""As in sysexits.h."""

ACTIONS: Mapping[str, Action] = {
    action.name: action
    for action in (
        Action("list", "List this machine's GPUs, usable or not.", parameters.NoParameters, handlers.list_gpus,
            lambda _: "list the GPUs", saved=_SAVED),
        Action("info", "Show everything about each GPU.", parameters.Info, handlers.info,
            lambda p: f"show {f'GPU {p.gpu}' if p.gpu else 'all GPUs'}", saved=_SAVED),
        Action("memory-info", "Show the memory of each GPU and MIG part.", parameters.NoParameters, handlers.memory,
            lambda _: "show the GPUs' memory", about="Show the memory of each GPU and MIG part, in MiB.",
            saved=_SAVED),
        Action("cuda-info", "Show driver, CUDA toolkit, and whether they and the GPUs fit together.",
            parameters.CudaInfo, handlers.cuda_info, lambda p: f"check CUDA {p.toolkit or 'as it is here'}",
            about="Tell whether driver and GPUs run a CUDA toolkit, and the cheapest fix where they do not.",
            saved=_SAVED),
        Action("processes", "Show the processes on each GPU.", parameters.NoParameters, handlers.processes,
            lambda _: "list the processes on the GPUs", saved=_SAVED),
        Action("topology", "Show how the GPUs reach each other: the matrix and a picture.", parameters.NoParameters,
            handlers.topology, lambda _: "show how the GPUs are connected", saved=_SAVED),
        Action("allocate",
            "Lease GPUs; prints the variables that show them to a program, for the shell's eval.",
            parameters.Lease, handlers.allocate, lambda p: f"lease GPUs {_criteria(p)}",
            about="Lease GPUs; the result holds the variables that show them to a program. They are given back by "
            "deallocate, or when their owner ends.", is_valid=handlers.lease_is_held, read_only=False,
            saved="show what would be chosen of a saved inventory (gpu.list --json), and lease nothing"),
        Action("renew", "Count the time to live of leases from now: gpu.renew ID; by default of those of this shell.",
            parameters.Renew, handlers.renew, lambda p: f"renew the leases {', '.join(p.leases)}",
            about="Count the time to live of leases from now.", read_only=False, words="leases"),
        Action("deallocate", "Give leased GPUs back: gpu.deallocate ID; by default those of this shell.",
            parameters.Deallocate, handlers.deallocate,
            lambda p: f"end the leases {', '.join(p.leases)}, whoever has them",
            about="Give leased GPUs back.", destructive=handlers.affects_others, read_only=False, words="leases"),
        Action("leases", "List the leased GPUs and their owners.", parameters.NoParameters, handlers.leases,
            lambda _: "list the leases"),
        Action("run", "Run a program on GPUs that are its own until it ends: gpu.run --gpus 1 -- python train.py.",
            parameters.Run, handlers.run, lambda p: f"run {' '.join(p.command)} on GPUs of its own",
            about="Run a program on GPUs that are its own until it ends.", destructive=lambda *_: True,
            read_only=False, separate=True, restricted=True),
        Action("health", "Check this machine's GPUs: exit code 0 healthy, 1 degraded, 2 unhealthy, 3 unknown.",
            parameters.Health, handlers.health, lambda _: "check the GPUs' health",
            about="Give one verdict on the GPUs (healthy, degraded, unknown or unhealthy), its evidence, and one "
            "thing to do.", saved=_SAVED),
        Action("monitor", "Watch the GPUs, and report at the end throttling, idling, full memory and imbalance.",
            parameters.Monitor, handlers.monitor,
            lambda p: f"sample the GPUs every {p.interval:g} s for {p.duration:g} s",
            about="Sample the GPUs for a while, and report throttling, idling, full memory and imbalance."),
        Action("reset", "Show what resetting a GPU would do; --yes does it. Refused while it is in use.",
            parameters.Reset, handlers.reset, lambda p: f"reset GPU {p.gpu}: everything in its memory is lost",
            about="Reset a GPU that nobody uses.", destructive=lambda p, _: not p.dry_run,
            preview=handlers.reset_plan, read_only=False, restricted=True),
        Action("render",
            "Write the configuration that gives GPUs to Docker, Compose, CDI, Kubernetes, Proxmox, Slurm or a shell.",
            parameters.Render, handlers.render, lambda p: f"write the configuration of {p.target}",
            about="Write the configuration that gives GPUs to a container, a virtual machine or a cluster.",
            saved=_SAVED),
        Action("ml-env", "Lease GPUs for a framework, and print or start an environment that this driver runs.",
            parameters.MlEnv, handlers.ml_env,
            lambda p: f"lease GPUs {_criteria(p)} and write a {p.target} environment with {p.framework}",
            about="Lease GPUs and write what starts an environment on them whose framework this driver runs.",
            is_valid=handlers.lease_is_held, read_only=False),
    )
}  # fmt: skip


def perform(name: str, values: Mapping[str, Any]) -> Result:
    """Perform an action here. Raises GpuError."""
    if name not in ACTIONS:
        raise GpuInputError(f"there is no GPU action {name!r}\n    expected: {one_of(name, list(ACTIONS))}")
    action = ACTIONS[name]
    return call(action, parse(action.parameters, values, name))


def call(action: Action, values: Any) -> Result:
    """Perform an action for a caller that reads no exit code. Raises GpuError."""
    result = action.handler(values, Call())
    if result.failure:
        raise GpuError(result.failure)
    return result


def program(name: str) -> list[str]:
    """Return the command that performs the action in a process of its own."""
    return [sys.executable, "-P", "-m", "paddock.gpu.actions.registry", name]


def main(argv: list[str]) -> int:
    output = os.dup(1)
    os.dup2(2, 1)  # a program that an action runs writes beside the document, not into it
    try:
        result = perform(argv[1], json.load(sys.stdin))
    except GpuError as error:
        sys.stderr.write(f"{printable(str(error))}\n")
        return error.exit_code
    except Exception as error:
        if os.environ.get("PADDOCK_DEBUG"):
            raise
        sys.stderr.write(f"{type(error).__name__}: {error}. This is a bug in paddock; PADDOCK_DEBUG=1 shows where\n")
        return _BUG
    with os.fdopen(output, "w") as stream:
        json.dump(result.document, stream)
    return result.exit_code if ACTIONS[argv[1]].separate else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
