"""The actions on GPUs by name, one table for workflows and for agents.

As a program (`python -m paddock.gpu.actions.registry NAME`) it does one action: the parameters come as JSON on
standard input, the document goes to standard output, and a message to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.gpu import inventory as detect
from paddock.gpu.actions import documents, handlers
from paddock.gpu.actions.handlers import Document
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
from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.parameter import Parameters, did_you_mean, parse


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


def _some(asked: Wanted) -> str:
    wanted = ", ".join(f"{name} {value}" for name, value in asked.model_dump(exclude_defaults=True).items())
    return f"({wanted})" if wanted else "(1 GPU)"


_BUG = 70
"""As in sysexits.h."""

ACTIONS: Mapping[str, Action] = {
    one.name: one
    for one in (
        Action(
            "list", "Every GPU of this machine, usable or not.", Nothing, handlers.listing, lambda _: "list the GPUs"
        ),
        Action(
            "info",
            "All that is known of a GPU.",
            Info,
            handlers.info,
            lambda p: f"tell of {(p.gpu and f'GPU {p.gpu}') or 'all'}",
        ),
        Action(
            "monitor",
            "Sample the GPUs for a while, and what that shows: throttling, idleness, memory pressure, imbalance.",
            Monitor,
            handlers.monitor,
            lambda p: f"sample the GPUs every {p.interval:g} s for {p.duration:g} s",
        ),
        Action(
            "allocate",
            "Lease GPUs; the answer holds the variables that show them to a program. They are given back by "
            "deallocate, or when their owner ends.",
            Allocate,
            handlers.allocate,
            lambda p: f"lease GPUs {_some(p)}",
            holds=handlers.holds_lease,
        ),
        Action(
            "deallocate",
            "Give leased GPUs back.",
            Deallocate,
            handlers.deallocate,
            lambda p: f"end the leases {', '.join(p.leases)}, whoever has them",
            handlers.takes_from_others,
        ),
        Action("leases", "Who has which GPUs.", Nothing, handlers.leases, lambda _: "list the leases"),
        Action(
            "cuda-info",
            "Whether driver and GPUs run a CUDA toolkit, and the cheapest fix where they do not.",
            CudaInfo,
            handlers.cuda_info,
            lambda p: f"judge CUDA {p.toolkit or 'as it is here'}",
        ),
        Action(
            "memory-info",
            "The memory of each GPU and MIG part, in MiB.",
            Nothing,
            lambda _: documents.memory(detect.inventory()),
            lambda _: "tell of the GPUs' memory",
        ),
        Action(
            "processes",
            "Who is on which GPU.",
            Nothing,
            lambda _: documents.processes(detect.inventory(processes=True)),
            lambda _: "list the processes on the GPUs",
        ),
        Action(
            "topology",
            "How the GPUs reach each other.",
            Nothing,
            lambda _: documents.topology(detect.inventory(topology=True)),
            lambda _: "tell how the GPUs are connected",
        ),
        Action(
            "reset",
            "Reset a GPU that nobody uses.",
            Reset,
            handlers.reset,
            lambda p: f"reset GPU {p.gpu}: everything in its memory is lost",
            lambda p, _: not p.dry_run,
            preview=handlers.reset_plan,
        ),
        Action(
            "health",
            "One verdict on the GPUs (healthy, degraded, unknown or unhealthy), what it rests on, and one thing to do.",
            Nothing,
            handlers.health,
            lambda _: "judge the GPUs' health",
        ),
        Action(
            "render",
            "The configuration that gives GPUs to a container, a virtual machine or a cluster.",
            Render,
            handlers.render,
            lambda p: f"write the configuration of {p.target}",
        ),
        Action(
            "ml-env",
            "Lease GPUs and write what starts an environment on them whose framework this driver runs.",
            MlEnv,
            handlers.ml_env,
            lambda p: f"lease GPUs {_some(p)} and write a {p.target} environment with {p.framework}",
            holds=handlers.holds_lease,
        ),
        Action(
            "run",
            "Run a program on GPUs that are its own until it ends.",
            Run,
            handlers.run,
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
    return [sys.executable, "-P", "-m", "paddock.gpu.actions.registry", name]


def main(argv: list[str]) -> int:
    told = os.dup(1)
    os.dup2(2, 1)  # a program that an action runs writes beside the document, not into it
    try:
        found = perform(argv[1], json.load(sys.stdin))
    except GpuError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except Exception as error:
        if os.environ.get("PADDOCK_DEBUG"):
            raise
        sys.stderr.write(f"{type(error).__name__}: {error}. This is a bug in paddock; PADDOCK_DEBUG=1 shows where\n")
        return _BUG
    with os.fdopen(told, "w") as out:
        json.dump(found, out)
    code = found.get("exit_code", 0) if argv[1] == "run" else 0
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
