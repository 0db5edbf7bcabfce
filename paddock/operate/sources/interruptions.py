"""Record of jobs whose node was taken back, a line of JSON each, on the machine where `runners.rerun` met them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from paddock.operate.sources.unavailable import Unavailable


@dataclass(frozen=True, slots=True)
class Interruption:
    """One attempt of a job that ended with its node. Times are ISO 8601."""

    job: int
    repository: str
    workflow: str
    scale_set: str
    gpus: int
    started: str
    ended: str

    @property
    def span(self) -> tuple[datetime, datetime]:
        return datetime.fromisoformat(self.started), datetime.fromisoformat(self.ended)


def path(stack: str) -> Path:
    """Return the file of a stack."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(state, "paddock/rerun", f"{stack}.jsonl")


def keep(stack: str, items: Iterable[Interruption]) -> None:
    """Add what the record does not have yet. Raises OSError."""
    recorded = {interruption.job for interruption in read(stack) or ()}
    new = [interruption for interruption in items if interruption.job not in recorded]
    if new:
        file = path(stack)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as lines:
            lines.writelines(json.dumps(asdict(interruption)) + "\n" for interruption in new)


def read(stack: str) -> tuple[Interruption, ...] | None:
    """Return the record, None where there is none. Raises Unavailable for another kind of file."""
    file = path(stack)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{file} cannot be read: {error}") from None
    try:
        entries = [Interruption(**json.loads(line)) for line in text.splitlines() if line.strip()]
        for interruption in entries:
            begin, end = interruption.span
            if begin.tzinfo is None or end.tzinfo is None or not isinstance(interruption.gpus, int):
                raise ValueError(interruption)
    except (ValueError, TypeError) as error:
        raise Unavailable(f"{file} is not a record of interruptions: {error}", f"move {file} away") from None
    return tuple({interruption.job: interruption for interruption in entries}.values())
