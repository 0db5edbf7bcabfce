"""State of a lab between commands: a folder for its user alone, and one small file in it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from paddock import files
from paddock.lab.errors import LabError, LabInputError
from paddock.process import Process

VERSION = 1
"""Version of the file. A lab of another version can only be ended."""
_LOCKS = ("lock", "command.lock")
_ENTRIES = (
    *("lab.json", "pki", "etcd", "logs", "kubeconfigs", "kubeconfig", "groups.json", "run"),
    *("engine", "charts", "github"),
)
"""Names that `remove` deletes. The folder may hold other files of the user's."""


@dataclass(frozen=True, slots=True)
class State:
    """Ports and processes of one lab."""

    ports: Mapping[str, int] = field(default_factory=dict)
    processes: Mapping[str, Process] = field(default_factory=dict)
    """By name, in the order in which they were started."""
    boot: str = ""
    """Boot id of the machine that they run on."""

    def with_process(self, name: str, process: Process) -> State:
        return replace(self, processes={**self.processes, name: process})


def folder(name: str) -> Path:
    """Return the folder of a lab's state, in PADDOCK_LAB_STATE or under XDG_STATE_HOME. Raises LabInputError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", name):
        raise LabInputError(f"{name!r} cannot be a lab's name\n    fix: use letters, digits, dots and dashes")
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    labs = os.environ.get("PADDOCK_LAB_STATE") or Path(home, "paddock", "lab")
    return Path(labs, name).absolute()


def inv(task: str, where: Path) -> str:
    """Return the command for the lab in a folder, as a user types it."""
    return f"./inv lab.{task}" + ("" if where.name == "dev" else f" --stack {where.name}")


def prepare(where: Path) -> None:
    """Create the folder for its user alone. Raises LabError where it is another user's."""
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        if where.stat().st_uid != os.getuid():
            raise LabInputError(f"{where} belongs to another user\n    fix: PADDOCK_LAB_STATE=<a folder of yours>")
        where.chmod(stat.S_IRWXU)
    except OSError as error:
        raise LabError(
            f"cannot keep the lab's state in {where}: {error.strerror}\n    fix: PADDOCK_LAB_STATE=<a folder of yours>"
        ) from None


def read(where: Path) -> State | None:
    """Return the lab's state; None where there is none. Raises LabError for an invalid file."""
    path = where / "lab.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            raise ValueError(f"it is of version {document['version']}, and this is of version {VERSION}")
        processes = {name: Process(int(own["pid"]), str(own["started"])) for name, own in document["processes"].items()}
        return State({name: int(port) for name, port in document["ports"].items()}, processes, str(document["boot"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(
            f"{path} is not a lab's state: {error}\n"
            f"    fix: {inv('down', where)}, which ends what still runs of it and forgets the rest"
        ) from None


def write(where: Path, state: State) -> None:
    """Save the lab's state. Raises LabError."""
    write_private(where / "lab.json", f"{json.dumps({'version': VERSION, **asdict(state)}, indent=2)}\n")


def write_private(path: Path, text: str) -> None:
    """Replace a file that only its owner may ever read. Raises LabError, for a full disk too."""
    try:
        files.write(path, text, 0o600, sync=False)
    except OSError as error:
        raise LabError(
            f"cannot write {path}: {error.strerror}\n    fix: make room there, or PADDOCK_LAB_STATE=<another folder>"
        ) from None


def remove(where: Path) -> None:
    """Delete what the lab put into the folder, and the folder if nothing else is in it."""
    for name in _ENTRIES:
        path = where / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for name in _LOCKS:
        (where / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        where.rmdir()


@contextlib.contextmanager
def exclusive_command(where: Path) -> Iterator[None]:
    """Keep two commands from working on one lab at once, from their first step to their last.

    Without a lab there is nothing to lock. Raises LabInputError.
    """
    with locked(where, _LOCKS[1]) if where.exists() else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def locked(where: Path, name: str = _LOCKS[0]) -> Iterator[None]:
    """Keep two processes from changing the state at once. Raises LabInputError."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(files.locked(where / name))
        except (BlockingIOError, FileNotFoundError):  # without its folder: another command has just ended the lab
            raise LabInputError(
                f"another command is at work on the lab in {where}\n    fix: wait for it, then run this again"
            ) from None
        yield
