"""Errors of docker, the engine and registries, in words of a person who can fix them: `paddock.messages` knows them."""

from __future__ import annotations

import re
import sys

from paddock.images.errors import BuildError, BuildInputError
from paddock.messages import explain

_LOG = "its log" if sys.platform == "darwin" else "its log: journalctl --unit docker"
_START = "open Docker Desktop, or: colima start" if sys.platform == "darwin" else "sudo systemctl start docker"
_ASK = f"\n    fix: run it again; where it stays so, look at docker info and at what the engine writes to {_LOG}"
_HOST = re.compile(
    r"^(?P<image>[a-z0-9][\w.-]*[:/][\w.:/@-]*\w): |//(?P<host>[^/\s]+)/|(?P<shown>[\w-]+(?:\.[\w-]+)+(?::\d+)?)/"
)


def lost(output: str) -> bool:
    """Return whether docker is set to an engine that it does not know, for which older clients refuse every command."""
    explained = explain("engine", output)
    return explained is not None and explained.row.id == "engine-context-lost"


def engine(output: str, action: str) -> BuildError:
    """Return the error for docker's output about the engine itself."""
    return _error("engine", output, action) or _unknown(output, action, _ASK)


def registry(output: str, action: str, registry: str) -> BuildError:
    """Return the error for the engine's output about a registry, or itself, during a pull, push or query."""
    return _error("registry", output, action, registry) or _unknown(output, action, _ASK)


def base(output: str, action: str) -> BuildError:
    """Return the error of a build that failed outside its Dockerfile's commands: mostly of the base image.

    Words that nobody knows get no fix, as only the build knows its Dockerfile.
    """
    found = _HOST.search(output)
    host = (found["host"] or found["shown"] or found["image"].partition("/")[0]) if found else ""
    return _error("build", output, action, host) or _unknown(output, action)


def hint(output: str) -> str:
    """Return the cause of a failed command on lines of its own, where its output shows it; else nothing."""
    explained = explain("step", output, registry="the registry")
    return explained.hint if explained else ""


def _error(said: str, output: str, action: str, registry: str = "") -> BuildError | None:
    explained = explain(said, output, registry=registry or "the registry", start=_START, log=_LOG)
    if explained is None:
        return None
    kind = BuildInputError if explained.row.input else BuildError
    return kind(
        f"{action}: {explained.cause}\n    expected: {explained.expected}\n    fix: {explained.fix}"
        f"\n    docker said: {explained.line.replace(chr(10), f'{chr(10)}        ')}"
    )


def _unknown(output: str, action: str, fix: str = "") -> BuildError:
    said = "\n    ".join(_lines(output))
    return BuildError(f"{action}: {said or 'docker does not say why'}{fix}")


def words(output: str) -> str:
    """Return the one line of docker's that says most."""
    lines = _lines(output)
    daemons = (line for line in output.splitlines() if "Error response from daemon: " in line)
    return next((_plain(line) for line in daemons), lines[-1] if lines else "")


def _lines(output: str) -> list[str]:
    """Return docker's message, whole but for its advice on how to ask for help."""
    return [_plain(line) for line in output.splitlines() if line.strip() and "--help" not in line]


def _plain(line: str) -> str:
    return re.sub(r"^(?:docker: )?(?:Error response from daemon: )?", "", line.strip())
