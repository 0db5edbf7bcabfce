"""Labels and annotations of ours."""

from __future__ import annotations

import re
from pathlib import Path


def test_labels_are_written_in_one_module(root: Path) -> None:
    ours = re.compile(r"""["'](?:lab\.)?paddock\.dev/""")
    modules = [path for room in ("paddock", "infra", "policy") for path in (root / room).rglob("*.py")]
    written = {path.relative_to(root).as_posix() for path in modules if ours.search(path.read_text(encoding="utf-8"))}
    assert written == {"paddock/labels.py"}
