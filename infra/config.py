"""The fleet, read from Pulumi's configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pulumi

from infra import kubernetes_versions
from infra.helm import chart_files
from paddock.fleet import Fleet, FleetError, parse

ROOT = Path(__file__).parent.parent
"""The stack files' folder, from which the fleet's relative paths are."""


def fleet() -> Fleet:
    """The stack's fleet. Raises RunError, which Pulumi prints without a traceback."""
    keys = ("aws:region", "paddock:fleet", "paddock:layers")
    values = {key: pulumi.Config(key.split(":")[0]).get(key.split(":")[1]) for key in keys}
    try:
        read = parse({key: value for key, value in values.items() if value}, pulumi.get_project(), pulumi.get_stack())
        file = f"Pulumi.{pulumi.get_stack()}.yaml"
        problems = [*kubernetes_versions.problems(read), *chart_files.problems(read, ROOT)]
        if problems:
            raise FleetError([replace(problem, file=file) for problem in problems])
    except FleetError as error:
        raise pulumi.RunError(str(error)) from None
    return read
