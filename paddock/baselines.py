"""A folder of baselines: what was once measured, a JSON file for each thing, which later measurements are held to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock import files


@dataclass(frozen=True, slots=True)
class Baselines:
    """Baselines by name. A folder that does not exist is empty, and is made with the first one."""

    folder: Path
    private: bool = False
    """Nobody else may look into a folder that is made."""

    def path(self, name: str) -> Path:
        """Return the file of a name; characters that a file's name should not have become `_`."""
        return self.folder / f"{re.sub(r'[^A-Za-z0-9.-]', '_', name)}.json"

    def keep(self, name: str, document: Any, *, replace: bool) -> Path | None:
        """Write a document whole and return its file; None where one is there and is not to be replaced.

        Raises OSError.
        """
        path = self.path(name)
        if path.exists() and not replace:
            return None
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700 if self.private else 0o777)
        files.write(path, json.dumps(document, indent=2) + "\n")
        return path

    def read(self, name: str) -> Any:
        """Return a document; None where there is none. Raises OSError, and ValueError for what is not JSON."""
        try:
            return json.loads(self.path(name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def __iter__(self) -> Iterator[Path]:
        """Yield every file, by name."""
        yield from sorted(self.folder.glob("*.json"))
