"""Resources that the stand-ins created: one JSON file for a stack, which a test may edit to simulate drift.

Secrets are kept as digests with a salt of the store's own, so the file never shows one, and a resource that is read
back gets its secret from the engine, which keeps it encrypted.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from paddock import files
from paddock.lab.providers.wire import unwrap_secrets
from paddock.plan.engine.values import Secret

_DIGEST = "secret:sha256"
CHANGED = "<changed outside>"
"""Value of a secret that is no longer the one that the engine knows."""


class Store:
    """Resources by key, a type and an id. Safe among processes; an interrupted write leaves the old file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def change(self) -> Iterator[dict[str, Any]]:
        """Yield the resources, to be changed in place; written when the block ends without an error."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with files.locked(self.path.with_suffix(".lock"), wait=True):
            content = self._content()
            before = json.dumps(content, sort_keys=True)
            yield content["resources"]
            if json.dumps(content, sort_keys=True) != before:
                self._write(content)

    def resources(self) -> dict[str, Any]:
        resources: dict[str, Any] = self._content()["resources"]
        return resources

    def hash_secrets(self, value: Any) -> Any:
        """Return the value with digests in place of secrets, for the file."""
        match value:
            case Secret(value=inner):
                return {_DIGEST: self._digest(inner)}
            case Mapping():
                return {key: self.hash_secrets(item) for key, item in value.items()}
            case list() | tuple():
                return [self.hash_secrets(item) for item in value]
            case _:
                return value

    def restore_secrets(self, stored: Any, current: Any) -> Any:
        """Return the stored value with secrets restored from what the engine knows of the resource."""
        match stored:
            case {"secret:sha256": str(digest)}:
                if isinstance(current, Secret) and self._digest(current.value) == digest:
                    return current
                return Secret(CHANGED)
            case Mapping():
                within = current if isinstance(current, Mapping) else {}
                return {key: self.restore_secrets(item, within.get(key)) for key, item in stored.items()}
            case list():
                items = current if isinstance(current, list) and len(current) == len(stored) else [None] * len(stored)
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
        files.write(self.path, json.dumps(content, indent=1, sort_keys=True), 0o600, sync=False)
