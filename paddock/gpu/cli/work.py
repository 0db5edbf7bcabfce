"""What `inv gpu.ml-env` and `inv gpu.workflow` print."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

from paddock.gpu.cli.inventory import said
from paddock.gpu.errors import GpuInputError
from paddock.gpu.ml import environment as ml


def ml_env(framework: str = "", config: Path | None = None, *, as_json: bool = False, **asked: Any) -> int:
    """`config` is the older connector's MLEnvironmentConfig as JSON; what is asked for besides is in its place.

    0, or 1 where it was to be started and was not. Raises GpuError and GpuInputError.
    """
    given = {**(_config(config) if config else {}), **{name: one for name, one in asked.items() if one is not None}}
    configured = given.pop("framework", "none")
    with said(as_json):
        told = ml.environment(framework or configured, **given)
    if as_json:
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        sys.stdout.write(_environment(told))
        sys.stderr.writelines(f"{note}\n" for note in told["notes"])
    return int(bool(asked.get("start")) and not told["started"])


def workflow(
    path: Path, *, dry_run: bool = False, fresh: bool = False, journal: Path | None = None, as_json: bool = False
) -> int:
    """Runs it; 0, 1 for a step that failed, 130 for a run that was interrupted. Raises GpuError and GpuInputError."""
    from paddock.gpu.workflow import engine
    from paddock.gpu.workflow.model import load
    from paddock.gpu.workflow.progress import watching

    found = load(path)
    if dry_run:
        told = engine.plan(found, journal=journal, fresh=fresh)
        sys.stdout.write(json.dumps(told, indent=2) + "\n" if as_json else _plan(told))
        return 0
    with watching(found) as watch:
        told = engine.run(found, journal=journal, fresh=fresh, watch=watch)
    sys.stdout.write(json.dumps(told, indent=2) + "\n" if as_json else _outcome(told))
    return engine.exit_code(told)


def _environment(told: dict[str, Any]) -> str:
    lines = [f"# {', '.join(told['gpus'])}" + (f", lease {told['lease']['id']}" if told["lease"] else "")]
    if told["seen"]:
        lines.append(f"# started; {told['seen']['why']}")
    lines += [shlex.join(command) for command in told["commands"]]
    lines += told["exports"].splitlines()
    if told["target"] == "kubernetes":
        lines += ["\n---\n".join(file["text"].strip() for file in told["files"])]
    return "\n".join(lines) + "\n"


def _plan(told: dict[str, Any]) -> str:
    lines = [f"{told['name']} ({told['workflow']}), journal {told['journal']}"]
    for number, wave in enumerate(told["waves"], 1):
        for step in wave:
            done = " (done already)" if step["reused"] else ""
            after = f", after {', '.join(step['depends_on'])}" if step["depends_on"] else ""
            lines.append(f"{number}. {step['id']}{done}{after}: {step['would']}")
    return "\n".join(lines) + "\n"


def _outcome(told: dict[str, Any]) -> str:
    lines = [f"{told['workflow']}: {told['outcome']}"]
    for step in told["steps"]:
        reason = f": {step['error']}" if step["error"] else ""
        lines.append(f"{step['outcome']:<11} {step['id']} ({step['seconds']:.1f} s){reason}")
    return "\n".join(lines) + "\n"


def _config(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GpuInputError(f"cannot read {path}: {error}\n    expected: an MLEnvironmentConfig as JSON") from None
    if not isinstance(found, dict):
        raise GpuInputError(f"{path}: not an object\n    expected: an MLEnvironmentConfig as JSON")
    return ml.from_dict(found)
