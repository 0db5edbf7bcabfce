"""State of this user's cluster on this machine: the token, and a record of each Ray that was started here."""

from __future__ import annotations

import ipaddress
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from paddock import files
from paddock.process import Process
from paddock.ray_labels import HEAD
from paddock.serve.errors import ServeError, ServeInputError

_TOKEN_BYTES = 32


@dataclass(frozen=True, slots=True)
class Member:
    """Ray that was started here: the head, or an agent that joined one. `address` is the head's, `HOST:PORT`."""

    name: str
    address: str
    pid: int
    started: str
    folder: str
    """Ray's own folder, of this member alone."""
    http_port: int = 0
    http_host: str = "127.0.0.1"
    keys: bool = False
    """Whether its gateway asks for API keys."""

    @property
    def url(self) -> str:
        """Return the address of the OpenAI-compatible interface, as this machine reaches it."""
        return http_url(self.http_host, self.http_port)

    @property
    def process(self) -> Process:
        return Process(self.pid, self.started)


def http_url(host: str, port: int, own: str = "127.0.0.1") -> str:
    """Return the address of the OpenAI-compatible interface; `own` is that of a machine which listens on all."""
    address = ipaddress.ip_address(host)
    shown = own if address.is_unspecified else str(address)
    return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/v1"


@dataclass(frozen=True, slots=True)
class Home:
    """Folder of the state. Nobody else may read it: anyone who has the token runs programs on every agent."""

    folder: Path

    @classmethod
    def of(cls, environ: Mapping[str, str] = os.environ) -> Home:
        """Return the user's own, below XDG_STATE_HOME."""
        state = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "~")).expanduser() / ".local/state")
        return cls(Path(state) / "paddock/serve")

    def token(self, file: Path | None = None) -> str:
        """Return the cluster's token, created on first use. Raises ServeInputError for a file without one."""
        path = file or self.folder / "token"
        try:
            token = path.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            if file is not None:
                raise ServeInputError(f"--token-file: there is no {file}\n    expected: the head's token") from None
            token = secrets.token_hex(_TOKEN_BYTES)
            self._write(path, token + "\n")
        except OSError as error:
            raise ServeInputError(f"cannot read {path}: {error.strerror}") from None
        if len(token) < _TOKEN_BYTES or not token.isalnum():
            raise ServeInputError(
                f"{path} holds no token\n    expected: {2 * _TOKEN_BYTES} letters and digits"
                "\n    fix: copy the file from the head; serve.up names it"
            )
        return token

    @property
    def token_path(self) -> Path:
        return self.folder / "token"

    def save(self, member: Member) -> None:
        self._write(self.folder / f"{member.name}.json", json.dumps(asdict(member), indent=2) + "\n")

    def forget(self, name: str) -> None:
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def members(self) -> tuple[Member, ...]:
        """Return those whose process still runs."""
        return tuple(member for member in self._recorded() if member.process.alive)

    def ended(self) -> tuple[Member, ...]:
        """Return those whose process has ended without `serve.down`; some of its children may still run."""
        return tuple(member for member in self._recorded() if not member.process.alive)

    def _recorded(self) -> Iterator[Member]:
        for path in sorted(self.folder.glob("*.json")):
            try:
                yield Member(**json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError):
                continue

    def member(self, name: str) -> Member | None:
        return next((member for member in self.members() if member.name == name), None)

    def head(self) -> Member:
        """Return the head that runs here. Raises ServeError."""
        if member := self.member(HEAD):
            return member
        raise ServeError("no head runs here\n    fix: serve.up starts one")

    def _write(self, path: Path, text: str) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            files.write(path, text, 0o600)
        except OSError as error:
            raise ServeError(
                f"cannot write {path}: {error.strerror}\n    fix: XDG_STATE_HOME names another folder"
            ) from None
