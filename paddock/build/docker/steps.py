"""BuildKit's plain progress, read back into steps."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

KEPT = 20
"""Lines of output that are kept of each step."""

_LINE = re.compile(r"#(?P<number>\d+) (?P<rest>.*)")
_TIMED = re.compile(r"\d+\.\d+ (?P<text>.*)|\d+\.\d+$")
_DONE = re.compile(r"DONE (?P<seconds>[\d.]+)s$")
_NOISE = re.compile(r"sha256:[0-9a-f]{64}$|\.\.\.$")
_LAYER = re.compile(r"\[(?:[^\]]+ )?\d+/\d+\] (?!FROM )")
_EXIT = re.compile(r"exit code: (\d+)")


@dataclass(slots=True)
class Step:
    name: str
    """As BuildKit writes it: `[stage 2/5] RUN make`."""
    state: Literal["running", "done", "cached", "failed", "canceled"] = "running"
    seconds: float = 0.0
    error: str = ""
    output: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def makes_layer(self) -> bool:
        return _LAYER.match(self.name) is not None

    @property
    def command(self) -> str:
        """Without its place in the Dockerfile."""
        return self.name.partition("] ")[2] or self.name

    @property
    def exit_code(self) -> int | None:
        """Of the command that failed; None where no command did."""
        found = _EXIT.search(self.error)
        return int(found[1]) if found else None


class Steps:
    """The steps so far, by their number, and what was said outside of them."""

    def __init__(self) -> None:
        self.known: dict[str, Step] = {}
        self.outside: deque[str] = deque(maxlen=KEPT)

    def read(self, line: str) -> Step | None:
        """The step that the line is about, after it."""
        found = _LINE.match(line)
        if not found:
            if line.strip():
                self.outside.append(line)
            return None
        number, rest = found["number"], found["rest"]
        if number not in self.known:
            self.known[number] = Step(rest)
        elif rest != self.known[number].name and not _NOISE.match(rest):
            _told(self.known[number], rest)
        return self.known[number]

    @property
    def failed(self) -> Step | None:
        return next((step for step in self.known.values() if step.state == "failed"), None)

    @property
    def layers(self) -> list[Step]:
        """The steps of the Dockerfile that make a layer."""
        return [step for step in self.known.values() if step.makes_layer]


def _told(step: Step, text: str) -> None:
    if done := _DONE.match(text):
        # A step that was made of the cache ends a second time, with DONE.
        step.state, step.seconds = "cached" if step.state == "cached" else "done", float(done["seconds"])
    elif text == "CACHED":
        step.state = "cached"
    elif text == "CANCELED":
        step.state = "canceled"
    elif text.startswith("ERROR"):
        step.state, step.error = "failed", text.removeprefix("ERROR").lstrip(": ")
    else:
        timed = _TIMED.match(text)
        step.output.append((timed["text"] or "") if timed else text)
