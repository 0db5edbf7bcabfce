"""What `./inv test` does not install is imported where it is needed, after `need` has looked for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.packages import locked_packages, unmet


def test_test_modules_import_only_what_their_lock_installs(root: Path) -> None:
    locked = locked_packages(root / "locks/dev.txt")
    files = [file for name in ("test_*.py", "conftest.py") for file in (root / "tests").rglob(name)]
    found = [
        f"{file.relative_to(root)}:{line} {name}" for file in sorted(files) for line, name in unmet(file, root, locked)
    ]
    assert found == [], 'not in locks/dev.txt: call need("…") of tests/support/packages.py before the import'


def test_an_import_is_seen_through_the_projects_modules(tmp_path: Path, root: Path) -> None:
    file = tmp_path / "test_x.py"
    locked = locked_packages(root / "locks/dev.txt")
    for text, packages in (
        ("import torch", ["torch"]),
        ('from tests.support.packages import need\nneed("torch")\nimport torch', []),
        ("import torch\nfrom tests.support.packages import need\nneed('torch')", ["torch"]),
        ("from paddock.bench.engines import torch_step", ["torch", "transformers"]),
        ("from paddock.bench.engines.formats import FORMATS", []),
        ("def test_x():\n    import torch", []),
        ("import os\nimport pytest\nimport yaml", []),
    ):
        file.write_text(text)
        assert [name for _, name in unmet(file, root, locked)] == packages, text


def test_absent_packages_skip_by_the_one_helper(root: Path) -> None:
    others = [place for file in sorted((root / "tests").rglob("*.py")) for place in _own_skips(file, root)]
    assert others == [], "need(…) of tests/support/packages.py skips where a package is absent"


def _own_skips(file: Path, root: Path) -> Iterator[str]:
    text = file.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "importorskip" in text or "find_spec" in text else ():
        match node:
            case ast.Call(func=ast.Attribute(attr="importorskip" | "skipif")):
                call = ast.unparse(node)
                if "importorskip" in call or "find_spec" in call:
                    yield f"{file.relative_to(root)}:{node.lineno} {call}"
