"""The door that a user takes: `./inv TASK …` as a process, with stand-ins at the boundaries of the process."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.waiting import until

MARK = "pytest.mark.door"
MINUTE = 60.0
Here = Callable[..., tuple[int, str, str]]
"""Calls a task in the test's own process; returns exit code, output and errors."""


@dataclass(frozen=True, slots=True)
class Row:
    """A test that calls a task as a user does."""

    task: str
    counterpart: str
    """What the task meets: the real thing, or the stand-in at the boundary of its process."""
    test: str
    """File and name of the test."""
    interrupted: bool
    """Whether the test presses Ctrl-C."""


class Door:
    """Calls tasks from an empty folder with an empty HOME."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.folder = folder / "here"
        self.bin = folder / "bin"
        self.home = folder / "home"
        for made in (self.folder, self.bin, self.home):
            made.mkdir()

    def __call__(
        self,
        *words: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        answers: str | None = None,
        seconds: float = MINUTE * 5,
    ) -> subprocess.CompletedProcess[str]:
        """Run a task to its end."""
        return subprocess.run(
            self.command(words),
            cwd=cwd or self.folder,
            env=self.environment(env),
            input=answers,
            stdin=subprocess.DEVNULL if answers is None else None,
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def start(
        self, *words: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start a task that a test watches or interrupts, in a process group of its own."""
        return subprocess.Popen(
            self.command(words),
            cwd=cwd or self.folder,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def runs(self, process: subprocess.Popen[str]) -> None:
        """Wait until `./inv` has become the task: before, it answers Ctrl-C in words of its own."""
        command = Path(f"/proc/{process.pid}/cmdline")
        if not command.exists():
            pytest.skip("it reads /proc, which is not here")
        until(lambda: b"\0paddock\0" in command.read_bytes())

    def interrupt(self, process: subprocess.Popen[str], seconds: float = MINUTE) -> tuple[int, str, str]:
        """Press Ctrl-C as a terminal does, in the whole group; return exit code, output and errors."""
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=seconds)
        # An interpreter that Ctrl-C met in text that it runs (as dataclasses do) ends by the signal in the end. A shell
        # shows 130 of both.
        return 130 if process.returncode == -signal.SIGINT else process.returncode, out, err

    def interrupted(self, process: subprocess.Popen[str]) -> tuple[str, str]:
        """Press Ctrl-C; return output and errors of a task that ends by it, without a traceback."""
        code, out, err = self.interrupt(process)
        assert (code, "Traceback" in err) == (130, False), out + err
        return out, err

    def program(self, name: str, text: str) -> Path:
        """Put a stand-in for a program first on PATH: a script with its own first line."""
        path = self.bin / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables of a process behind this door."""
        path = os.pathsep.join([str(self.bin), os.environ.get("PATH", os.defpath)])
        return {**os.environ, "HOME": str(self.home), "PATH": path, "COLUMNS": "100", **(env or {})}

    def command(self, words: tuple[str, ...]) -> list[str]:
        """Return the command line of a task. Skips where its packages are absent: fetching them is not the test's."""
        self._need_packages(words)
        return [sys.executable, str(self.root / "inv"), *words]

    def _need_packages(self, words: tuple[str, ...]) -> None:
        inv = bootstrap(self.root)
        sets = inv.needed_sets(list(words))
        venv = inv.venv_path(sets)
        for name in sets:
            if not inv.is_installed(venv, name):
                pytest.skip(f"no packages of {name} in this environment")


@cache
def bootstrap(root: Path) -> ModuleType:
    """Return `inv` as a module."""
    loader = SourceFileLoader("inv_of_doors", str(root / "inv"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def rows(root: Path) -> Iterator[Row]:
    """Yield every use of the mark `door` in the tests: `@pytest.mark.door(task, counterpart)`."""
    for file in sorted((root / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if MARK not in text:
            continue
        tree = ast.parse(text)
        texts = {
            ast.unparse(node.targets[0]): node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        }
        origins = {
            name.name: node.module or ""
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                for call in node.decorator_list:
                    if isinstance(call, ast.Call) and ast.unparse(call.func) == MARK:
                        task, counterpart = (_text(argument, texts, origins) for argument in call.args)
                        place = f"{file.relative_to(root)}::{node.name}"
                        yield Row(task, counterpart, place, interrupted=bool(call.keywords))


def _text(argument: ast.expr, texts: Mapping[str, Any], origins: Mapping[str, str]) -> str:
    """Return a word of a mark: written there, or the name of a text in the file or in one that it imports."""
    if isinstance(argument, ast.Attribute):
        module = ast.unparse(argument.value)
        return str(getattr(importlib.import_module(f"{origins[module]}.{module}"), argument.attr))
    if isinstance(argument, ast.Name):
        name = argument.id
        return str(texts[name] if name in texts else getattr(importlib.import_module(origins[name]), name))
    return str(ast.literal_eval(argument))


def real(program: str) -> str:
    """Return the path of a program that a stand-in hands on to; skips where it is absent."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program} on PATH")
    return path
