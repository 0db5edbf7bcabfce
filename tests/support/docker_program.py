"""A program called docker whose images are a file beside it: what is built is there, what is pushed has a digest.

It stands in for client and engine at the boundary of a process. What a container answers is the test's to say.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.versions import ACTIONS_RUNNER
from paddock import __version__
from tests.support.door import Door

PROGRAM = "cuda-smoke"
_CHECKS = {
    "user": "1001",
    "runner": ACTIONS_RUNNER,
    "paddock": f"paddock {__version__}",
    "CUDA compiler": "12.8",
    "GPUs without a request": "void",
}
"""Answers to the look at a runner image; `there` to every other."""
_BODY = Path(__file__).with_name("docker_program_body.py")


def install(
    inv: Door,
    containers: Mapping[str, Mapping[str, str]] | None = None,
    *,
    hang: str = "",
) -> Path:
    """Put it on PATH and return the folder of its state. `containers`: by name, what a program in it prints by words.

    `hang` is the command at which it waits, having left a file `hanging` in the folder.
    """
    state = inv.bin.parent / "docker"
    state.mkdir()
    settings = {"containers": containers or {}, "checks": _CHECKS, "hang": hang, "programs": programs()}
    (state / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    text = _BODY.read_text(encoding="utf-8")
    inv.program("docker", f"#!{sys.executable} -IS\nSTATE = {str(state)!r}\n{text}")
    return state


def programs() -> dict[str, str]:
    """Return what the image of the CUDA programs leaves in /output: a program, and the manifest that names it."""
    content = "#!/bin/sh\n"
    file = {"sha256": hashlib.sha256(content.encode()).hexdigest(), "bytes": len(content)}
    manifest = {
        "schema": 2, "platform": "linux/amd64", "toolkit": "12.8", "architectures": ["75", "90"], "glibc": "2.34",
        "files": {PROGRAM: file},
    }  # fmt: skip
    return {PROGRAM: content, "manifest.json": json.dumps(manifest)}


def calls(state: Path, *start: str) -> list[Sequence[str]]:
    """Return the calls whose words begin so, in their order."""
    every = [json.loads(line) for line in (state / "calls").read_text(encoding="utf-8").splitlines()]
    return [call for call in every if call[: len(start)] == [*start]]
