"""The real Pulumi engine, applied to our own program with stand-ins for the providers.

Everything is in one state folder: project, backend, plugins, the stand-ins' resources. No run uses the network or
installs anything, and the user's own Pulumi and AWS settings are not read. Own code, because `pulumi.automation` can
neither kill a run nor limit its time, merges this process's environment, and passes secrets as arguments.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import paddock
from paddock import clock
from paddock.lab.control_plane import programs
from paddock.lab.errors import LabInputError
from paddock.lab.processes import MARK
from paddock.lab.providers.aws import ACCOUNT
from paddock.lab.providers.aws_command import KUBECONFIG
from paddock.lab.providers.faults import VARIABLE as FAULTS
from paddock.lab.providers.server import STORE
from paddock.lab.providers.store import Store
from paddock.lab.stack import engine_process, engine_result
from paddock.lab.stack.engine_result import EngineError, Operation, Result, State
from paddock.plan.engine import events
from paddock.plan.engine.events import Step

__all__ = ["Engine", "EngineError", "Programs", "Result", "State"]

ROOT = Path(paddock.__file__).resolve().parent.parent
STAND_INS = ("aws", "eks", "kubernetes")
KUBERNETES_PLUGIN = "pulumi-resource-kubernetes"
NO_PROVIDER = (
    "the Kubernetes provider is a stand-in, which keeps objects and charts in Pulumi's state alone"
    "\n    fix: pulumi plugin install resource kubernetes"
)
LIMIT = 600.0
"""Seconds after which a run is interrupted."""
_STREAM = {"PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "true"}
"""Events instead of one document, like every other run: the document does not hold policies."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of the engine's programs."""

    pulumi: Path
    language_host: Path
    kubernetes: Path | None
    """The real Kubernetes provider; None where it is not there."""

    @classmethod
    def find(cls) -> Programs:
        """Search PATH and PADDOCK_LAB_BIN, and Pulumi's plugins for the Kubernetes provider. Raises LabInputError."""
        paths = programs.locate(("pulumi", "pulumi-language-python", KUBERNETES_PLUGIN))
        absent = [name for name in ("pulumi", "pulumi-language-python") if name not in paths]
        if absent:
            raise LabInputError(
                f"the lab's engine needs {' and '.join(absent)}"
                "\n    fix: install Pulumi (pulumi.com/docs/install) and have it on PATH, or in PADDOCK_LAB_BIN"
            )
        kubernetes = paths.get(KUBERNETES_PLUGIN) or _installed(paths["pulumi"])
        return cls(paths["pulumi"], paths["pulumi-language-python"], kubernetes)


class Engine:
    """A stack of the project at `root`, in a state folder of its own."""

    def __init__(
        self,
        state: Path,
        binaries: Programs,
        *,
        stack: str,
        root: Path = ROOT,
        kubeconfig: Path | None = None,
        real_kubernetes: bool | None = None,
        account: str | None = None,
    ) -> None:
        """`real_kubernetes` is for previews without a cluster; with a kubeconfig the real provider is the default."""
        self.state, self.programs, self.stack, self.root = state.resolve(), binaries, stack, root
        self.kubeconfig, self.account = kubeconfig, account
        self.real_kubernetes = kubeconfig is not None if real_kubernetes is None else real_kubernetes
        if self.real_kubernetes and binaries.kubernetes is None:
            raise LabInputError(f"{KUBERNETES_PLUGIN} is not there\n    fix: pulumi plugin install resource kubernetes")
        self.project = self.state / "project"
        self.store = self.state / "cloud" / f"{stack}.json"
        self.stack_file = self.project / f"Pulumi.{stack}.yaml"
        self.faults: list[Mapping[str, Any]] = []
        """Errors and delays of the stand-ins in the next runs; see `providers.faults`."""
        self.takes_over = False
        """Adopt Kubernetes objects that exist already, instead of failing: for a run after an interrupted one."""
        self._running: subprocess.Popen[str] | None = None

    def prepare(self, config: Mapping[str, Any] | None = None, secret: Mapping[str, str] | None = None) -> None:
        """Create project and stack. `config` replaces the stack file's; `secret` values are encrypted."""
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
        elif config is not None:
            self.configure(config)
        if not self.exists:
            self._pulumi("stack", "init", self.stack, "--secrets-provider", "passphrase")
        for key, value in (secret or {}).items():
            self._pulumi("config", "set", "--secret", "--stack", self.stack, key, stdin=value)

    @property
    def exists(self) -> bool:
        """Return whether the stack has been created."""
        return any(self.state.glob(f"backend/.pulumi/stacks/*/{self.stack}.json"))

    def configure(self, config: Mapping[str, Any]) -> None:
        """Changes the stack's configuration; encrypted values and their salt stay."""
        self._write_stack(config)

    def configuration(self) -> dict[str, Any]:
        """Return the stack's configuration in clear, without encrypted values."""
        written = yaml.safe_load(self.stack_file.read_text(encoding="utf-8"))["config"]
        return {key: value for key, value in written.items() if not _encrypted(value)}

    def preview(self) -> Result:
        return self._run("preview")

    def check_policies(self, pack: Path) -> Result:
        """Preview with a policy pack; the result holds no states. Raises EngineError for a mandatory violation."""
        return self._run("preview", "--policy-pack", str(pack), more=_STREAM)

    def up(self, notify: Callable[[Step], None] | None = None) -> Result:
        """Apply the program. `tell` is called with each finished step, in a thread of its own."""
        return self._run("up", "--yes", "--skip-preview", notify=notify)

    def refresh(self) -> Result:
        return self._run("refresh", "--yes", "--skip-preview")

    def destroy(self, *, protected: bool = False) -> Result:
        """Delete every resource; `protected` includes protected ones."""
        result = self._run("destroy", "--yes", "--skip-preview", *(["--ignore-protect"] if protected else []))
        if remaining := len(self.export()):  # the engine calls it a success when it is interrupted
            raise EngineError(
                f"pulumi destroy of {self.stack} was interrupted: {remaining} resources are left\n"
                "    fix: run it again",
                result,
            )
        return result

    def export(self) -> dict[str, State]:
        """Return everything in the stack, by URN. Secrets stay encrypted."""
        resources = json.loads(self.exported())["deployment"].get("resources") or []
        return {resource["urn"]: State.of(resource) for resource in resources}

    def exported(self) -> str:
        """Return the stack's stored state."""
        return self._pulumi("stack", "export", "--stack", self.stack)

    def restore(self, exported: str) -> None:
        """Replace the stack's state with one in the form that `exported` returns."""
        self._pulumi("stack", "import", "--stack", self.stack, stdin=exported)

    def created_resources(self) -> dict[str, str]:
        """Return what the stand-ins created: type and id, with a space between, -> URN."""
        return {key: stored["urn"] for key, stored in Store(self.store).resources().items()}

    def outputs(self, *, show_secrets: bool = False) -> dict[str, Any]:
        flags = ["--show-secrets"] if show_secrets else []
        outputs: dict[str, Any] = json.loads(self._pulumi("stack", "output", "--json", "--stack", self.stack, *flags))
        return outputs

    def interrupt(self) -> None:
        """Interrupt the current run: operations in progress are finished, the rest is not begun."""
        if running := self._running:
            running.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill the current run at once, as a power failure does."""
        if running := self._running:
            os.killpg(running.pid, signal.SIGKILL)

    def unlock(self) -> None:
        """Release the lock of a killed run. `recovery.recover` does more."""
        self._pulumi("cancel", "--yes", self.stack)

    def _run(
        self,
        operation: Operation,
        *arguments: str,
        notify: Callable[[Step], None] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Result:
        start = time.monotonic()
        command = [operation, "--json", "--non-interactive", "--stack", self.stack, *arguments]

        def report(line: str) -> None:
            if notify and isinstance(step := events.event(line), Step):
                notify(step)

        completed = self._start(command, LIMIT, on_line=report, more=more)
        out, err = completed.stdout, completed.stderr
        seconds = time.monotonic() - start
        items = engine_result.preview(out) if operation == "preview" and not more else events.events(out)
        result = engine_result.result(operation, items, seconds, out + err)
        if completed.returncode != 0:
            raise EngineError(self._reason(result, err, completed.returncode), result)
        return result

    def _reason(self, result: Result, err: str, status: int) -> str:
        """Return an error message from the diagnostics of a run."""
        run = f"pulumi {result.operation} of {self.stack}"
        if status < 0:
            return f"{run} was killed"
        if "is currently locked" in err + result.log:
            return f"{run} found the stack locked: another run is under way, or one was killed"
        errors = [diagnostic for diagnostic in result.diagnostics if diagnostic.severity == "error"]
        broken = [violation for violation in result.violations if violation.mandatory]
        messages = [f"{error.urn.rpartition('::')[2]}: {error.message}".removeprefix(": ") for error in errors]
        messages += [f"{violation.policy}: {violation.message}" for violation in broken]
        detail = (
            "\n    ".join(dict.fromkeys(line.strip() for line in messages)) or err.strip() or f"exit status {status}"
        )
        return f"{run} failed:\n    {detail}"

    def _pulumi(self, *arguments: str, stdin: str | None = None) -> str:
        completed = self._start([*arguments, "--non-interactive"], 60, stdin)
        if completed.returncode != 0:
            raise EngineError(f"pulumi {arguments[0]} failed: {completed.stderr.strip() or completed.stdout.strip()}")
        return completed.stdout

    def _start(
        self,
        arguments: list[str],
        limit: float,
        stdin: str | None = None,
        on_line: Callable[[str], None] | None = None,
        more: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        command = [str(self.programs.pulumi), *arguments, "--cwd", str(self.project), "--color", "never"]

        def started(process: subprocess.Popen[str]) -> None:
            self._running = process

        try:
            environment = {**self.environment(), **(more or {})}
            return engine_process.run(command, environment, limit, started, stdin=stdin, on_line=on_line)
        except subprocess.TimeoutExpired as late:
            waited = ", ".join(urn.rpartition("::")[2] for urn in events.unfinished(str(late.output)))
            took = f"pulumi {arguments[0]} took more than {limit:.0f} s and was interrupted"
            raise EngineError(took + (f" while it waited for {waited}" if waited else "")) from None
        finally:
            self._running = None

    def environment(self) -> dict[str, str]:
        """Return the environment of the engine's programs: the lab's backend, plugins and stand-ins."""
        names = ("HOME", "LANG", "LC_ALL", "TMPDIR", "USER", clock.VARIABLE)
        inherited = {name: os.environ[name] for name in names if name in os.environ}
        here = str(Path(sys.prefix) / "bin")
        path = [here, str(self.programs.language_host.parent), os.environ.get("PATH", os.defpath)]
        stub = self._stub()
        path = [stub, *path] if self.kubeconfig else [*path, stub]
        settings = {
            MARK: str(self.state),
            STORE: str(self.store),
            FAULTS: json.dumps(self.faults) if self.faults else "",
            KUBECONFIG: str(self.kubeconfig or ""),
            ACCOUNT: self.account or "",
            "PULUMI_K8S_UPSERT_EXISTING_OBJECTS": "true" if self.takes_over else "",
        }
        return {
            **inherited,
            **{key: value for key, value in settings.items() if value},
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, (self.root, ROOT)))),  # this checkout, not another
            # Attributes beside a file are not written in one piece: after a kill they made the state unreadable.
            "PULUMI_BACKEND_URL": f"file://{self.state / 'backend'}?metadata=skip",
            "PULUMI_HOME": str(self.state / "home"),
            "PULUMI_CONFIG_PASSPHRASE": (self.state / "passphrase").read_text(),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_AUTOMATION_API_SKIP_VERSION_CHECK": "true",
            "PYTHONDONTWRITEBYTECODE": os.environ.get("PYTHONDONTWRITEBYTECODE", ""),
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _stub(self) -> str:
        """Return a folder with an `aws` program, which stands last on PATH unless the lab has a cluster of its own."""
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
        current: dict[str, Any] = {}
        if self.stack_file.exists():
            current = yaml.safe_load(self.stack_file.read_text(encoding="utf-8"))
        encrypted = {key: value for key, value in current.get("config", {}).items() if _encrypted(value)}
        content = {**current, "config": {**config, **encrypted}}
        self.stack_file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def _installed(pulumi: Path) -> Path | None:
    """Return the Kubernetes provider in `plugins` beside Pulumi's folder, or the newest in the user's plugin cache."""
    bundled = pulumi.resolve().parent.parent / "plugins" / KUBERNETES_PLUGIN
    if bundled.is_file():
        return bundled
    cache = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi", "plugins")
    plugins = cache.glob(f"resource-kubernetes-v*/{KUBERNETES_PLUGIN}")
    return max(plugins, key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)], default=None)


def _script(path: Path, module: str) -> None:
    """Write a program that runs a module of this package in this interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{sys.executable}' -u -m {module} \"$@\"\n"
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
        path.chmod(0o755)


def _encrypted(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {"secure"}
