"""Make the environment that was rendered, and look from inside whether its framework sees the GPUs it was given."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.host import programs
from paddock.gpu.model import Vendor

_MINUTES_FOR_ALL = 60
_MINUTES_TO_LOOK = 5
_UUID = re.compile(r"UUID: ((?:GPU|MIG)-[0-9a-fA-F/-]+)")


@dataclass(frozen=True, slots=True)
class Seen:
    """What the framework sees, held against what it was given. `by_count`: it tells no UUIDs, so only how many."""

    ok: bool
    expected: tuple[str, ...]
    seen: tuple[str, ...]
    count: int | None
    by_count: bool
    version: str | None
    why: str


def program() -> str:
    """What is run inside."""
    return files("paddock.gpu.ml").joinpath("probe.py").read_text(encoding="utf-8")


def compare(expected: Sequence[str], told: Mapping[str, Any], vendor: Vendor = "nvidia") -> Seen:
    """`told` is what `ml_seen` printed."""
    version, count, uuids = told.get("version"), told.get("count"), told.get("uuids")
    error = told.get("error")
    if error:
        return Seen(False, (*expected,), (), count, False, version, str(error))
    if uuids is None or vendor != "nvidia":
        right = count == len(expected)
        why = f"it sees {count} of {len(expected)} GPUs; it does not say which"
        return Seen(right, (*expected,), (), count, True, version, why)
    wanted, found = {_bare(one): one for one in expected}, {_bare(one): one for one in uuids}
    missing = [wanted[key] for key in wanted.keys() - found.keys()]
    besides = [found[key] for key in found.keys() - wanted.keys()]
    seen = tuple(wanted.get(_bare(one), one) for one in uuids)
    said = [f"it does not see {', '.join(sorted(missing))}"] if missing else []
    said += [f"it also sees {', '.join(sorted(besides))}"] if besides else []
    if not said and count != len(expected):
        said = [f"the driver shows it {len(uuids)} GPUs, and it uses {count}"]
    return Seen(not said, (*expected,), seen, count, False, version, "; ".join(said) or "it sees these and no others")


def virtual_environment(commands: Sequence[Sequence[str]], path: Path) -> None:
    """Runs the commands that make it; what was made is removed where one fails. Raises GpuError and GpuInputError."""
    if path.exists():
        raise GpuInputError(f"{path} is there already\n    expected: a folder that is made anew\n    fix: --path")
    try:
        for command in commands:
            done = programs.run(command, timeout=60 * _MINUTES_FOR_ALL)
            if done.code:
                last = "\n".join((done.errors or done.output).strip().splitlines()[-5:])
                raise GpuError(f"cannot make {path}: {' '.join(command[:4])}: {last}")
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def seen_in_virtual_environment(framework: str, path: Path, environ: Mapping[str, str | None]) -> dict[str, Any]:
    """What the framework there says. Raises GpuError."""
    variables = {name: value for name, value in {**os.environ, **environ}.items() if value is not None}
    return _said(
        programs.run(
            [str(path / "bin" / "python"), "-", framework],
            stdin=program(),
            environ=variables,
            timeout=60 * _MINUTES_TO_LOOK,
        )
    )


def engine() -> str | None:
    """Why there is no Docker engine to start a container with; None where one answers."""
    if shutil.which("docker") is None:
        return "there is no docker on PATH"
    try:
        done = programs.run(["docker", "version", "--format", "{{.Server.Version}}"], timeout=20)
    except programs.TimedOut:
        return "the Docker engine does not answer"
    return None if done.code == 0 else (done.errors.strip().splitlines() or ["it does not answer"])[-1]


def container(command: Sequence[str], name: str) -> None:
    """Starts it. Raises GpuError."""
    done = programs.run(command, timeout=60 * _MINUTES_FOR_ALL)
    if done.code:
        remove(name)
        raise GpuError(f"cannot start {name}: {done.errors.strip() or f'exit status {done.code}'}")


def seen_in_container(framework: str, name: str) -> dict[str, Any]:
    """What the framework there says; without one, what the driver's own program lists. Raises GpuError."""
    execute = ["docker", "exec", "--interactive", name]
    if framework == "none":  # such images have no Python
        done = programs.run([*execute, "nvidia-smi", "-L"], timeout=60 * _MINUTES_TO_LOOK)
        if done.code:
            return {"error": f"nvidia-smi: {(done.errors or done.output).strip()}"}
        return listed(done.output)
    return _said(programs.run([*execute, "python3", "-", framework], stdin=program(), timeout=60 * _MINUTES_TO_LOOK))


def listed(text: str) -> dict[str, Any]:
    """The lines of `nvidia-smi -L`; where there are MIG parts, these and not the GPUs that they are of."""
    uuids: list[str] = _UUID.findall(text)
    parts = [one for one in uuids if one.startswith("MIG-")]
    return {"uuids": parts or uuids, "count": len(parts or uuids)}


def remove(name: str) -> None:
    programs.run(["docker", "rm", "--force", name], timeout=60)


def _said(done: programs.Finished) -> dict[str, Any]:
    lines = done.output.strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        last = "\n".join((done.errors or done.output).strip().splitlines()[-5:])
        raise GpuError(f"what looks at the GPUs from inside ended with status {done.code}: {last}") from None
    return found


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")
