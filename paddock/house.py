"""The chores of this repository: lint, test and lock, each a few programs run in the project's folder."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection
from pathlib import Path

from paddock import files
from paddock.errors import PaddockError

ROOT = Path(__file__).resolve().parent.parent

TYPED = ("paddock", "infra", "policy", "benchmarks", "tasks.py")


FAST_SECONDS = 150
"""How long `check --fast` begins tests, so that it ends within three minutes."""
MOST_WORKERS = 8
"""Workers of a run with engines: as many as its longest groups can use."""

# Programs that our work is tried with from outside, in environments of their own: what they need fits no lock of ours.
ORACLES = ("checkov", "hadolint", "moto_server", "pcluster")
# Programs that ours are timed against; only the benchmarks install them.
PEERS = ("gpu_peers",)
# All of them, and engines of others, by the names of their files in `locks`.
OTHERS = (*(f"oracles/{name}" for name in (*ORACLES, *PEERS)), "engines/vllm")


def lock_sets() -> dict[str, tuple[str, ...]]:
    """Return the locks, each with the extras whose dependencies it holds: `base` of none, and one for each extra.

    Every version comes from constraints.txt, which resolves them all at once, so a package has one version in all locks
    and a set can be installed over another.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"base": (), **{extra: (extra,) for extra in project["optional-dependencies"]}}


class CheckFailed(PaddockError):
    """A check failed; its own output has said why."""


def test(*, k: str = "", e2e: bool = False, explore: bool = False, extra: str = "") -> None:
    """Run the suite on every core, and with `e2e` what needs other programs, fetching those that are ours to fetch."""
    chosen = ["-k", k] if k else []
    if e2e and not k and not extra:  # tests that are chosen by hand run in any case
        chosen.append("--not-passed")
    for name in ORACLES if e2e else ():
        os.environ.setdefault(f"PADDOCK_{name.upper()}", str(oracle(name)))
    if explore:
        os.environ["PADDOCK_EXPLORE"] = "1"
    marks = {
        (False, False): "not e2e and not explore",
        (True, False): "not explore",
        (False, True): "explore or at_length",
    }
    if (e2e, explore) in marks:
        chosen += ["-m", marks[e2e, explore]]
    # Most tests with engines wait for them: two workers a core keep it busy.
    workers = str(min(2 * (os.cpu_count() or 1), MOST_WORKERS)) if e2e else "auto"
    _pytest("-n", workers, *chosen, *shlex.split(extra))


def check(since: str) -> None:
    """Check what differs from a commit: its lint, then its tests and doors, as many as fit into three minutes."""
    from paddock import changed

    began = time.monotonic()
    differing = changed.files(ROOT, since)
    if not differing:
        sys.stdout.write(f"nothing differs from {since}; `./inv check` checks everything\n")
        return
    lint(only=differing)
    if chosen := changed.tests(ROOT, differing):
        left = FAST_SECONDS - (time.monotonic() - began)
        words = ("--within", f"{max(left, 30):.0f}", *chosen)
        _pytest("-n", "auto", "-m", "not e2e and not explore", *words)
    else:
        sys.stdout.write(f"no test looks at {', '.join(differing)}\n")


def lint(*, fix: bool = False, only: Collection[str] | None = None) -> None:
    """Run every checker, also when one before it found something; `only`: what these files can have made wrong."""
    arguments = {
        "ruff check": ["."], "ruff format": ["."], "import-linter": [],
        "mypy": [path for path in TYPED if (ROOT / path).exists()], "shellcheck": scripts(),
    }  # fmt: skip
    if only is not None:
        there = [name for name in only if (ROOT / name).is_file()]
        python = [name for name in there if name.endswith(".py") or name == "inv"]
        arguments = {
            "ruff check": python, "ruff format": python, "mypy": [n for n in python if n.split("/")[0] in TYPED],
            "shellcheck": [name for name in arguments["shellcheck"] if name in there],
        }  # fmt: skip
        arguments = {checker: paths for checker, paths in arguments.items() if paths}
        if any(name.startswith(("paddock/", "infra/")) for name in python):
            arguments["import-linter"] = []
    commands = {
        "ruff check": ("ruff", "check", *(["--fix"] if fix else [])),
        "ruff format": ("ruff", "format", *([] if fix else ["--check"])),
        "import-linter": ("lint-imports", "--no-logo"),
        "mypy": ("mypy",),
        "shellcheck": ("shellcheck",),
    }
    failed = [checker for checker, paths in arguments.items() if not _succeeds(*commands[checker], *paths)]
    if failed:
        style = not fix and any(name.startswith("ruff") for name in failed)
        hint = " `./inv lint --fix` repairs what it can." if style else ""
        raise CheckFailed(f"lint: {', '.join(failed)} failed.{hint}")


def scripts() -> list[str]:
    """Return every shell script of the project, relative to it."""
    paths = sorted(
        path for folder in ("ami", "images", "infra", "paddock", "runners") for path in (ROOT / folder).rglob("*.sh")
    )
    return [".ci/run", *(str(path.relative_to(ROOT)) for path in paths)]


def lock(*, upgrade: bool = False, package: str = "") -> None:
    """Resolve everything once, then write each set with hashes; versions stay unless an upgrade is asked for.

    The locks are replaced when all are resolved: `./inv` itself needs them, also after an interrupt.
    """
    every = [word for extras in lock_sets().values() for extra in extras for word in ("--extra", extra)]
    moved = [*(["--upgrade"] if upgrade else []), *(["--upgrade-package", package] if package else [])]
    with tempfile.TemporaryDirectory() as folder:
        locks = Path(folder)
        for name in OTHERS:
            (locks / name).parent.mkdir(exist_ok=True)
        constraints = locks / "constraints.txt"
        # Of the old files this one, and those of other programs, say which versions stay.
        kept = ("constraints.txt", *(f"{name}.txt" for name in OTHERS))
        for file in kept:
            if (ROOT / "locks" / file).exists():
                shutil.copyfile(ROOT / "locks" / file, locks / file)
        _resolve("pyproject.toml", constraints, *every, *moved)
        for name, extras in lock_sets().items():
            chosen = [word for extra in extras for word in ("--extra", extra)]
            _resolve(
                "pyproject.toml", locks / f"{name}.txt", *chosen, "--generate-hashes", "--constraint", str(constraints)
            )
        for name in OTHERS:
            _resolve(f"locks/{name}.in", locks / f"{name}.txt", "--generate-hashes", *moved)
        for path in locks.rglob("*.txt"):
            files.write(ROOT / "locks" / path.relative_to(locks), path.read_bytes())


def oracle(name: str) -> Path:
    """Return the program, installed from its lock on first use."""
    return programs(name) / name


def programs(name: str) -> Path:
    """Return the program folder of a lock in `locks/oracles`, installed on first use and shared by all checkouts."""
    lock_file, python = ROOT / "locks" / "oracles" / f"{name}.txt", os.path.realpath(sys.executable)
    digest = hashlib.sha256(lock_file.read_bytes() + f"{python} {sys.version}".encode()).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paddock" / "programs"
    folder = cache / f"{name}-{digest[:16]}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=cache) as scratch:
            new = Path(scratch, "new")
            _run("uv", "venv", "--quiet", "--relocatable", "--python", python, str(new))
            install = ("uv", "pip", "install", "--quiet", "--require-hashes", "--python", str(new / "bin" / "python"))
            _run(*install, "-r", str(lock_file))
            try:
                new.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another run was faster, and has the same
                    raise
    return folder / "bin"


def _resolve(requested: str, written: Path, *options: str) -> None:
    _run(
        *("uv", "pip", "compile", requested, "--quiet", "--universal", "--python-version", "3.11"),
        *("--no-emit-index-url", "--no-emit-find-links", "--no-header", "--no-annotate"),
        *("--output-file", str(written), *options),
    )


def _pytest(*words: str) -> None:
    distribution = ("--dist", "loadgroup", "--no-loadscope-reorder")
    # A worker that crashes ends the run: xdist 3.8 would replace it, and then wait for ever (its issues 1323 and 1327).
    _run(sys.executable, "-m", "pytest", *distribution, "--max-worker-restart", "0", *words)


def _run(*command: str) -> None:
    if not _succeeds(*command):
        raise CheckFailed(f"{Path(command[0]).name} {' '.join(command[1:3])}: failed (see above)")


def _succeeds(*command: str) -> bool:
    """Run a program of this environment, whether or not the environment is activated."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, check=False).returncode == 0
