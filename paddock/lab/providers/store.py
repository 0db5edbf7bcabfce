"""What the stand-ins have made: one JSON file for a stack, which a test may edit to play drift.

Secrets are kept as digests with a salt of the store's own, so the file never tells one, and a resource that is read
back gets its secret from the engine, which keeps it encrypted.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from paddock.lab.providers.wire import unwrap_secrets
from paddock.plan.engine.values import Secret

_DIGEST = "secret:sha256"
CHANGED = "<changed outside>"
"""What a secret reads as when it is no longer the one that the engine knows."""


class Store:
    """Resources by key, a type and an id. Safe among processes; a write that breaks off leaves the old file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """The resources, to be changed in place; written when the block ends without an error."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            content = self._content()
            before = json.dumps(content, sort_keys=True)
            yield content["resources"]
            if json.dumps(content, sort_keys=True) != before:
                self._write(content)

    def resources(self) -> dict[str, Any]:
        resources: dict[str, Any] = self._content()["resources"]
        return resources

    def hash_secrets(self, value: Any) -> Any:
        """The value as it may stand in the file."""
        match value:
            case Secret(value=inner):
                return {_DIGEST: self._digest(inner)}
            case Mapping():
                return {key: self.hash_secrets(item) for key, item in value.items()}
            case list() | tuple():
                return [self.hash_secrets(item) for item in value]
            case _:
                return value

    def restore_secrets(self, stored: Any, known: Any) -> Any:
        """The kept value with secrets put back from what the engine knows of the resource."""
        match stored:
            case {"secret:sha256": str(digest)}:
                if isinstance(known, Secret) and self._digest(known.value) == digest:
                    return known
                return Secret(CHANGED)
            case Mapping():
                within = known if isinstance(known, Mapping) else {}
                return {key: self.restore_secrets(item, within.get(key)) for key, item in stored.items()}
            case list():
                items = known if isinstance(known, list) and len(known) == len(stored) else [None] * len(stored)
                return [self.restore_secrets(item, old) for item, old in zip(stored, items, strict=True)]
            case _:
                return stored

    def _digest(self, value: Any) -> str:
        text = json.dumps(unwrap_secrets(value), sort_keys=True)
        return hashlib.sha256(f"{self._salt()}{text}".encode()).hexdigest()

    def _salt(self) -> str:
        path = self.path.with_suffix(".salt")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            own = path.with_suffix(f".{os.getpid()}.{secrets.token_hex(4)}")
            own.write_text(secrets.token_hex(16))
            with suppress(FileExistsError):
                os.link(own, path)  # the first one wins, whole
            own.unlink()
        return path.read_text()

    def _content(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"resources": {}}
        return content

    def _write(self, content: Mapping[str, Any]) -> None:
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1, sort_keys=True)
        os.replace(name, self.path)
