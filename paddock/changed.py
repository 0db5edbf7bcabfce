"""The files of a checkout that differ from a commit, and what looks at them: tests, doors and checkers."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from paddock.errors import PaddockError

# The doors of a room: tests/doors/test_NAME.py calls its tasks as a user does.
DOORS = {
    "aws": ("ami",), "bench": ("bench",), "catalog": ("facts",), "console": ("table", "words"), "fleet": ("fleet",),
    "gpu": ("gpu",),
    "html": ("fleet", "bench"), "images": ("images", "ami"), "infra": ("fleet",), "init": ("fleet",), "kubernetes": (),
    "lab": ("lab",), "messages": ("images",), "models": ("serve", "bench"), "modes": ("bench",),
    "monitoring": ("fleet",), "openai": ("serve", "bench"),
    "operate": ("operate", "day_two"), "plan": ("fleet",), "pulumi_cli": ("lab",), "runbooks": ("operate",),
    "serve": ("serve",), "site": ("docs_tasks",),
    "slurm": ("slurm",), "smoke": ("smoke",), "tasks": ("table", "words"),
}  # fmt: skip

# What looks at a file that is in no room, by how its path begins; the first that fits.
ELSEWHERE = {
    "tests/bad_input/": ("tests/fleet",),
    "tests/conftest.py": ("tests/house/test_record.py", "tests/house/test_counterparts.py"),
    "docs/": ("tests/house/test_docs.py", "tests/site", "tests/doors/test_commands_in_text.py"),
    ".github/": ("tests/house/test_tree.py", "tests/doors/test_workflow_steps.py"),
    "ami/": ("tests/images/ami", "tests/infra/images"),
    "images/": ("tests/images",),
    "inv": ("tests/house/test_bootstrap.py", "tests/house/test_installer.py", "tests/console/test_program.py"),
    "locks/": ("tests/house/test_locks.py", "tests/house/test_packages.py"),
    "policy/": ("tests/policy",),
    "pyproject.toml": ("tests/house/test_rooms.py", "tests/house/test_tree.py", "tests/house/test_locks.py"),
    "runners/": ("tests/images", "tests/gpu/job_hooks"),
    "tasks.py": ("tests/console/test_program.py", "tests/doors/test_table.py"),
}
PROSE = ("tests/house/test_docs.py", "tests/doors/test_commands_in_text.py")
EVERY_MODULE = ("tests/house/test_rooms.py", "tests/house/test_tree.py")

_WITHOUT_GIT = ": what has changed cannot be told\n    fix: `./inv check` checks everything"


class ChangedError(PaddockError):
    """The commit to compare with is not one."""

    exit_code = 2


def files(root: Path, since: str) -> list[str]:
    """Return the files that differ from a commit, those that git does not know yet among them, relative to `root`.

    Raises ChangedError where `since` names no commit, or git or its checkout is absent.
    """
    try:
        known = _git(root, "diff", "--name-only", "-z", "--relative", since, "--")
        new = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    except FileNotFoundError:
        raise ChangedError(f"no git on PATH{_WITHOUT_GIT}") from None
    except subprocess.CalledProcessError as error:
        if not (root / ".git").exists():
            raise ChangedError(f"this folder is not a git checkout{_WITHOUT_GIT}") from None
        reason = next(iter(error.stderr.strip().splitlines()), "git gives no reason")
        raise ChangedError(
            f"--since {since}: {reason}\n    expected: a commit, a branch or a tag of this checkout"
        ) from None
    return sorted({name for name in (*known, *new) if name})


def tests(root: Path, changed: Iterable[str]) -> list[str]:
    """Return the test files and folders that look at these files, the nearest first, none of them in another."""
    changed = list(changed)
    near = [path for name in changed for path in _near(root, name)]
    far = [path for name in changed for path in _far(root, name)]
    if any(name.endswith(".py") for name in changed):
        far += EVERY_MODULE
    chosen: list[str] = []
    for path in (*near, *far):
        if (root / path).exists() and not any(path == one or path.startswith(f"{one}/") for one in chosen):
            chosen.append(path)
    return chosen


def _near(root: Path, name: str) -> Iterator[str]:
    """Yield a changed test itself, and the tests of a module's own folder."""
    path = Path(name)
    if path.parts[0] == "tests" and re.fullmatch(r"test_.*\.py", path.name):
        yield name
    elif path.parts[0] in ("paddock", "infra") and path.suffix == ".py":
        folder = Path("tests", *path.parts[path.parts[0] == "paddock" : -1])
        yield str(folder / f"test_{path.stem}.py")
        if len(folder.parts) > 2:
            yield str(folder)


def _far(root: Path, name: str) -> Iterator[str]:
    """Yield the tests of the whole room and its doors; of a file in no room, what names it."""
    path = Path(name)
    room = path.parts[0] if path.parts[0] == "infra" else path.parts[1] if len(path.parts) > 2 else ""
    if name.startswith(("paddock/", "infra/")) and room in DOORS:
        yield f"tests/{room}"
        yield from (f"tests/doors/test_{door}.py" for door in DOORS[room])
    elif name.startswith("paddock/"):
        yield from _that_import(root, f"paddock.{path.stem}", "paddock", path.stem)
        yield "tests/doors/test_house.py"
    elif name.startswith("tests/support/"):
        yield from _that_import(root, f"tests.support.{path.stem}", "tests.support", path.stem)
    elif name.startswith("tests/") and not path.name.startswith("test_"):
        yield from _elsewhere(name) or (str(path.parent),)
    else:
        yield from _elsewhere(name)
    if path.suffix == ".md":
        yield from PROSE


def _elsewhere(name: str) -> tuple[str, ...]:
    return next((paths for start, paths in ELSEWHERE.items() if name.startswith(start)), ())


def _that_import(root: Path, module: str, package: str, name: str) -> Iterator[str]:
    """Yield the test files that import a module. Those of real engines are for a whole run."""
    imported = re.compile(
        rf"^(?:import|from) {re.escape(module)}\b|^from {re.escape(package)} import .*\b{name}\b", re.M
    )
    for file in sorted((root / "tests").rglob("test_*.py")):
        if file.parent.name != "e2e" and imported.search(file.read_text(encoding="utf-8")):
            yield file.relative_to(root).as_posix()


def _git(root: Path, *words: str) -> list[str]:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")
