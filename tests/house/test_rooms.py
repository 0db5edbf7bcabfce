"""The layout: small folders, one direction of imports, plain docstrings."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp

MOST_MODULES = 16
NOT_A_VERB_OR_A_NOUN = re.compile(r"(What|Whether|Which|How|Where|Why|Who|Whose|If|When|There)\b")


@cache
def imports() -> grimp.ImportGraph:
    """Every import of our packages, those for the type checker and those inside functions included."""
    return grimp.build_graph("paddock", "infra", cache_dir=None)


def python_files(root: Path) -> Iterator[Path]:
    for package in ("paddock", "infra", "policy"):
        yield from (root / package).rglob("*.py")


def test_no_folder_has_more_modules_than_one_can_survey(root: Path) -> None:
    modules: dict[str, int] = defaultdict(int)
    for path in python_files(root):
        modules[str(path.parent.relative_to(root))] += path.name != "__init__.py"
    crowded = {folder: count for folder, count in modules.items() if count > MOST_MODULES}
    assert crowded == {}


def test_no_modules_import_each_other_in_a_cycle() -> None:
    graph = imports()
    later = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    # What imports nothing that remains cannot be part of a cycle; what is left over at the end is one.
    while free := {module for module, imported in later.items() if not imported & later.keys()}:
        later = {module: imported for module, imported in later.items() if module not in free}
    while free := {module for module in later if not any(module in imported for imported in later.values())}:
        later = {module: imported for module, imported in later.items() if module not in free}
    assert {module: imported & later.keys() for module, imported in later.items()} == {}


def test_every_package_says_what_lives_there(root: Path) -> None:
    undocumented = [
        str(path.relative_to(root))
        for path in python_files(root)
        if path.name == "__init__.py" and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert undocumented == []


def test_docstrings_begin_with_a_verb_or_a_noun(root: Path) -> None:
    wrong = []
    for path in python_files(root):
        text = path.read_text(encoding="utf-8")
        if not re.search(rf'"""\s*{NOT_A_VERB_OR_A_NOUN.pattern}', text):
            continue  # to parse all takes seconds
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                first_line = (ast.get_docstring(node) or "").partition("\n")[0]
                if NOT_A_VERB_OR_A_NOUN.match(first_line):
                    wrong.append(f"{path.relative_to(root)}: {first_line}")
    assert wrong == []
