"""Pulumi's CLI on one stack of the project: what the stack holds, and runs that change it.

The CLI and not `pulumi.automation`: that merges this process's environment into the run and cannot interrupt one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from threading import Thread
from typing import IO, Any, Literal

from paddock import process
from paddock.errors import PaddockError, one_line
from paddock.plan.engine.events import UNCHANGED, Diagnostic, Step, Violation, event
from paddock.terminal import BadFlag

Operation = Literal["preview", "up", "destroy"]
Notify = Callable[[str], None]
RELEASE = "kubernetes:helm.sh/v3:Release"
_QUICK = 120.0
"""Seconds for a command that reads the stack's state."""
_GRACE = 30.0
"""Seconds from a second Ctrl-C to the end of Pulumi."""
_STREAM = {"PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true"}
"""Events of a preview while it runs, as of every other run, instead of one document at its end."""
_WORDS = {
    "create": "created",
    "create-replacement": "created anew",
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
    """Changes that a run made, or a preview would make."""

    operation: Operation
    steps: tuple[Step, ...] = ()

    def touched(self, *operations: str) -> list[str]:
        """Return the URNs of resources with one of these operations, each once."""
        return list(dict.fromkeys(step.urn for step in self.steps if step.operation in operations))


class PulumiError(PaddockError):
    """Pulumi cannot be run, or a run failed; `run` is what it did until then."""

    def __init__(self, message: str, fix: str = "", run: Run | None = None) -> None:
        super().__init__(message)
        self.fix, self.run = fix, run


class Interrupted(Exception):
    """Ctrl-C ended a run, after what it was making; `run` is what it did."""

    def __init__(self, run: Run) -> None:
        super().__init__("interrupted")
        self.run = run


class Pulumi:
    """One stack. For one thread at a time."""

    def __init__(
        self, folder: Path, stack: str, *, program: str = "pulumi", environment: Mapping[str, str] | None = None
    ) -> None:
        """`folder` has Pulumi.yaml. `environment` takes the place of this process's, for an engine of its own."""
        self.folder, self.stack, self.program = folder, stack, program
        self.environment = environment

    def resources(self) -> tuple[Resource, ...]:
        """Return what the stack holds. Raises BadFlag, and PulumiError, also where the backend has no such stack."""
        out = self._quick("stack", "export")
        try:
            deployment = json.loads(out).get("deployment") or {}
            return tuple(map(_resource, deployment.get("resources") or ()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise PulumiError(
                f"pulumi stack export of {self.stack} is not of its form: {one_line(str(error))}"
            ) from None

    def exists(self) -> bool:
        """Return whether the backend has a stack of that name. Raises PulumiError and BadFlag."""
        try:
            self._quick("stack", "export")
        except PulumiError as error:
            if "no stack named" in str(error):
                return False
            raise
        return True

    def preview(self, notify: Notify = lambda text: None) -> Run:
        """Return what `up` would do. Raises PulumiError, Interrupted."""
        return self._run("preview", [], notify, _STREAM)

    def preview_destroy(
        self, *, exclude: Sequence[str] = (), protected: bool = False, notify: Notify = lambda text: None
    ) -> Run:
        """Return what `destroy` would delete, without what is protected unless `protected`."""
        return self._run("destroy", ["--preview-only", *_destroy(exclude, protected)], notify, _STREAM)

    def up(self, notify: Notify, *, targets: Sequence[str] = (), replace: Sequence[str] = ()) -> Run:
        """Apply the program, of these resources alone where there are any. Raises PulumiError, Interrupted."""
        words = ["--yes", "--skip-preview", *_flags("--target", targets), *_flags("--replace", replace)]
        return self._run("up", words, notify)

    def destroy(
        self, notify: Notify, *, targets: Sequence[str] = (), exclude: Sequence[str] = (), protected: bool = False
    ) -> Run:
        """Delete these resources with all that depends on them, or everything. Raises PulumiError, Interrupted."""
        chosen = [*_flags("--target", targets), "--target-dependents"] if targets else _destroy(exclude, protected)
        return self._run("destroy", ["--yes", "--skip-preview", *chosen], notify)

    def _run(
        self, operation: Operation, words: Sequence[str], notify: Notify, more: Mapping[str, str] | None = None
    ) -> Run:
        steps: list[Step] = []
        problems: list[str] = []

        def read(line: str) -> None:
            match event(line):
                case Step() as step if step.operation not in UNCHANGED or step.failed:
                    steps.append(step)
                    notify(_described(step))
                case Diagnostic(severity="error") as diagnostic:
                    problems.append(
                        f"{title(diagnostic.urn)}: {diagnostic.message}" if diagnostic.urn else diagnostic.message
                    )
                case Violation(mandatory=True) as broken:
                    problems.append(f"{broken.policy}: {broken.message}")

        command = [self._path(), operation, "--json", "--non-interactive", "--color", "never", "--stack", self.stack]
        code, errors, interrupted = self._stream([*command, *words], read, notify, more)
        run = Run(operation, tuple(step for step in steps if not step.failed))
        if interrupted:
            raise Interrupted(run)
        if code:
            reasons = list(dict.fromkeys(one_line(text) for text in problems if text)) or [_last(errors, code)]
            raise PulumiError(
                f"pulumi {operation} failed: {'; '.join(reasons[:3])}", _fix(errors, operation, self), run
            )
        return run

    def _stream(
        self, command: Sequence[str], read: Callable[[str], None], notify: Notify, more: Mapping[str, str] | None
    ) -> tuple[int, str, bool]:
        """Run to the end; return exit code, standard error, and whether Ctrl-C came. It has a session of its own."""
        running = process.launch(
            command,
            cwd=self.folder,
            env=self._with(more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        out, errors = _Reader(running.stdout, read), _Reader(running.stderr)
        interrupted = False
        try:
            while True:
                try:
                    running.wait()
                    break
                except KeyboardInterrupt:
                    running.send_signal(signal.SIGINT)
                    if interrupted:  # Pulumi, too, ends at once at the second
                        break
                    interrupted = True
                    notify("interrupted: Pulumi finishes what it is making; a second Ctrl-C ends it at once")
        finally:
            if running.poll() is None:
                try:
                    running.wait(_GRACE)
                except (subprocess.TimeoutExpired, KeyboardInterrupt):
                    running.kill()
                    running.wait()
            process.end(lambda: process.session_members(running.pid))
        out.join()
        return running.returncode, errors.text, interrupted

    def _quick(self, *words: str) -> str:
        command = [self._path(), *words, "--non-interactive", "--stack", self.stack]
        try:
            done = subprocess.run(
                command,
                cwd=self.folder,
                env=self._with(None),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_QUICK,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PulumiError(f"pulumi {' '.join(words)} did not end within {_QUICK:.0f} s", "pulumi whoami") from None
        if done.returncode:
            diagnostic = f"pulumi {' '.join(words)} failed: {_last(done.stderr, done.returncode)}"
            raise PulumiError(diagnostic, f"pulumi stack --stack {self.stack}")
        return done.stdout

    def _path(self) -> str:
        path = which(self.program, path=(self.environment or os.environ).get("PATH"))
        if path is None:
            raise BadFlag(
                f"{self.program} is not on PATH\n    expected: Pulumi's program"
                "\n    fix: https://www.pulumi.com/docs/install/"
            )
        return path

    def _with(self, more: Mapping[str, str] | None) -> dict[str, str]:
        own = {"PULUMI_SKIP_UPDATE_CHECK": "true"}
        return {**(os.environ if self.environment is None else self.environment), **own, **(more or {})}


class _Reader(Thread):
    """Lines of a running program; without a function they are kept."""

    def __init__(self, stream: IO[str] | None, read: Callable[[str], None] | None = None) -> None:
        super().__init__(daemon=True)
        assert stream is not None  # noqa: S101 - the program was started with pipes
        self._stream, self._lines = stream, list[str]()
        self._read = read or self._lines.append
        self.start()

    def run(self) -> None:
        with self._stream:
            for line in self._stream:
                self._read(line)

    @property
    def text(self) -> str:
        self.join()
        return "".join(self._lines)


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


def _described(step: Step) -> str:
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


def _fix(errors: str, operation: str, stack: Pulumi) -> str:
    if "is currently locked" in errors:
        return f"pulumi cancel --stack {stack.stack}, where no other run is under way (docs/interrupted.md)"
    return f"pulumi {operation} --stack {stack.stack}, which says more"
