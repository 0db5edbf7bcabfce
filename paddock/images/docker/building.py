"""One build: the client's command, its progress, and the message when it fails."""

from __future__ import annotations

import re
import textwrap
import time
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from paddock.images.docker import folders, problems, process
from paddock.images.docker.model import Built
from paddock.images.docker.show import Progress, Show
from paddock.images.docker.steps import DockerStep, Steps
from paddock.images.errors import BuildError, BuildInputError

LOGS_KEPT = 10
_PARTS = re.compile(
    r"^ERROR: |failed to build: |failed to solve(?: with frontend \S+)?: |rpc error: code = \w+ desc = "
    r"|failed to create LLB definition: "
)
_WIDE = 160
"""Characters of a command that are shown: a RUN may be a page."""


def build(
    command: Sequence[str], environ: Mapping[str, str], context: Path, known_as: str, progress: Progress
) -> Built:
    """Runs `command`, a build of docker without its context, which a user knows as `known_as`.

    Raises BuildError with the step that failed, its exit code and its last lines, or with the engine's own trouble.
    """
    if not (context / "Dockerfile").is_file():
        raise BuildInputError(
            f"there is no Dockerfile in {context}\n    expected: a folder with a Dockerfile and what it copies"
            "\n    fix: see how the path is written"
        )
    started = time.monotonic()
    steps = Steps()
    # Attestations would make an index of every image, with another digest for each build of the same content.
    environ = {**environ, "DOCKER_BUILDKIT": "1", "BUILDX_NO_DEFAULT_ATTESTATIONS": "1"}
    with _log(environ, context) as log, Show(progress, lambda: _under_way(steps)) as show:
        reported: set[int] = set()

        def read(line: str) -> None:
            show.line(line)
            log.write(f"{line}\n")
            step = steps.read(line)
            if step and step.makes_layer and step.state in ("done", "cached", "failed") and id(step) not in reported:
                reported.add(id(step))
                how = f"{step.seconds:.1f} s" if step.state == "done" else step.state
                show.ended(how, f"{step.place} {_short(step.command)}")

        if process.follow([*command, "--progress", "plain", str(context)], environ, read):
            raise _failure(steps, f"{known_as}/Dockerfile", log.name)
    cached = sum(step.state == "cached" for step in steps.layers)
    return Built(round(time.monotonic() - started, 2), len(steps.layers), cached)


def _under_way(steps: Steps) -> str:
    """The step that has run the longest, with its seconds and its last words."""
    running = steps.running
    if not running:
        return "building"
    step = next((running_step for running_step in running if running_step.makes_layer), running[0])
    more = f" (and {len(running) - 1} more)" if len(running) > 1 else ""
    last_output = f"  {step.output[-1].strip()}" if step.output else ""
    return f"{time.monotonic() - step.started:6.0f} s  {step.place} {_short(step.command, 80)}{more}{last_output}"


def _failure(steps: Steps, dockerfile: str, log: str) -> BuildError:
    step = steps.failed
    whole = f"\n    the whole log: {log}"
    if step is not None and step.makes_layer:
        return _step_failed(step, dockerfile, whole)
    message = step.error if step else _last(steps.outside)
    problem = problems.base(message, f"cannot build {dockerfile}")
    fix = f"\n    fix: correct {dockerfile} where the log names a line of it; else run again"
    fix = "" if "\n    fix: " in str(problem) else fix
    return type(problem)(f"{problem}{fix}{whole}")


def _step_failed(step: DockerStep, dockerfile: str, whole: str) -> BuildError:
    how = f"failed with exit code {step.exit_code}" if step.exit_code is not None else f"failed: {step.error}"
    lines = [f"cannot build {dockerfile}: step {step.place} {how}", f"    command: {_short(step.command)}"]
    lines += [f"    | {line}" for line in step.excerpt]
    hint = problems.hint("\n".join([step.error, *step.excerpt]))
    fix = f"\n    fix: correct this step of {dockerfile}, or what it takes; run again where only a download failed"
    return BuildError("\n".join(lines) + (hint or fix) + whole)


def _last(outside: deque[str]) -> str:
    """Return the error of a build that failed before its first step, without the names of BuildKit's parts."""
    message = next((line for line in reversed(outside) if "failed to solve" in line), outside[-1] if outside else "")
    return _PARTS.sub("", message)


def _short(text: str, width: int = _WIDE) -> str:
    return textwrap.shorten(text, width, placeholder=" …")


def _log(environ: Mapping[str, str], context: Path) -> IO[str]:
    """A new file, of which the last few stay."""
    folder = folders.logs(environ)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(folder.glob("*.log"))[: -LOGS_KEPT + 1]:
            old.unlink(missing_ok=True)
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}-{context.resolve().name}.log"
        return open(folder / name, "w", encoding="utf-8")
    except OSError as error:
        raise BuildInputError(
            f"cannot keep the log of a build in {folder}: {error.strerror}"
            "\n    expected: a folder that may be written\n    fix: set XDG_CACHE_HOME to one"
        ) from None
