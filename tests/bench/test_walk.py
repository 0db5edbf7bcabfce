"""The walk of the flags of `bench`: from their declaration by what carries them to what they do."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from paddock.bench.commands.bench import Bench
from paddock.bench.engines.door import BenchJob
from paddock.bench.runner.plan import Options

MOST = 20
CARRIERS = (Bench, Options, BenchJob)
HELD_AS = {"parameters", "options", "job", "jobs"}
FLAGS = {field.name for carrier in CARRIERS for field in fields(carrier)}
SAID = ("paddock.console", "paddock.bench.errors", "paddock.bench.report")
"""Modules in which is said what a flag was, and nothing done by it."""
OTHER_COMMANDS = {"load", "compare"}


def reads(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the places where a flag is taken from what carries it."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in FLAGS:
            holder = part.value.value if isinstance(part.value, ast.Subscript) else part.value
            if _name(holder).lstrip("_") in HELD_AS:
                yield part


def receivers(tree: ast.AST, root: Path) -> Iterator[str]:
    """Yield the modules whose functions are called with a flag."""
    names = {
        alias.asname or alias.name: (str(node.module), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("paddock.")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and any(list(reads(word)) for word in (*node.args, *node.keywords)):
            called = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            if _name(called) in names:
                package, member = names[_name(called)]
                inner = f"{package}.{member}"
                yield inner if (root / f"{inner.replace('.', '/')}.py").is_file() else package


def walk(root: Path) -> set[str]:
    """Return the modules that one opens who follows every flag."""
    found = {carrier.__module__ for carrier in CARRIERS}
    for path in (root / "paddock/bench").rglob("*.py"):
        if OTHER_COMMANDS.isdisjoint([*path.relative_to(root).parts, path.stem]):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(True for _ in reads(tree)):
                found |= {".".join(path.relative_to(root).with_suffix("").parts), *receivers(tree, root)}
    return {module for module in found if not module.startswith(SAID)}


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def test_a_flag_is_followed_through_few_modules(root: Path) -> None:
    modules = walk(root)
    assert {"paddock.bench.commands.bench", "paddock.bench.runner.plan", "paddock.bench.engines.llama"} <= modules
    assert len(modules) < MOST, sorted(modules)
