"""The repository's files that rules read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PATTERNS = (".github/workflows/*.yml", ".github/workflows/*.yaml", "images/*/Dockerfile", "images/*/*.Dockerfile")


def read(root: Path | None) -> Mapping[str, str]:
    """Path below `root` -> text, sorted. Without a root there are none, as in a wheel."""
    if root is None:
        return {}
    paths = sorted(path for pattern in PATTERNS for path in root.glob(pattern) if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8", errors="replace") for path in paths}
