"""A copy of the project, for tests that change it or must not see it change."""

from __future__ import annotations

import shutil
from pathlib import Path

_PARTS = ("paddock", "infra", "policy", "images", "runners", "locks/base.txt", "pyproject.toml", "README.md", "LICENSE",
          "Pulumi.yaml", "Pulumi.dev.yaml")  # fmt: skip


def copy(root: Path, into: Path) -> Path:
    """As much of it as images and their stack need."""
    for part in _PARTS:
        target = into / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (root / part).is_dir():
            shutil.copytree(root / part, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(root / part, target)
    return into


def with_pipeline(root: Path, into: Path) -> Path:
    """The project's file and the stack `dev`, with a pipeline for machine images."""
    into.mkdir()
    shutil.copy(root / "Pulumi.yaml", into)
    text = (root / "Pulumi.dev.yaml").read_text(encoding="utf-8")
    (into / "Pulumi.dev.yaml").write_text(f"{text.rstrip()}\n    images: {{ami: {{enabled: true}}}}\n")
    return into
