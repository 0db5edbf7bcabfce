"""`serve.check`: a resource mode against the checklist of a deployment, or its alerts for Prometheus."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from paddock.console.command import command
from paddock.console.parameters import Parameters, parameter
from paddock.console.report import Report
from paddock.modes.checklist import Checked, Situation
from paddock.modes.checklist import check as checklist
from paddock.serve.errors import ServeInputError

_WIDTH = 7
"""Of the longest status."""


@dataclass(frozen=True, kw_only=True)
class CheckDeployment(Parameters):
    """Parameters of `serve.check`."""

    deployment: Literal["desktop", "server", "hybrid"] | None = parameter(
        None, "the deployment to check: desktop, server or hybrid", positional=True
    )
    config: Path | None = parameter(
        None, "a policy, YAML or JSON; by default the mode that PADDOCK_DEPLOYMENT_MODE chooses"
    )
    dtype: str = parameter("", "number format of the weights that will be served, such as int8")
    alerts: bool = parameter(False, "print the alerts as rules for Prometheus")


@dataclass(frozen=True, kw_only=True)
class Checklist(Report):
    """A checklist with its answers."""

    SCHEMA = 1
    checked: Checked

    def text(self) -> Iterator[str]:
        yield f"{self.checked.deployment} deployment, {self.checked.source}"
        for item in self.checked.items:
            yield f"{item.status:{_WIDTH}}  {item.what}"
            if item.status != "person":
                yield f"{'':{_WIDTH}}  {item.evidence}"
            if item.fix:
                yield f"{'':{_WIDTH}}  fix: {item.fix}"

    def document(self) -> dict[str, Any]:
        return {
            "schema": self.SCHEMA,
            "deployment": self.checked.deployment,
            "policy": self.checked.source,
            "verdict": "fail" if self.checked.failed else "pass",
            "items": [asdict(item) for item in self.checked.items],
        }

    @property
    def exit_code(self) -> int:
        return 1 if self.checked.failed else 0


@command()
def check(parameters: CheckDeployment) -> Checklist | int:
    """Check a policy; 1 where an item of the checklist fails. Raises ServeInputError and ModeInputError."""
    if parameters.alerts:
        return _alerts(parameters)
    if parameters.deployment is None:
        raise ServeInputError(
            "serve.check needs DEPLOYMENT\n    expected: desktop, server or hybrid, or --alerts alone"
        )
    from paddock.gpu.inventory import inventory
    from paddock.modes.config import VARIABLE, deployment_mode
    from paddock.modes.policy import of_mode, read

    if parameters.config:
        policy, source = read(parameters.config), parameters.config.name
    else:
        policy = of_mode(deployment_mode())
        source = f"{VARIABLE}={os.environ[VARIABLE]}" if os.environ.get(VARIABLE) else f"{VARIABLE} is not set"
    gpus = inventory().gpus if parameters.deployment == "server" else None
    situation = Situation(policy, source, parameters.dtype or None, gpus)
    return Checklist(checked=checklist(parameters.deployment, situation))


def _alerts(parameters: CheckDeployment) -> int:
    import yaml

    from paddock.modes.alerts import rules

    document = rules()
    parameters.json.write(document)
    if not parameters.json.replaces_text:
        sys.stdout.write(yaml.safe_dump(document, sort_keys=False))
    return 0
