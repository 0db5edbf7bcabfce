"""`bench.modes`: check a deployment against its checklist, print the alerts, or measure the modes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from paddock import terminal
from paddock.bench.errors import BenchInputError
from paddock.errors import did_you_mean, printable
from paddock.gpu.parameter import JSON, Flag, Parameters, parameter

_BATCHES = "1,16"
"""One row, and as many as each mode allows: a larger batch is cut to its limit."""
_WIDTH = 7
"""Of the longest status."""


@dataclass(frozen=True, kw_only=True)
class Modes(Parameters):
    """Parameters of `bench.modes`."""

    check: str = parameter("", "the deployment whose checklist is gone through: desktop, server or hybrid")
    config: str = parameter(
        "",
        "a policy, YAML or JSON: checked in place of the mode that PADDOCK_DEPLOYMENT_MODE chooses, or measured beside"
        " the presets",
    )
    model_name: str = parameter("", "the model that is measured, as in bench; by default qwen3-0.6b", flag="model")
    engine: str = parameter("", "the engine that is measured, as in bench")
    dtype: str = parameter("", "how the weights are kept that are served, such as int4; by default all are measured")
    batch: str = parameter("", "rows at once that are measured, up to each mode's limit; by default 1,16")
    threads: int | None = parameter(None, "llama.cpp: threads that compute, as in bench", ge=1)
    cache: str = parameter("", "llama.cpp: type of the numbers in the cache, as in bench", flag="cache-type")
    runs: int = parameter(5, "counted runs of each; the 99th percentile of requests takes 500", ge=1)
    new: int = parameter(32, "new tokens of each row", ge=2)
    alerts: bool = parameter(False, "print the alerts as rules for Prometheus")
    json: str | None = parameter(None, JSON.help, flag=JSON)
    html: str | None = parameter(None, "also write a page with plots of what was measured to this file")


FLAGS: Mapping[str, Flag] = {name: flag for name, _, flag in Modes.flags()}

Measure = Callable[[Modes], int]
"""Measures the modes on this machine and returns the exit code."""


def perform(values: Mapping[str, Any], measure: Measure | None = None) -> int:
    """Run the command and return its exit code: 1 where an item of the checklist fails. Raises BenchInputError."""
    parameters = Modes.from_flags(values)
    if parameters.alerts:
        return _alerts()
    if parameters.check:
        return _check(parameters)
    if measure is None:
        raise BenchInputError(
            "there is nothing to do\n    expected: --check desktop, --check server, --check hybrid or --alerts"
        )
    return measure(parameters)


def measured(parameters: Modes) -> dict[str, Any]:
    """Return the flags of the benchmark that measures the modes: all presets, and the policy that was given."""
    from paddock.modes.config import PRESETS

    return {
        "mode": ",".join([*PRESETS, *([parameters.config] if parameters.config else [])]),
        "model_name": parameters.model_name,
        "engine": parameters.engine,
        "dtype": parameters.dtype,
        "batch": parameters.batch or _BATCHES,
        "threads": parameters.threads,
        "cache": parameters.cache,
        "runs": parameters.runs,
        "new": parameters.new,
        "json": parameters.json,
        "html": parameters.html,
    }


def _alerts() -> int:
    import yaml

    from paddock.modes.alerts import rules

    sys.stdout.write(yaml.safe_dump(rules(), sort_keys=False))
    return 0


def _check(parameters: Modes) -> int:
    from paddock.gpu.inventory import inventory
    from paddock.modes.checklist import Checked, Situation, check
    from paddock.modes.config import VARIABLE, Deployment, deployment_mode
    from paddock.modes.policy import of_mode, read

    json = terminal.JsonOutput.parse(parameters.json)
    deployment = next((name for name in get_args(Deployment) if name == parameters.check), None)
    if deployment is None:
        hint = did_you_mean(parameters.check, get_args(Deployment), "choose one of them")
        raise BenchInputError(
            f"--check: there is no checklist for {parameters.check!r}"
            f"\n    expected: desktop, server or hybrid\n    fix: {hint}"
        )
    if parameters.config:
        path = terminal.caller_path(parameters.config)
        policy, source = read(path), path.name
    else:
        policy = of_mode(deployment_mode())
        source = f"{VARIABLE}={os.environ[VARIABLE]}" if os.environ.get(VARIABLE) else f"{VARIABLE} is not set"
    gpus = inventory().gpus if deployment == "server" else None
    checked: Checked = check(deployment, Situation(policy, source, parameters.dtype or None, gpus))
    if not json.replaces_text:
        sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(checked))
    json.write(checked.document())
    return 1 if checked.failed else 0


def _lines(checked: Any) -> list[str]:
    lines = [f"{checked.deployment} deployment, {checked.source}"]
    for item in checked.items:
        lines.append(f"{item.status:{_WIDTH}}  {item.what}")
        lines += [f"{'':{_WIDTH}}  {item.evidence}"] if item.status != "person" else []
        lines += [f"{'':{_WIDTH}}  fix: {item.fix}"] if item.fix else []
    return lines
