"""Serving of models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from invoke.context import Context
from invoke.tasks import Task

from paddock.gpu.parameter import Parameters
from paddock.serve.cli.parameters import Infer, Instance, Join, Load, ServePlan, Show, Up
from paddock.tasks.common import task_of_flags


def _task(name: str, help: str, parameters: type[Parameters]) -> Task[Any]:
    """Make the task of a command in `paddock.serve.cli`."""

    def perform(c: Context, flags: dict[str, Any]) -> int:
        from paddock.serve.cli import cluster, plan

        command: Callable[[dict[str, Any]], int] = plan.plan if name == "plan" else getattr(cluster, name)
        return command(flags)

    return task_of_flags(name, help, {key: flag for key, _, flag in parameters.flags()}, perform)


SERVE_TASKS = (
    _task(
        "plan", "Plan where a model would run: devices, tensor parallelism, memory by part, and what stays unused.",
        ServePlan,
    ),
    _task("up", "Start a cluster on this machine: head, scheduler and an OpenAI-compatible interface.", Up),
    _task("join", "Join this machine and its devices to a cluster.", Join),
    _task("nodes", "Show the machines of the cluster, their devices, and what those serve.", Show),
    _task("load", "Load a model on the devices that the plan chooses.", Load),
    _task("models", "Show the loaded models, and where they stand.", Show),
    _task("infer", "Ask a loaded model, and print the answer as it comes.", Infer),
    _task("unload", "Unload a model.", Instance),
    _task("down", "End the head and the agents that were started on this machine.", Show),
)  # fmt: skip
