"""The journal of a workflow: a line for all that happened to a step, on the disk before the next thing happens."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from paddock import files
from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.workflow.model import Workflow, WorkflowStep
from paddock.gpu.workflow.tasks import Manifest

SCHEMA = 1
"""Version of the file's format."""
Event = Literal["begun", "started", "succeeded", "failed", "interrupted", "ended"]


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A step that came to its end, and what it answered."""

    key: str
    result: dict[str, Any]


class Journal:
    """Open for one run; a second run of the same workflow is refused meanwhile."""

    def __init__(self, path: Path) -> None:
        """Raises GpuError where another run has it, or it cannot be written."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise GpuInputError(
                f"cannot write the journal {path}: {error.strerror}\n    expected: a folder of yours"
                "\n    fix: --journal FILE, or XDG_STATE_HOME"
            ) from None
        try:
            files.lock(self._file)
        except BlockingIOError:
            os.close(self._file)
            raise GpuError(
                f"this workflow is being run already: {path} is in use\n    expected: one run at a time"
                "\n    fix: wait for the other, or end it"
            ) from None
        self.done = self._read()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._file)

    def write(self, event: Event, **about: Any) -> None:
        """Write one line, which is on the disk on return. Raises GpuError."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = json.dumps({"schema": SCHEMA, "at": now, "event": event, **about}) + "\n"
        try:
            data = line.encode()
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            raise GpuError(f"cannot write the journal {self.path}: {error.strerror}") from None

    def _read(self) -> dict[str, FinishedStep]:
        """Return the finished steps of the runs after the last good one."""
        finished: dict[str, FinishedStep] = {}
        text = b"".join(iter(lambda: os.read(self._file, 1 << 20), b""))
        whole, newline, torn = text.rpartition(b"\n")
        if torn:  # a run that was killed while it wrote
            os.ftruncate(self._file, len(whole) + len(newline))
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                record = json.loads(line)
                event, step = record["event"], record.get("step")
                if record["schema"] != SCHEMA:
                    raise ValueError
                if event == "succeeded":
                    finished[step] = FinishedStep(record["key"], record["result"])
                elif event in ("started", "failed", "interrupted"):
                    finished.pop(step, None)
                elif event == "ended" and record["outcome"] == "succeeded":
                    finished.clear()
            except (ValueError, KeyError, TypeError):
                raise GpuInputError(
                    f"{self.path}, line {number}: not a line of a journal\n    expected: what this version writes"
                    "\n    fix: delete the file; the workflow then runs from its beginning"
                ) from None
        return finished


def default_path(workflow: Workflow) -> Path:
    """Return the path of a journal, one for each workflow of a folder."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    folder = hashlib.sha256(str(workflow.folder.resolve()).encode()).hexdigest()[:8]
    return Path(state) / "paddock" / "workflows" / f"{workflow.id}-{folder}.jsonl"


def keys(workflow: Workflow) -> dict[str, str]:
    """Return a hash by step of what makes it the same step: its task, its files' content, and all that it waits for."""
    result: dict[str, str] = {}
    for step in (step for wave in workflow.waves() for step in wave):
        task = step.task
        content = [task.type, task.action, task.written, _files(step, workflow.folder)]
        before = {id: result[id] for id in sorted(step.depends_on)}
        text = json.dumps([content, before], sort_keys=True, default=str)
        result[step.id] = hashlib.sha256(text.encode()).hexdigest()
    return result


def reusable(workflow: Workflow, finished: Mapping[str, FinishedStep]) -> dict[str, FinishedStep]:
    """Return the steps to skip: finished, unchanged, after steps that are skipped too, with results that still hold."""
    result: dict[str, FinishedStep] = {}
    now = keys(workflow)
    for step in (step for wave in workflow.waves() for step in wave):
        record = finished.get(step.id)
        if record is None or record.key != now[step.id] or not all(id in result for id in step.depends_on):
            continue
        is_valid = step.task.spec.is_valid
        if is_valid is None or is_valid(record.result):
            result[step.id] = record
    return result


def _files(step: WorkflowStep, folder: Path) -> list[str]:
    """Hashes of what the files hold now; one that is not there is noticed when the step runs."""
    named = step.task.parameters.file if isinstance(step.task.parameters, Manifest) else None
    if named is None:
        return []
    try:
        return [hashlib.sha256((folder / named).read_bytes()).hexdigest()]
    except OSError:
        return []
