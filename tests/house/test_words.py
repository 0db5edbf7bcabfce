"""Words: a class name that several rooms could claim has one meaning, as CONTRIBUTING's table says."""

import ast
import re

import pytest

from paddock.house import ROOT

TABLE = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE))
ALSO = {"Job": ["paddock/lab/github/model.py"]}
"""Where the same thing is said again, as others would say it."""


def _defined(name: str) -> list[str]:
    return [
        str(path.relative_to(ROOT))
        for folder in ("infra", "paddock", "policy")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if name in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name == name
    ]


@pytest.mark.parametrize("name", ["Device", "Job", "Plan", "Report", "Step"])
def test_a_class_name_has_one_meaning(name: str) -> None:
    assert name in TABLE
    assert len([path for path in _defined(name) if path not in ALSO.get(name, [])]) == 1
