"""One stack of a project, by Pulumi's CLI: what it holds, its configuration, and runs that change it.

The CLI and not `pulumi.automation`: that merges this process's environment into the run, can neither interrupt nor end
one, and passes secrets as arguments, where every process of the machine can read them.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any, Literal

from paddock.errors import PaddockError, one_line
from paddock.messages import explain
from paddock.pulumi_cli.events import UNCHANGED, Diagnostic, ResourceStep, Violation, event, unfinished
from paddock.pulumi_cli.run import Finished, run

Operation = Literal["preview", "up", "refresh", "destroy"]
Notify = Callable[[str], None]
RELEASE = "kubernetes:helm.sh/v3:Release"
NO_STACK = "no stack named"
"""Words of the backend where it does not have the stack."""
_QUICK = 120.0
"""Seconds for a command that reads the stack's state or changes its configuration."""
_STREAM = {"PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true"}
"""Events of a preview while it runs, as of every other run. The one document at its end does not hold policies."""
_INTERRUPTED = "interrupted: Pulumi finishes what it is making; a second Ctrl-C ends it at once"
_YES = ("--yes", "--skip-preview")
_MOST = 5
"""Reasons of a failure that its message names."""
_WORDS = {
    "create": "created",
    "create-replacement": "created again",
    "delete": "deleted",
    "delete-replaced": "deleted",
    "discard": "forgot",
    "replace": "replaced",
    "update": "updated",
}


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the stack's state."""

    urn: str
    type: str
    id: str = ""
    protect: bool = False
    retained: bool = False
    """True where the thing itself stays when Pulumi forgets it."""
    inputs: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    """Secrets in it are ciphertext."""

    @property
    def title(self) -> str:
        return title(self.urn)


@dataclass(frozen=True, slots=True)
class Run:
    """A run, or a preview of one."""

    operation: Operation
    steps: tuple[ResourceStep, ...] = ()
    """Changes that it made, or would make; without those that failed."""
    diagnostics: tuple[Diagnostic, ...] = ()
    violations: tuple[Violation, ...] = ()
    """Of the policies of the run."""
    seconds: float = 0.0
    log: str = field(default="", repr=False)
    """The whole output."""

    def touched(self, *operations: str) -> list[str]:
        """Return the URNs of resources with one of these operations, each once."""
        return list(dict.fromkeys(step.urn for step in self.steps if step.operation in operations))

    @property
    def changes(self) -> dict[str, tuple[str, ...]]:
        """Return the operations on each changed resource, in order, by URN."""
        operations: dict[str, tuple[str, ...]] = {}
        for step in self.steps:
            operations[step.urn] = (*operations.get(step.urn, ()), step.operation)
        return operations


class PulumiMissing(PaddockError):
    """Pulumi's program is not on PATH."""

    exit_code = 2


class PulumiError(PaddockError):
    """Pulumi cannot be run, or a run failed; `run` is what it did until then."""

    def __init__(self, message: str, fix: str = "", run: Run | None = None) -> None:
        super().__init__(message)
        self.fix, self.run = fix, run


class RunInterrupted(Exception):
    """Ctrl-C ended a run, after what it was making; `run` is what it did."""

    def __init__(self, run: Run) -> None:
        super().__init__("interrupted")
        self.run = run


@dataclass(slots=True)
class Pulumi:
    """One stack, for one thread at a time. Every method raises PulumiMissing."""

    folder: Path
    """Has Pulumi.yaml."""
    stack: str
    program: str = field(default="pulumi", kw_only=True)
    environment: Mapping[str, str] | None = field(default=None, kw_only=True)
    """Takes the place of this process's, for an engine of its own."""
    limit: float | None = field(default=None, kw_only=True)
    """Seconds after which a run is interrupted."""
    patience: float | None = field(default=None, kw_only=True)
    """Seconds that a run has after Ctrl-C; without them it ends when it has finished what it is making."""

    def resources(self, seconds: float = _QUICK) -> tuple[Resource, ...]:
        """Return what the stack holds. Raises PulumiError, also where the backend does not have the stack."""
        try:
            deployment = json.loads(self.exported(seconds)).get("deployment") or {}
            return tuple(map(_resource, deployment.get("resources") or ()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PulumiError(
                f"pulumi stack export of {self.stack} is not of its form: {one_line(str(error))}"
            ) from None

    def exists(self) -> bool:
        """Return whether the backend has a stack of that name. Raises PulumiError."""
        try:
            self.exported()
        except PulumiError as error:
            if NO_STACK in str(error):
                return False
            raise
        return True

    def exported(self, seconds: float = _QUICK) -> str:
        """Return the stack's stored state; secrets in it stay encrypted. Raises PulumiError."""
        return self.command("stack", "export", seconds=seconds)

    def secret(self, key: str, seconds: float = _QUICK) -> str:
        """Return a secret of the stack's configuration, which Pulumi decrypts. Raises PulumiError, with none of it."""
        return self.command("config", "get", key, seconds=seconds).strip()

    def preview(self, notify: Notify = lambda text: None) -> Run:
        """Return what `up` would do. Raises PulumiError, RunInterrupted."""
        return self.run("preview", notify=notify)

    def preview_destroy(self, *, exclude: Sequence[str] = (), protected: bool = False) -> Run:
        """Return what `destroy` would delete, without what is protected unless `protected`."""
        return self.run("destroy", "--preview-only", *_destroy(exclude, protected))

    def up(self, notify: Notify, *, targets: Sequence[str] = (), replace: Sequence[str] = ()) -> Run:
        """Apply the program, of these resources alone where there are any. Raises PulumiError, RunInterrupted."""
        return self.run("up", *_YES, *_flags("--target", targets), *_flags("--replace", replace), notify=notify)

    def destroy(
        self, notify: Notify, *, targets: Sequence[str] = (), exclude: Sequence[str] = (), protected: bool = False
    ) -> Run:
        """Delete these resources with all that depends on them, or everything. Raises PulumiError, RunInterrupted."""
        chosen = [*_flags("--target", targets), "--target-dependents"] if targets else _destroy(exclude, protected)
        return self.run("destroy", *_YES, *chosen, notify=notify)

    def run(
        self,
        operation: Operation,
        *words: str,
        notify: Notify = lambda text: None,
        on_step: Callable[[ResourceStep], None] = lambda step: None,
    ) -> Run:
        """Run an operation with these further words. Raises PulumiError, RunInterrupted.

        In a thread of its own, `notify` is called with a line for each change, and `on_step` with every finished step.
        """
        items: list[ResourceStep | Diagnostic | Violation] = []

        def read(line: str) -> None:
            item = event(line)
            if item:
                items.append(item)
            if isinstance(item, ResourceStep):
                on_step(item)
                if item.failed or item.operation not in UNCHANGED:
                    notify(_described(item))

        began = time.monotonic()
        command = [operation, "--json", *words]
        finished = self._start(
            command, self.limit, more=_STREAM, on_line=read, on_interrupt=lambda: notify(_INTERRUPTED)
        )
        done = Run(
            operation,
            tuple(i for i in items if isinstance(i, ResourceStep) and not i.failed and i.operation not in UNCHANGED),
            tuple(item for item in items if isinstance(item, Diagnostic)),
            tuple(item for item in items if isinstance(item, Violation)),
            time.monotonic() - began,
            finished.output + finished.errors,
        )
        if finished.interrupted:
            raise RunInterrupted(done)
        if finished.code:
            raise self._failed(done, finished)
        return done

    def command(self, *words: str, stdin: str = "", seconds: float = _QUICK) -> str:
        """Return the output of a command that makes no run. Raises PulumiError.

        What is secret goes in by `stdin`, never by `words`.
        """
        finished = self._start(words, seconds, stdin=stdin)
        if finished.interrupted:
            raise KeyboardInterrupt
        if finished.code:
            diagnostic = f"pulumi {' '.join(words[:2])} failed: {_last(finished.errors, finished.code)}"
            known = explain("pulumi", finished.errors, stack=self.stack)
            raise PulumiError(diagnostic, known.fix if known else f"pulumi stack --stack {self.stack}")
        return finished.output

    def _start(
        self,
        words: Sequence[str],
        limit: float | None,
        *,
        stdin: str = "",
        more: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
        on_interrupt: Callable[[], None] = lambda: None,
    ) -> Finished:
        common = ["--non-interactive", "--color", "never", "--stack", self.stack]
        inherited = os.environ if self.environment is None else self.environment
        environment = {**inherited, "PULUMI_SKIP_UPDATE_CHECK": "true", **(more or {})}
        try:
            return run(
                [self._path(), *words, *common],
                self.folder,
                environment,
                stdin=stdin,
                limit=limit,
                patience=self.patience,
                on_line=on_line,
                on_interrupt=on_interrupt,
            )
        except subprocess.TimeoutExpired as late:
            waited = ", ".join(map(title, unfinished(str(late.output))))
            took = f"pulumi {' '.join(words[:2])} of {self.stack} did not end within {limit:.0f} s and was interrupted"
            raise PulumiError(took + (f" while it waited for {waited}" if waited else ""), "run it again") from None

    def _path(self) -> str:
        path = which(self.program, path=(self.environment or os.environ).get("PATH"))
        if path is None:
            raise PulumiMissing(
                f"{self.program} is not on PATH\n    expected: Pulumi's program"
                "\n    fix: https://www.pulumi.com/docs/install/"
            )
        return path

    def _failed(self, done: Run, finished: Finished) -> PulumiError:
        """Return the error of a run, with the reasons that its diagnostics and policies give."""
        what = f"pulumi {done.operation} of {self.stack}"
        if finished.code < 0:
            return PulumiError(f"{what} was killed", f"pulumi cancel --stack {self.stack}, then run it again", done)
        errors = [item for item in done.diagnostics if item.severity == "error" and item.message]
        plain = [line for line in done.log.splitlines() if not line.startswith("{")]  # what is not an event
        known = explain("pulumi", "\n".join([*(item.message for item in errors), *plain]), stack=self.stack)
        if known and known.row.id == "stack-locked":  # what follows it in the log is only that nothing was done
            return PulumiError(f"{what} failed: {known.cause}", known.fix, done)
        reasons = [f"{title(item.urn)}: {item.message}" if item.urn else item.message for item in errors]
        reasons += [f"{item.policy}: {item.message}" for item in done.violations if item.mandatory]
        reasons = list(dict.fromkeys(map(one_line, reasons))) or [_last(finished.errors, finished.code)]
        more = f"; and {len(reasons) - _MOST} more" if len(reasons) > _MOST else ""
        message = f"{what} failed: {'; '.join(reasons[:_MOST])}{more}"
        fix = f"pulumi {done.operation} --stack {self.stack}, which says more"
        return PulumiError(f"{message}; {known.cause}" if known else message, known.fix if known else fix, done)


def title(urn: str) -> str:
    """Return type and name of a resource, such as `eks NodeGroup t4-spot`."""
    kind, _, name = urn.split("::", 2)[-1].partition("::")
    own = kind.rpartition("$")[2]
    package = own.partition(":")[2].partition("/")[0].partition(":")[0]
    parts = () if own.startswith(("kubernetes:", "paddock:", "pulumi:")) else (package,)
    return " ".join((*parts, own.rpartition(":")[2], name))


def _resource(data: Mapping[str, Any]) -> Resource:
    return Resource(
        str(data["urn"]),
        str(data["type"]),
        str(data.get("id") or ""),
        bool(data.get("protect")),
        bool(data.get("retainOnDelete")),
        data.get("inputs") or {},
    )


def _described(step: ResourceStep) -> str:
    if step.failed:
        return f"pulumi: could not {step.operation} {title(step.urn)}"
    return f"pulumi: {_WORDS.get(step.operation, step.operation)} {title(step.urn)}"


def _flags(flag: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]


def _destroy(exclude: Sequence[str], protected: bool) -> list[str]:
    return ["--ignore-protect" if protected else "--exclude-protected", *_flags("--exclude", exclude)]


def _last(errors: str, code: int) -> str:
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    return one_line(next((line for line in lines if line.startswith("error:")), lines[-1] if lines else f"exit {code}"))
