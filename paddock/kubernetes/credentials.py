"""Bearer tokens of a kubeconfig's user: written in it, in a file, or printed by a program until they expire."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from paddock.errors import one_line
from paddock.kubernetes.errors import CredentialError

_PATIENCE = 20.0
"""Seconds for the program that a kubeconfig names for its credential, such as `aws eks get-token`."""
_MARGIN = timedelta(seconds=60)
"""A token that is about to expire is renewed before: `aws eks get-token` gives it 14 minutes."""


class Token(Protocol):
    """Source of a bearer token that may change: one that expires, or a file that is written again."""

    def __call__(self, *, renew: bool = False) -> str:
        """Return the token; with `renew` a new one, since the server did not accept the last.

        Raises CredentialError.
        """
        ...


def of(user: Mapping[str, Any]) -> str | Token:
    """Return the token of a user, or what gives it. Raises CredentialError where none can be had."""
    if token := user.get("token"):
        return checked(str(token))
    if path := user.get("tokenFile"):
        return _File(Path(path))
    if "exec" in user:
        source = _Program(user["exec"])
        source()
        return source
    return ""


def checked(token: str) -> str:
    """Return a token as HTTP sends it. Raises CredentialError, with none of it."""
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise CredentialError(
            "the token has characters that no header may have", "kubectl config view: users[].user.token is one line"
        )
    return token


@dataclass(frozen=True)
class _File:
    """A file that another program writes again before its token expires, as the kubelet does."""

    path: Path

    def __call__(self, *, renew: bool = False) -> str:
        try:
            return checked(self.path.read_text(encoding="ascii"))
        except (OSError, UnicodeDecodeError) as error:
            raise CredentialError(f"tokenFile {self.path}: {type(error).__name__}", f"ls -l {self.path}") from None


@dataclass
class _Program:
    """A program that prints a token, run again when that expires or is refused. For several threads."""

    spec: Mapping[str, Any] = field(repr=False)
    _token: str = field(default="", repr=False)
    _until: datetime | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __call__(self, *, renew: bool = False) -> str:
        refused = self._token
        with self._lock:
            if renew and self._token != refused:  # another thread has renewed it meanwhile
                renew = False
            late = self._until is not None and datetime.now(UTC) >= self._until - _MARGIN
            if renew or late or not self._token:
                self._token, self._until = _printed(self.spec)
            return self._token


def _printed(program: Mapping[str, Any]) -> tuple[str, datetime | None]:
    """Return the token that a credential program prints, and when it expires.

    Raises CredentialError, with nothing of the token.
    """
    command = [str(program["command"]), *map(str, program.get("args") or [])]
    own = {str(item["name"]): str(item["value"]) for item in program.get("env") or []}
    spec = {"apiVersion": program.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    name = " ".join(command[:3])
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(spec)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except FileNotFoundError:
        missing = f"{command[0]}, with which the kubeconfig logs in, is not installed"
        raise CredentialError(missing, f"install {command[0]}, or --kubeconfig FILE of another login") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CredentialError(
            f"{name}, which the kubeconfig names, does not run: {type(error).__name__}", name
        ) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        raise CredentialError(f"{name}, which the kubeconfig names, failed: {one_line(lines[-1])}", name)
    try:
        status = json.loads(done.stdout)["status"]
        until = status.get("expirationTimestamp")
        return checked(str(status["token"])), datetime.fromisoformat(until) if until else None
    except (ValueError, KeyError, TypeError):
        raise CredentialError(f"{name}, which the kubeconfig names, prints no ExecCredential", name) from None
