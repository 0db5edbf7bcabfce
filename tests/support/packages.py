"""Packages that `./inv test` does not install (torch, Ray and what comes with them: 6 GB), and who needs them."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOMS = ("paddock", "infra", "policy", "tests")


def need(*packages: str) -> None:
    """Skip where one of these is not installed: the module, called at its head; else the test."""
    __tracebackhide__ = True  # a skip is told by the line that it comes from, and that is the caller's
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"no {package} in this environment", allow_module_level=True)


def unmet(file: Path, root: Path, locked: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Line and package of each import on the module's level that the lock does not hold, with no `need` before it."""
    needed = set[str]()
    for node in _head(file):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id="need"), args=arguments)):
                needed |= {str(ast.literal_eval(argument)) for argument in arguments}
            case ast.Import() | ast.ImportFrom():
                for package in sorted(_packages(_modules(node, file, root), root) - locked - needed):
                    yield node.lineno, package


def locked_packages(lock: Path) -> frozenset[str]:
    """Names by which the packages of a lock are imported, where they are installed."""
    names = re.findall(r"^([A-Za-z0-9._-]+)==", lock.read_text(encoding="utf-8"), re.MULTILINE)
    locked = {_normal(name) for name in names}
    held = packages_distributions().items()
    return frozenset(package for package, owners in held if locked & {_normal(owner) for owner in owners})


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _packages(modules: list[str], root: Path) -> set[str]:
    """Return the packages of others that these modules import when they are imported."""
    seen, packages, left = set[str](), set[str](), list(modules)
    while left:
        module = left.pop()
        if module in seen:
            continue
        seen.add(module)
        if module.partition(".")[0] in ROOMS:
            left.extend(_imported(module, root))
        elif (package := module.partition(".")[0]) not in sys.stdlib_module_names:
            packages.add(package)
    return packages


@cache
def _imported(module: str, root: Path) -> tuple[str, ...]:
    """Return what a module of the project imports on its level, and the packages that it is in."""
    file = _file(module, root)
    if file is None:
        return ()
    parents = [module.rpartition(".")[0]] if "." in module else []
    return (*parents, *(name for node in _on_import(_head(file)) for name in _modules(node, file, root)))


def _head(file: Path) -> list[ast.stmt]:
    """Return a module up to its first function or class, which is where imports stand; all else would take seconds."""
    text = file.read_text(encoding="utf-8")
    try:
        return ast.parse(re.split(r"^(?:def|class|async def|@)\b", text, maxsplit=1, flags=re.MULTILINE)[0]).body
    except SyntaxError:  # that was a line of a text
        return ast.parse(text).body


def _on_import(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the imports that run when a module is imported: not those of functions, or for a type checker."""
    for node in body:
        match node:
            case ast.Import() | ast.ImportFrom():
                yield node
            case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.FunctionDef() | ast.AsyncFunctionDef():
                pass
            case _:
                yield from _on_import([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)])


def _modules(node: ast.Import | ast.ImportFrom, file: Path, root: Path) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    folders = file.relative_to(root).parts[: -node.level] if node.level else ()
    module = ".".join((*folders, *([node.module] if node.module else [])))
    inner = (f"{module}.{alias.name}" for alias in node.names)
    return [module, *(name for name in inner if _file(name, root))]


def _file(module: str, root: Path) -> Path | None:
    path = root.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
