"""Create a rendered environment, and probe from inside which GPUs its framework sees."""

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

_INSTALL_MINUTES = 60
_PROBE_MINUTES = 5
_UUID = re.compile(r"UUID: ((?:GPU|MIG)-[0-9a-fA-F/-]+)")


@dataclass(frozen=True, slots=True)
class Visibility:
    """Comparison of the GPUs that a framework sees with the expected ones; `by_count` where it reports no UUIDs."""

    ok: bool
    expected: tuple[str, ...]
    seen: tuple[str, ...]
    count: int | None
    by_count: bool
    version: str | None
    why: str


def probe_program() -> str:
    """Return the source of the program that runs inside."""
    return files("paddock.gpu.ml").joinpath("probe.py").read_text(encoding="utf-8")


def compare(expected: Sequence[str], answer: Mapping[str, Any], vendor: Vendor = "nvidia") -> Visibility:
    """Compare the expected UUIDs with the answer of `probe`."""
    version, count, uuids = answer.get("version"), answer.get("count"), answer.get("uuids")
    error = answer.get("error")
    if error:
        return Visibility(False, (*expected,), (), count, False, version, str(error))
    if uuids is None or vendor != "nvidia":
        matches = count == len(expected)
        why = f"it sees {count} of {len(expected)} GPUs; it does not report which"
        return Visibility(matches, (*expected,), (), count, True, version, why)
    expected_keys, visible_keys = (
        {_normalise(uuid): uuid for uuid in expected},
        {_normalise(uuid): uuid for uuid in uuids},
    )
    missing = [expected_keys[key] for key in expected_keys.keys() - visible_keys.keys()]
    extra = [visible_keys[key] for key in visible_keys.keys() - expected_keys.keys()]
    visible = tuple(expected_keys.get(_normalise(uuid), uuid) for uuid in uuids)
    problems = [f"it does not see {', '.join(sorted(missing))}"] if missing else []
    problems += [f"it also sees {', '.join(sorted(extra))}"] if extra else []
    if not problems and count != len(expected):
        problems = [f"the driver shows it {len(uuids)} GPUs, and it uses {count}"]
    return Visibility(
        not problems, (*expected,), visible, count, False, version, "; ".join(problems) or "it sees these and no others"
    )


def create_venv(commands: Sequence[Sequence[str]], path: Path) -> None:
    """Run the commands that create it; remove the folder if one fails. Raises GpuError and GpuInputError."""
    if path.exists():
        raise GpuInputError(f"{path} already exists\n    expected: a new folder\n    fix: --path")
    try:
        for command in commands:
            result = programs.run(command, timeout=60 * _INSTALL_MINUTES)
            if result.code:
                last = "\n".join((result.errors or result.output).strip().splitlines()[-5:])
                raise GpuError(f"cannot create {path}: {' '.join(command[:4])}: {last}")
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def probe_venv(framework: str, path: Path, environ: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the probe's answer. Raises GpuError."""
    variables = {name: value for name, value in {**os.environ, **environ}.items() if value is not None}
    command = [str(path / "bin" / "python"), "-", framework]
    return _parse_answer(programs.run(command, stdin=probe_program(), environ=variables, timeout=60 * _PROBE_MINUTES))


def engine_problem() -> str | None:
    """Return why no Docker engine can start a container; None where one answers."""
    if shutil.which("docker") is None:
        return "there is no docker on PATH"
    try:
        result = programs.run(["docker", "version", "--format", "{{.Server.Version}}"], timeout=20)
    except programs.TimedOut:
        return "the Docker engine does not answer"
    return None if result.code == 0 else (result.errors.strip().splitlines() or ["it does not answer"])[-1]


def start_container(command: Sequence[str], name: str) -> None:
    """Start a container; remove it if that fails. Raises GpuError."""
    result = programs.run(command, timeout=60 * _INSTALL_MINUTES)
    if result.code:
        remove_container(name)
        raise GpuError(f"cannot start {name}: {result.errors.strip() or f'exit status {result.code}'}")


def probe_container(framework: str, name: str) -> dict[str, Any]:
    """Return the probe's answer; without a framework, the list of nvidia-smi. Raises GpuError."""
    execute = ["docker", "exec", "--interactive", name]
    if framework == "none":  # such an image has no Python
        result = programs.run([*execute, "nvidia-smi", "-L"], timeout=60 * _PROBE_MINUTES)
        if result.code:
            return {"error": f"nvidia-smi: {(result.errors or result.output).strip()}"}
        return parse_smi_list(result.output)
    return _parse_answer(
        programs.run([*execute, "python3", "-", framework], stdin=probe_program(), timeout=60 * _PROBE_MINUTES)
    )


def parse_smi_list(text: str) -> dict[str, Any]:
    """Parse `nvidia-smi -L`; MIG parts replace the GPUs that they belong to."""
    uuids: list[str] = _UUID.findall(text)
    parts = [uuid for uuid in uuids if uuid.startswith("MIG-")]
    return {"uuids": parts or uuids, "count": len(parts or uuids)}


def remove_container(name: str) -> None:
    programs.run(["docker", "rm", "--force", name], timeout=60)


def _parse_answer(result: programs.Finished) -> dict[str, Any]:
    lines = result.output.strip().splitlines()
    try:
        answer: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        last = "\n".join((result.errors or result.output).strip().splitlines()[-5:])
        raise GpuError(f"the probe of the GPUs ended with status {result.code}: {last}") from None
    return answer


def _normalise(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")
