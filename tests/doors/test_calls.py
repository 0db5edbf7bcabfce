"""What a task hands on is typed: mypy says nothing of `**flags`, and once a build's did not fit what took them."""

from __future__ import annotations

import ast
from pathlib import Path

MAKERS = {
    ("build.py", "BuildOptions"): "fields of the very class",
    ("build.py", "body"): "flags that Invoke derived from the function's own parameters",
    ("build.py", "task"): "settings of Invoke",
}
"""Calls that make tasks, with what they hand on."""


def test_a_task_hands_its_flags_on_by_name(root: Path) -> None:
    calls = {
        (path.name, ast.unparse(node.func))
        for path in (root / "paddock" / "tasks").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and any(keyword.arg is None for keyword in node.keywords)
    }
    assert calls == set(MAKERS)
