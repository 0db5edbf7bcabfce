"""Work in phases, one after the other: the first that fails ends it, and the report says what is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from paddock.errors import PaddockError
from paddock.operate.report import OfFleet, code, part
from paddock.operate.sources.unavailable import Unavailable
from paddock.pulumi_cli.stack import Notify, PulumiError, Resource, Run, RunInterrupted

State = Literal["done", "unchanged", "planned", "failed", "interrupted"]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One part of the work, and what became of it."""

    name: str
    state: State
    message: str
    details: tuple[str, ...] = ()
    fix: str = ""


def planned(phases: Iterable[tuple[str, str]]) -> tuple[Phase, ...]:
    """Return phases that would come: names with what they would do."""
    return tuple(Phase(name=name, state="planned", message=message) for name, message in phases)


@dataclass(frozen=True, kw_only=True)
class PhasedWork(OfFleet):
    """Base of reports of work in phases. Phases that were not reached are not in it."""

    context: str | None
    at: datetime
    seconds: float
    phases: tuple[Phase, ...] = ()
    interrupted: bool = False
    next: str = ""
    """Command that continues, or undoes it."""

    @property
    def failed(self) -> bool:
        return any(phase.state in ("failed", "interrupted") for phase in self.phases)

    @property
    def exit_code(self) -> int:
        return code(interrupted=self.interrupted, failed=self.failed)

    def phase_lines(self) -> Iterator[str]:
        """Yield a line a phase, what it stopped at, and the command that continues."""
        for phase in self.phases:
            details = phase.details if phase.state in ("failed", "interrupted") else ()
            yield from part(phase.state, f"{phase.name}: {phase.message}", phase.fix, details)
        if self.next:
            yield f"  {self.next}"


class Refused(PaddockError):
    """The work is not begun, and nothing was changed."""


@contextmanager
def refusing() -> Iterator[None]:
    """Raise Refused for what goes wrong before anything was changed, KeyboardInterrupt where Pulumi was interrupted."""
    try:
        yield
    except (Unavailable, PulumiError, PhaseFailed) as error:
        raise Refused(f"{error}\n    fix: {error.fix}" if error.fix else str(error)) from None
    except RunInterrupted:
        raise KeyboardInterrupt from None


class Stack(Protocol):
    """Interface to the stack's engine, which is `pulumi_cli.stack.Pulumi`."""

    def resources(self) -> tuple[Resource, ...]: ...

    def preview(self, notify: Notify = ...) -> Run: ...

    def preview_destroy(self, *, exclude: list[str] = ..., protected: bool = ...) -> Run: ...

    def up(self, notify: Notify, *, targets: list[str] = ..., replace: list[str] = ...) -> Run: ...

    def destroy(
        self, notify: Notify, *, targets: list[str] = ..., exclude: list[str] = ..., protected: bool = ...
    ) -> Run: ...


class PhaseFailed(PaddockError):
    """A phase cannot be finished; `details` are the things at which it stopped."""

    def __init__(self, message: str, fix: str = "", details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.fix, self.details = fix, details


@dataclass(frozen=True, slots=True)
class Done:
    """Result of a phase. Without `changed` there was nothing to do."""

    message: str
    details: tuple[str, ...] = ()
    changed: bool = True


@dataclass
class Course:
    """Phases of one command. `tell` is called with a line for each step."""

    notify: Notify
    phases: list[Phase] = field(default_factory=list)
    interrupted: bool = False

    @property
    def stopped(self) -> bool:
        return self.interrupted or any(phase.state == "failed" for phase in self.phases)

    def run(self, name: str, work: Callable[[], Done]) -> None:
        """Run a phase, unless one before it failed or was interrupted."""
        if self.stopped:
            return
        self.notify(f"{name} ...")
        try:
            done = work()
        except PhaseFailed as error:
            self._add(Phase(name=name, state="failed", message=str(error), details=error.details, fix=error.fix))
        except Unavailable as error:
            self._add(Phase(name=name, state="failed", message=str(error), fix=error.fix))
        except PulumiError as error:
            self._add(Phase(name=name, state="failed", message=str(error), details=steps(error.run), fix=error.fix))
        except (RunInterrupted, KeyboardInterrupt) as error:
            self.interrupted = True
            done_before = steps(error.run) if isinstance(error, RunInterrupted) else ()
            self._add(Phase(name=name, state="interrupted", message="interrupted by Ctrl-C", details=done_before))
        else:
            state: State = "done" if done.changed else "unchanged"
            self._add(Phase(name=name, state=state, message=done.message, details=done.details))

    def _add(self, phase: Phase) -> None:
        self.phases.append(phase)
        self.notify(f"{phase.name}: {phase.state}: {phase.message}")


def steps(run: Run | None) -> tuple[str, ...]:
    """Return a line of what a run did until it ended early, where it did anything."""
    if run is None or not run.steps:
        return ()
    return (f"Pulumi had done {len(run.steps)} steps, and its state has them",)


_OUTAGES = 5
"""Readings of the cluster that may fail one after the other during a wait of hours."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Waits for the cluster. `sleep` and `clock` are the test's in a test."""

    poll: float = 5.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def until(self, pending: Callable[[], str], seconds: float, notify: Notify) -> str:
        """Poll until nothing is awaited, sooner at first; return what is still awaited at the deadline, or nothing.

        Raises Unavailable where the cluster cannot be read several times in a row.
        """
        deadline, last, failed, pause = self.clock() + seconds, "", 0, self.poll / 10
        while True:
            try:
                awaited, failed = pending(), 0
            except Unavailable as error:
                failed += 1
                if failed == _OUTAGES:
                    raise
                awaited = f"the cluster cannot be read: {error}"
            if not awaited:
                return ""
            if self.clock() >= deadline:
                return awaited
            if awaited != last:
                notify(awaited)
                last = awaited
            self.sleep(min(pause, max(0.0, deadline - self.clock())))
            pause = min(self.poll, 2 * pause)
