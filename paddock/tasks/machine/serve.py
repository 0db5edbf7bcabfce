"""Serving of models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from invoke.context import Context
from invoke.tasks import Task

from paddock.gpu.parameter import Parameters
from paddock.process import sigterm_as_interrupt
from paddock.serve.cli.parameters import Infer, Instance, Join, Load, ServePlan, Show, Up
from paddock.tasks.common import task_of_flags


def _task(module: str, name: str, help: str, parameters: type[Parameters]) -> Task[Any]:
    """Make the task of a command in `paddock.serve.cli`."""

    def perform(c: Context, flags: dict[str, Any]) -> int:
        from importlib import import_module

        command: Callable[[dict[str, Any]], int] = getattr(import_module(f"paddock.serve.cli.{module}"), name)
        with sigterm_as_interrupt():  # an ended command cleans up as an interrupted one does
            return command(flags)

    return task_of_flags(
        name, help, {key: flag for key, _, flag in parameters.flags()}, perform, checks_values_first=True
    )


SERVE_TASKS = (
    _task(
        "plan", "plan",
        "Plan where a model would run: devices, tensor parallelism, memory by part, and what stays unused.", ServePlan,
    ),
    _task("cluster", "up", "Start a cluster on this machine: head, scheduler and an OpenAI-compatible interface.", Up),
    _task("cluster", "join", "Join this machine and its devices to a cluster.", Join),
    _task("cluster", "nodes", "Show the machines of the cluster, their devices, and what those serve.", Show),
    _task("models", "load", "Load a model on the devices that the plan chooses.", Load),
    _task("models", "models", "Show the loaded models, and where they stand.", Show),
    _task("infer", "infer", "Ask a loaded model, and print the answer as it comes.", Infer),
    _task("models", "unload", "Unload a model.", Instance),
    _task("cluster", "down", "End the head and the agents that were started on this machine.", Show),
)  # fmt: skip
