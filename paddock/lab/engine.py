"""The real Pulumi engine, applied to our own program with stand-ins for the providers.

Everything is in one state folder: project, backend, plugins, what the stand-ins made. Nothing asks the network, nothing
is installed, and nothing of the user's own Pulumi or AWS settings is read.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from pulumi.runtime import rpc

import paddock
from paddock.lab import programs
from paddock.lab.errors import LabError, LabInputError
from paddock.lab.providers.aws import ACCOUNT, KUBECONFIG
from paddock.lab.providers.faults import VARIABLE as FAULTS
from paddock.lab.providers.server import STORE
from paddock.plan.values import UNKNOWN, Secret

ROOT = Path(paddock.__file__).resolve().parent.parent
STAND_INS = ("aws", "eks", "kubernetes")
KUBERNETES_PLUGIN = "pulumi-resource-kubernetes"
LIMIT = 600.0
"""Seconds after which a run is interrupted."""
_GRACE = 30.0

Operation = Literal["preview", "up", "refresh", "destroy"]


@dataclass(frozen=True, slots=True)
class Programs:
    """What the engine is made of, by path."""

    pulumi: Path
    language_host: Path
    kubernetes: Path | None
    """The real Kubernetes provider; None where it is not there."""

    @classmethod
    def find(cls) -> Programs:
        """On PATH, or in PADDOCK_LAB_BIN; the Kubernetes provider may lie in `plugins` beside that folder too."""
        found = programs.locate(("pulumi", "pulumi-language-python", KUBERNETES_PLUGIN))
        absent = [name for name in ("pulumi", "pulumi-language-python") if name not in found]
        if absent:
            raise LabInputError(
                f"the lab's engine needs {' and '.join(absent)}"
                "\n    fix: install Pulumi (pulumi.com/docs/install) and have it on PATH, or in PADDOCK_LAB_BIN"
            )
        beside = found["pulumi"].resolve().parent.parent / "plugins" / KUBERNETES_PLUGIN
        kubernetes = found.get(KUBERNETES_PLUGIN) or (beside if beside.is_file() else None)
        return cls(found["pulumi"], found["pulumi-language-python"], kubernetes)


@dataclass(frozen=True, slots=True)
class State:
    """A resource as the engine knows it. Secrets are wrapped and hold ciphertext or nothing; unknown is UNKNOWN."""

    urn: str
    type: str
    id: str
    parent: str
    custom: bool
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    provider: str
    protect: bool
    ignore_changes: tuple[str, ...]
    dependencies: tuple[str, ...]
    property_dependencies: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> State:
        return cls(
            urn=data["urn"],
            type=data["type"],
            id=data.get("id", ""),
            parent=data.get("parent", ""),
            custom=data.get("custom", False),
            inputs=_plain(data.get("inputs") or {}),
            outputs=_plain(data.get("outputs") or {}),
            provider=str(_plain(data.get("provider", ""))).replace(rpc.UNKNOWN, UNKNOWN),
            protect=data.get("protect", False),
            ignore_changes=tuple(data.get("ignoreChanges") or ()),
            dependencies=tuple(sorted(data.get("dependencies") or ())),
            property_dependencies={
                key: tuple(sorted(urns))
                for key, urns in sorted((data.get("propertyDependencies") or {}).items())
                if urns
            },
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What the engine does with a resource, or would do."""

    operation: str
    """create, update, delete, replace, create-replacement, delete-replaced, same, read, refresh."""
    urn: str
    state: State | None = None
    """As it is afterwards; only previews tell it."""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Diagnostic:
    severity: str
    message: str
    urn: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One run of the engine."""

    operation: Operation
    steps: tuple[Step, ...]
    diagnostics: tuple[Diagnostic, ...]
    seconds: float
    log: str = field(repr=False)
    """All that was printed."""

    @property
    def changes(self) -> dict[str, tuple[str, ...]]:
        """URN -> what happened to it, in order, for those to which something happened."""
        found: dict[str, tuple[str, ...]] = {}
        for step in self.steps:
            if step.operation not in ("same", "refresh", "read"):
                found[step.urn] = (*found.get(step.urn, ()), step.operation)
        return found

    @property
    def states(self) -> dict[str, State]:
        return {step.urn: step.state for step in self.steps if step.state is not None}


class EngineError(LabError):
    """The engine did not finish what it was told; the message is its own."""

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


class Engine:
    """A stack of the project at `root`, in a state folder of its own."""

    def __init__(
        self,
        state: Path,
        found: Programs,
        *,
        stack: str,
        root: Path = ROOT,
        kubeconfig: Path | None = None,
        real_kubernetes: bool | None = None,
        account: str | None = None,
    ) -> None:
        """`real_kubernetes` is for previews without a cluster; with a kubeconfig the real provider is the default."""
        self.state, self.programs, self.stack, self.root = state.resolve(), found, stack, root
        self.kubeconfig, self.account = kubeconfig, account
        self.real_kubernetes = kubeconfig is not None if real_kubernetes is None else real_kubernetes
        if self.real_kubernetes and found.kubernetes is None:
            raise LabInputError(
                f"{KUBERNETES_PLUGIN} is not there\n    fix: pulumi plugin install resource kubernetes, and have it in"
                " PADDOCK_LAB_BIN"
            )
        self.project = self.state / "project"
        self.store = self.state / "cloud" / f"{stack}.json"
        self.stack_file = self.project / f"Pulumi.{stack}.yaml"
        self.faults: list[Mapping[str, Any]] = []
        """Errors and delays that the stand-ins meet in the next runs; see `providers.faults`."""
        self._running: subprocess.Popen[str] | None = None

    def prepare(self, config: Mapping[str, Any] | None = None, secret: Mapping[str, str] | None = None) -> None:
        """Makes project and stack. `config` takes the place of the stack file's; `secret` values are encrypted."""
        for folder in (self.project, self.state / "backend", self.state / "home", self.store.parent):
            folder.mkdir(parents=True, exist_ok=True)
        passphrase = self.state / "passphrase"
        if not passphrase.exists():
            passphrase.touch(mode=0o600)
            passphrase.write_text(secrets.token_hex(16))
        self._write_project()
        if not self.stack_file.exists():
            written = yaml.safe_load((self.root / self.stack_file.name).read_text(encoding="utf-8"))
            self._write_stack(written["config"] if config is None else config)
            self._pulumi("stack", "init", self.stack, "--secrets-provider", "passphrase")
        elif config is not None:
            self.configure(config)
        for key, value in (secret or {}).items():
            self._pulumi("config", "set", "--secret", "--stack", self.stack, key, stdin=value)

    def configure(self, config: Mapping[str, Any]) -> None:
        """Changes the stack's configuration; encrypted values and their salt stay."""
        self._write_stack(config)

    def configuration(self) -> dict[str, Any]:
        """The stack's configuration in clear, without encrypted values."""
        written = yaml.safe_load(self.stack_file.read_text(encoding="utf-8"))["config"]
        return {key: value for key, value in written.items() if not _encrypted(value)}

    def preview(self) -> Result:
        return self._run("preview")

    def up(self) -> Result:
        return self._run("up", "--yes", "--skip-preview")

    def refresh(self) -> Result:
        return self._run("refresh", "--yes", "--skip-preview")

    def destroy(self, *, protected: bool = False) -> Result:
        """`protected` takes down what is protected too."""
        return self._run("destroy", "--yes", "--skip-preview", *(["--ignore-protect"] if protected else []))

    def export(self) -> dict[str, State]:
        """Everything in the stack, by URN. Secrets stay encrypted."""
        found = json.loads(self.exported())["deployment"].get("resources") or []
        return {resource["urn"]: State.of(resource) for resource in found}

    def exported(self) -> str:
        """The stack's state as it is kept."""
        return self._pulumi("stack", "export", "--stack", self.stack)

    def outputs(self, *, show_secrets: bool = False) -> dict[str, Any]:
        shown = ["--show-secrets"] if show_secrets else []
        found: dict[str, Any] = json.loads(self._pulumi("stack", "output", "--json", "--stack", self.stack, *shown))
        return found

    def interrupt(self) -> None:
        """Asks a run that is under way to stop: what is being made is finished, the rest is not begun."""
        if self._running is not None:
            self._running.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Ends a run that is under way at once, as a machine that loses its power does."""
        if self._running is not None:
            os.killpg(self._running.pid, signal.SIGKILL)

    def unlock(self) -> None:
        """Frees the stack after a run that was killed."""
        self._pulumi("cancel", "--yes", self.stack)

    def _run(self, operation: Operation, *arguments: str) -> Result:
        start = time.monotonic()
        command = [operation, "--json", "--non-interactive", "--stack", self.stack, *arguments]
        done = self._start(command, LIMIT)
        out, err = done.stdout, done.stderr
        seconds = time.monotonic() - start
        if operation == "preview":
            steps, diagnostics = _preview(out)
        else:
            steps, diagnostics = _events(out)
        result = Result(operation, tuple(steps), tuple(diagnostics), seconds, out + err)
        if done.returncode != 0:
            raise EngineError(self._reason(result, err, done.returncode), result)
        return result

    def _reason(self, result: Result, err: str, status: int) -> str:
        """In words, and with the way on."""
        run = f"pulumi {result.operation} of {self.stack}"
        if status < 0:
            return f"{run} was killed\n    fix: unlock the stack, then run it again"
        if "is currently locked" in err + result.log:
            return (
                f"{run} found the stack locked: another run is under way, or one was killed"
                "\n    fix: wait for it, or unlock the stack"
            )
        errors = [found for found in result.diagnostics if found.severity == "error"]
        told = [f"{found.urn.rpartition('::')[2]}: {found.message}".removeprefix(": ") for found in errors]
        said = "\n    ".join(dict.fromkeys(line.strip() for line in told)) or err.strip() or f"exit status {status}"
        return f"{run} failed:\n    {said}"

    def _pulumi(self, *arguments: str, stdin: str | None = None) -> str:
        done = self._start([*arguments, "--non-interactive"], 60, stdin)
        if done.returncode != 0:
            raise EngineError(f"pulumi {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _start(self, arguments: list[str], limit: float, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs the engine in a group of its own, so that nothing of it stays when this process is interrupted."""
        process = subprocess.Popen(
            [self.programs.pulumi, *arguments, "--cwd", self.project, "--color", "never"],
            env=self._environment(),
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._running = process
        try:
            try:
                out, err = process.communicate(stdin, timeout=limit)
            except (subprocess.TimeoutExpired, KeyboardInterrupt) as reason:
                process.send_signal(signal.SIGINT)
                out, err = _wait(process)
                if isinstance(reason, KeyboardInterrupt):
                    raise
                raise EngineError(f"pulumi {arguments[0]} took more than {limit:.0f} s and was interrupted") from None
        finally:
            self._running = None
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.returncode < 0:
                _end_session(process.pid)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def _environment(self) -> dict[str, str]:
        kept = {key: os.environ[key] for key in ("HOME", "LANG", "LC_ALL", "TMPDIR", "USER") if key in os.environ}
        here = str(Path(sys.prefix) / "bin")
        path = [here, str(self.programs.language_host.parent), os.environ.get("PATH", os.defpath)]
        stub = self._stub()
        path = [stub, *path] if self.kubeconfig else [*path, stub]
        told = {
            STORE: str(self.store),
            FAULTS: json.dumps(self.faults) if self.faults else "",
            KUBECONFIG: str(self.kubeconfig or ""),
            ACCOUNT: self.account or "",
        }
        return {
            **kept,
            **{key: value for key, value in told.items() if value},
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, (self.root, ROOT)))),  # this checkout, not another
            "PULUMI_BACKEND_URL": f"file://{self.state / 'backend'}",
            "PULUMI_HOME": str(self.state / "home"),
            "PULUMI_CONFIG_PASSPHRASE": (self.state / "passphrase").read_text(),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_AUTOMATION_API_SKIP_VERSION_CHECK": "true",
            "PYTHONDONTWRITEBYTECODE": os.environ.get("PYTHONDONTWRITEBYTECODE", ""),
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _stub(self) -> str:
        """A folder with an `aws` program, which stands last on PATH unless the lab has a cluster of its own."""
        folder = self.state / "aws"
        _script(folder / "aws", "paddock.lab.providers.aws_command")
        return str(folder)

    def _write_project(self) -> None:
        written: dict[str, Any] = yaml.safe_load((self.root / "Pulumi.yaml").read_text(encoding="utf-8"))
        options = dict(written["runtime"].get("options", {}))
        options.pop("virtualenv", None)
        if sys.prefix != sys.base_prefix:
            options["virtualenv"] = sys.prefix
        written["runtime"] = {**written["runtime"], "options": options}
        written["plugins"] = {"providers": [{"name": name, "path": str(self._plugin(name))} for name in STAND_INS]}
        (self.project / "Pulumi.yaml").write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")
        main = Path(written["main"])
        link = self.project / main
        if not link.exists():
            link.unlink(missing_ok=True)
            link.symlink_to(self.root / main, target_is_directory=True)

    def _plugin(self, name: str) -> Path:
        if name == "kubernetes" and self.real_kubernetes and self.programs.kubernetes is not None:
            return self.programs.kubernetes.parent
        folder = self.state / "plugins" / name
        _script(folder / f"pulumi-resource-{name}", f"paddock.lab.providers.{name}")
        return folder

    def _write_stack(self, config: Mapping[str, Any]) -> None:
        kept: dict[str, Any] = {}
        if self.stack_file.exists():
            kept = yaml.safe_load(self.stack_file.read_text(encoding="utf-8"))
        encrypted = {key: value for key, value in kept.get("config", {}).items() if _encrypted(value)}
        content = {**kept, "config": {**config, **encrypted}}
        self.stack_file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def _script(path: Path, module: str) -> None:
    """A program that runs a module of ours in this very interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{sys.executable}' -u -m {module} \"$@\"\n"
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
        path.chmod(0o755)


def _wait(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=_GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()


def _end_session(session: int) -> None:
    """Ends what an engine that was killed has left: language host and plugins are in process groups of their own."""
    listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True, check=False).stdout
    for pid in map(int, listed.split()):
        with suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == session:
                os.kill(pid, signal.SIGKILL)


def _encrypted(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"secure"}


def _preview(text: str) -> tuple[Iterable[Step], Iterable[Diagnostic]]:
    try:
        found = json.loads(text[text.index("{") :])
    except ValueError:
        return [], []
    steps = [
        Step(step["op"], step["urn"], State.of(step["newState"]) if step.get("newState") else None)
        for step in found.get("steps") or []
    ]
    return steps, [_diagnostic(one) for one in found.get("diagnostics") or []]


def _events(text: str) -> tuple[Iterable[Step], Iterable[Diagnostic]]:
    steps: list[Step] = []
    diagnostics: list[Diagnostic] = []
    for event in _lines(text):
        if found := event.get("resOutputsEvent"):
            steps.append(Step(found["metadata"]["op"], found["metadata"]["urn"]))
        elif found := event.get("resOpFailedEvent"):
            steps.append(Step(found["metadata"]["op"], found["metadata"]["urn"], failed=True))
        elif (found := event.get("diagnosticEvent")) and found.get("severity") != "debug":
            diagnostics.append(_diagnostic(found))
    return steps, diagnostics


def _lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def _diagnostic(found: Mapping[str, Any]) -> Diagnostic:
    return Diagnostic(found.get("severity", ""), found.get("message", "").strip(), found.get("urn", ""))


def _plain(value: Any) -> Any:
    match value:
        case {rpc._special_sig_key: rpc._special_secret_sig}:
            return Secret(value.get("ciphertext", ""))
        case {rpc._special_sig_key: rpc._special_resource_sig}:
            return value["urn"]
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case "[secret]":  # how a preview shows one
            return Secret("")
        case str():
            return UNKNOWN if value == rpc.UNKNOWN else value
        case _:
            return value
