"""Serving of models."""

from __future__ import annotations

from typing import Any

from invoke.context import Context

from paddock.serve.cli.parameters import ServePlan
from paddock.tasks.common import task_of_flags


def _plan(c: Context, flags: dict[str, Any]) -> int:
    from paddock.serve.cli import plan as command

    return command.plan(flags)


serve_plan = task_of_flags(
    "plan",
    "Plan where a model would run: devices, tensor parallelism, memory by part, and what stays unused.",
    {name: flag for name, _, flag in ServePlan.flags()},
    _plan,
)
