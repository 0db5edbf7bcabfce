"""Steps of a build, read from BuildKit's plain progress.

An own reader: `--progress rawjson` needs a recent buildx, and the docker 20.10 of Debian builds without any.
"""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

MAX_LINES = 20
"""Lines of output that are kept of each step."""
CAUSES = 10
"""Lines from before them that are kept where they look like the cause: an older engine tells stderr before stdout."""

_LINE = re.compile(r"#(?P<number>\d+) (?P<rest>.*)", re.DOTALL)
_TIMED = re.compile(r"\d+\.\d+(?: (?P<text>.*))?$", re.DOTALL)
_FINISHED = re.compile(r"DONE (?P<seconds>[\d.]+)s$")
# The older client names each step by its digest as well; `...` ends what another step has interrupted.
_NOISE = re.compile(r"sha256:[0-9a-f]{64}$|\.\.\.$")
_LAYER = re.compile(r"(?P<place>\[(?:[^\]]+ )?\d+/\d+\]) (?P<command>(?!FROM ).*)")
_EXIT = re.compile(r"exit code: (\d+)")
# Not `-Werror`, nor the package `liberror-perl`.
_CAUSE = re.compile(
    r"(?<![\w-])(?:\w*errors?|fatal|cannot)(?![\w-])|(?<!\w)E:|(?<!\w)paddock:|^Killed\s*$|\b(?:NO_PUBKEY|EXPKEYSIG) ",
    re.IGNORECASE,
)
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


@dataclass(slots=True)
class DockerStep:
    name: str
    """The name as BuildKit writes it: `[stage 2/5] RUN make`."""
    state: Literal["running", "done", "cached", "failed", "canceled"] = "running"
    seconds: float = 0.0
    error: str = ""
    output: deque[str] = field(default_factory=lambda: deque(maxlen=MAX_LINES))
    causes: list[str] = field(default_factory=list)
    """The first lines that look like a cause and that `output` no longer holds."""
    started: float = field(default_factory=time.monotonic)

    def add_output(self, line: str) -> None:
        oldest = self.output[0] if len(self.output) == MAX_LINES else ""
        if len(self.causes) < CAUSES and oldest not in self.causes and _CAUSE.search(oldest):
            self.causes.append(oldest)
        self.output.append(line)

    @property
    def excerpt(self) -> list[str]:
        """Return the useful part of its output: lines that look like the cause, and the last lines."""
        causes = [line for line in self.causes if line not in self.output]
        return [*causes, *(["…"] if causes else []), *self.output]

    @property
    def makes_layer(self) -> bool:
        """Return whether it belongs to the Dockerfile and is more than its base."""
        return _LAYER.match(self.name) is not None

    @property
    def place(self) -> str:
        """`[stage 2/5]`; empty for a step of the engine's own."""
        match = _LAYER.match(self.name)
        return match["place"] if match else ""

    @property
    def command(self) -> str:
        match = _LAYER.match(self.name)
        return match["command"] if match else self.name

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the command that failed; None where no command failed."""
        match = _EXIT.search(self.error)
        return int(match[1]) if match else None


class Steps:
    """The steps so far, and what was said outside of them."""

    def __init__(self) -> None:
        self._known: dict[str, DockerStep] = {}
        self.outside: deque[str] = deque(maxlen=MAX_LINES)

    def read(self, line: str) -> DockerStep | None:
        """The step that the line is about, as it is after it."""
        line = _ESCAPES.sub("", line.rstrip("\r"))
        match = _LINE.match(line)
        if not match:
            if line.strip():
                self.outside.append(line)
            return None
        number, rest = match["number"], match["rest"]
        if number not in self._known:
            self._known[number] = DockerStep(rest)
        elif rest != self._known[number].name and not _NOISE.match(rest):
            _update(self._known[number], rest)
        return self._known[number]

    @property
    def failed(self) -> DockerStep | None:
        """The one that ended the build. A cache that cannot be read fails as well, and ends nothing."""
        failed = [step for step in self._all if step.state == "failed" and "cache manifest" not in step.name]
        return next((step for step in failed if step.makes_layer), failed[-1] if failed else None)

    @property
    def running(self) -> list[DockerStep]:
        return [step for step in self._all if step.state == "running"]

    @property
    def layers(self) -> list[DockerStep]:
        """The steps of the Dockerfile, of all its stages, without their bases."""
        return [step for step in self._all if step.makes_layer]

    @property
    def _all(self) -> list[DockerStep]:
        return list(self._known.values())  # a copy: the terminal's thread looks while lines are read


def _update(step: DockerStep, text: str) -> None:
    if finished := _FINISHED.match(text):
        step.seconds = float(finished["seconds"])
        if step.state == "running":  # one that was made of the cache may end a second time, with DONE
            step.state = "done"
    elif text == "CACHED":
        step.state = "cached"
    elif text == "CANCELED":
        step.state = "canceled"
    elif text.startswith("ERROR"):
        step.state, step.error = "failed", text.removeprefix("ERROR").lstrip(": ")
    else:
        timed = _TIMED.match(text)
        output = (timed["text"] or "") if timed else text
        step.add_output(output.rpartition("\r")[2])  # a bar that a program draws over and over is one line
