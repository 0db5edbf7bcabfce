"""Checks before a machine joins: the head answers, takes the token, has the same versions and no agent of that name."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddock.ray_labels import AGENT
from paddock.serve.agents import head_probe
from paddock.serve.errors import ServeInputError

_CONNECT_S = 5.0
_PROBE_S = 25.0


def check_head(host: str, port: int, environ: Mapping[str, str], name: str = "", seconds: float = _PROBE_S) -> None:
    """Raise ServeInputError where this machine cannot join that head under that name, with the reason."""
    address = f"{host}:{port}"
    try:
        socket.create_connection((host, port), _CONNECT_S).close()
    except (OSError, OverflowError) as error:
        why = f"no answer within {_CONNECT_S:g} s" if isinstance(error, TimeoutError) else error
        raise ServeInputError(
            f"{address} cannot be reached: {why}\n    expected: the address that serve.up printed"
            "\n    fix: start the head, or open its ports between the machines"
        ) from None
    no_head = ServeInputError(
        f"{address} answers, but not as a Ray head\n    expected: the address that serve.up printed"
        "\n    fix: name the port of --port, not that of HTTP"
    )
    try:
        command = [sys.executable, str(Path(head_probe.__file__)), address, AGENT]
        finished = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=seconds, env=dict(environ)
        )
        facts = json.loads(finished.stdout.strip().rpartition("\n")[2])
    except subprocess.TimeoutExpired:
        raise no_head from None
    except (OSError, subprocess.CalledProcessError, ValueError):
        return  # the probe failed here: Ray itself says what is wrong
    if facts.get("error") == "token":
        raise ServeInputError(
            f"{address} refuses the token\n    expected: the head's token"
            "\n    fix: copy the file that serve.up names, and pass it as --token-file"
        )
    if "error" in facts:
        raise no_head
    if wrong := mismatch(facts):
        raise ServeInputError(f"{address} {wrong}")
    if name and name in facts["nodes"]:
        raise ServeInputError(
            f"{address} has an agent {name} already\n    expected: a name of its own for every machine"
            "\n    fix: --name another; one that has just ended is forgotten within half a minute"
        )


def mismatch(facts: Mapping[str, Any]) -> str:
    """Return which version differs between the head and this machine, and the fix; empty where none does."""
    for key, name in (("ray", "Ray"), ("python", "Python")):
        head, own = str(facts[key]), str(facts[f"own_{key}"])
        if head != own:
            return (
                f"runs {name} {head}, and this machine {own}\n    expected: the same version on every machine"
                f"\n    fix: install {name} {head} here, in the environment that serve.join runs in"
            )
    return ""
