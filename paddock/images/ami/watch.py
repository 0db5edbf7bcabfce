"""Follows a build in Image Builder to its end, and says why it failed. All state is in AWS, so anyone can continue."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from paddock.aws.client import Aws
from paddock.aws.errors import AwsError
from paddock.console.progress import Progress
from paddock.images.ami import pipeline
from paddock.images.ami.pipeline import Build, BuildStep
from paddock.images.errors import BuildError

LOG_LINES = 25
SLOWEST_S = 120.0
"""Most seconds between two questions while AWS throttles or does not answer."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The interval between polls of a build, its time limit, and the longest time without an answer from AWS."""

    every_s: float = 15.0
    at_most_s: float = 3 * 3600.0
    silence_s: float = 15 * 60.0
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class FinishedBuild:
    """A build that has ended, with its steps."""

    build: Build
    steps: tuple[BuildStep, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a build made no image. `log` are the last lines of its log; empty with the reason in `no_log`."""

    text: str
    step: BuildStep | None
    log: tuple[str, ...]
    no_log: str


def watch(aws: Aws, arn: str, progress: Progress, pace: Pace) -> FinishedBuild:
    """Looks until the build has ended.

    Raises BuildError where it takes longer than `pace.at_most_s`, and what `Aws` raises; the build is unaffected.
    """
    started = last_answer = pace.now()
    wait, statuses = pace.every_s, dict[str, str]()
    while True:
        try:
            # In this order: once the build has ended its steps have too.
            build = pipeline.read(aws, arn)
            steps = pipeline.steps(aws, arn)
        except AwsError as error:
            if not error.transient or pace.now() - last_answer > pace.silence_s:
                raise
            wait = min(wait * 2, SLOWEST_S)
            progress.say(f"{str(error).splitlines()[0]}; asking again in {wait:.0f} s")
        else:
            last_answer, wait = pace.now(), pace.every_s
            _report(build, steps, statuses, progress)
            if build.ended:
                return FinishedBuild(build, steps)
        if pace.now() - started >= pace.at_most_s:
            raise BuildError(f"the build has not ended after {duration(pace.at_most_s)}")
        pace.sleep(wait)


def why_failed(aws: Aws, finished: FinishedBuild) -> Failure:
    """The step that failed, what it said, and the end of the build's log."""
    build = finished.build
    failed = [step for step in finished.steps if step.status == "FAILED"]
    step = next((step for step in failed if step.id == build.failed_step), failed[0] if failed else None)
    log, no_log = _log(aws, build)
    parts = [_step_error(aws, step) if step else "", build.failure, build.reason]
    reasons = dict.fromkeys(_clean(part, 600) for part in parts if part)
    lines = [
        f"the build of {build.name} {build.version} "
        + (f"failed in step {step.name} ({step.workflow})" if step else f"ended as {build.status}"),
        *(f"    {line}" for line in reasons),
        *([f"    the end of its log ({build.log_group}, {build.version}):"] if log else []),
        *(f"      {line}" for line in log),
        *([f"    its log: {no_log}"] if no_log else []),
    ]
    return Failure("\n".join(lines), step, log, no_log)


def _report(build: Build, steps: tuple[BuildStep, ...], statuses: dict[str, str], progress: Progress) -> None:
    """A line for each step whose status is new since the last look."""
    for step in steps:
        if step.status == "PENDING" or statuses.get(step.id) == step.status:
            continue
        statuses[step.id] = step.status
        at = step.ended or step.started
        since = duration((at - build.started).total_seconds()) if at and build.started else ""
        took = f" after {duration(step.seconds)}" if step.seconds is not None else ""
        progress.say(f"{since:>8}  {step.workflow:<12}  {step.name}  {step.status.lower()}{took}")
    under_way = [step.name for step in steps if step.status == "RUNNING"]
    if sys.stderr.isatty():
        began = build.started
        passed = duration((datetime.now(began.tzinfo) - began).total_seconds()) if began else ""
        progress.now(f"{passed:>8}  {'  '.join([build.status.lower(), *under_way])}")


def duration(seconds: float | None) -> str:
    """Return `3:05` or `1:02:31`; empty for None."""
    if seconds is None:
        return ""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _step_error(aws: Aws, step: BuildStep) -> str:
    try:
        return pipeline.step_error(aws, step.id) or step.message
    except AwsError:
        return step.message


def _log(aws: Aws, build: Build) -> tuple[tuple[str, ...], str]:
    """The last lines, or why there are none."""
    try:
        answer = aws.ask(
            "logs",
            "get_log_events",
            logGroupName=build.log_group,
            logStreamName=build.version,
            limit=LOG_LINES,
            startFromHead=False,
        )
    except AwsError as error:
        if error.code == "ResourceNotFoundException":
            where = f"{build.log_group}, stream {build.version}"
            return (), f"there is none in {where}; a build that fails before its instance runs leaves none"
        return (), str(error).splitlines()[0]
    lines = [_clean(line, 300) for event in answer.get("events") or () for line in event["message"].splitlines()]
    lines = [line for line in lines if line]
    return tuple(lines[-LOG_LINES:]), "" if lines else f"{build.log_group}, stream {build.version} is empty"


def _clean(text: str, most: int) -> str:
    """Return text as one line that is safe to show on a terminal."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."
