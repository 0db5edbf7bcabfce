"""The smoke test of a machine."""

from __future__ import annotations

from typing import Any

from invoke.context import Context

from paddock.smoke.parameters import Smoke
from paddock.tasks.common import task_of_flags


def _smoke(c: Context, flags: dict[str, Any]) -> int:
    from paddock.smoke import command

    return command.smoke(flags)


smoke = task_of_flags(
    "smoke",
    "Test this machine's GPUs: may it take jobs? Exit code 0 it may, 1 it may not, 5 there was no GPU to test.",
    {name: flag for name, _, flag in Smoke.flags()},
    _smoke,
    checks_values_first=True,
)
