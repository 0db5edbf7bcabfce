"""Files that a test compares with; PADDOCK_UPDATE_GOLDEN=1 writes them, and the review of the change is the test."""

from __future__ import annotations

import os
from pathlib import Path

# Read before a fixture cleans the environment.
_UPDATE = bool(os.environ.get("PADDOCK_UPDATE_GOLDEN"))


def same_as_golden(folder: Path, name: str, text: str) -> None:
    """Asserts that `text` is what the file `name` in `folder` holds."""
    path = folder / name
    if _UPDATE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"PADDOCK_UPDATE_GOLDEN=1 writes {path.name}"
    assert text == path.read_text(encoding="utf-8"), (
        f"{path.name} is out of date; PADDOCK_UPDATE_GOLDEN=1 writes it anew"
    )
