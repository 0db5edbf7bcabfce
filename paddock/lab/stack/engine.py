"""The real Pulumi engine, applied to our own program with stand-ins for the providers.

Everything is in one state folder: project, backend, plugins, the stand-ins' resources. No run uses the network or
installs anything, and the user's own Pulumi and AWS settings are not read.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

import paddock
from paddock import clock
from paddock.lab.control_plane import programs
from paddock.lab.errors import LabError, LabInputError
from paddock.lab.processes import MARK
from paddock.lab.providers.aws_command import KUBECONFIG
from paddock.lab.providers.faults import VARIABLE as FAULTS
from paddock.lab.providers.server import STORE
from paddock.lab.providers.store import Store
from paddock.pulumi_cli.events import ResourceStep
from paddock.pulumi_cli.run import GRACE
from paddock.pulumi_cli.stack import Operation, Pulumi, PulumiError, Run, RunInterrupted

ROOT = Path(paddock.__file__).resolve().parent.parent
STAND_INS = ("aws", "eks", "kubernetes")
KUBERNETES_PLUGIN = "pulumi-resource-kubernetes"
NO_PROVIDER = (
    "the Kubernetes provider is a stand-in, which keeps objects and charts in Pulumi's state alone"
    "\n    fix: pulumi plugin install resource kubernetes"
)
LIMIT = 600.0
"""Seconds after which a run is interrupted."""
YES = ("--yes", "--skip-preview")


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


class EngineError(LabError):
    """A run of the engine failed; the message is the engine's, and `run` is what it did until then."""

    def __init__(self, message: str, run: Run | None = None) -> None:
        super().__init__(message)
        self.run = run


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
    ) -> None:
        """`real_kubernetes` is for previews without a cluster; with a kubeconfig the real provider is the default."""
        self.state, self.programs, self.stack, self.root = state.resolve(), binaries, stack, root
        self.kubeconfig = kubeconfig
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
            self.configure(written["config"] if config is None else config)
        elif config is not None:
            self.configure(config)
        if not self.exists:
            self.command("stack", "init", "--secrets-provider", "passphrase")
        for key, value in (secret or {}).items():
            self.command("config", "set", "--secret", key, stdin=value)

    @property
    def exists(self) -> bool:
        """Return whether the stack has been created."""
        return any(self.state.glob(f"backend/.pulumi/stacks/*/{self.stack}.json"))

    def run(
        self, operation: Operation, *words: str, on_step: Callable[[ResourceStep], None] = lambda step: None
    ) -> Run:
        """Run an operation with these words. `on_step` is called with each finished step, in a thread of its own.

        Raises EngineError, in a preview also for a violation of a mandatory policy.
        """
        with _as_lab_errors():
            return self._cli().run(operation, *words, on_step=on_step)

    def up(self, on_step: Callable[[ResourceStep], None] = lambda step: None) -> Run:
        """Apply the program. Raises EngineError."""
        return self.run("up", *YES, on_step=on_step)

    def exported(self) -> str:
        """Return the stack's stored state."""
        return self.command("stack", "export")

    def created_resources(self) -> dict[str, str]:
        """Return what the stand-ins created: type and id, with a space between, -> URN."""
        return {key: stored["urn"] for key, stored in Store(self.store).resources().items()}

    def command(self, *words: str, stdin: str = "", seconds: float = 60) -> str:
        """Return the output of a command on the stack. Raises EngineError."""
        with _as_lab_errors():
            return self._cli().command(*words, stdin=stdin, seconds=seconds)

    def _cli(self) -> Pulumi:
        return Pulumi(
            self.project,
            self.stack,
            program=str(self.programs.pulumi),
            environment=self.environment(),
            limit=LIMIT,
            patience=GRACE,
        )

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
            "PULUMI_K8S_UPSERT_EXISTING_OBJECTS": "true" if self.takes_over else "",
        }
        return {
            **inherited,
            **{key: value for key, value in settings.items() if value},
            "PATH": os.pathsep.join(path),
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(map(str, (self.root, ROOT)))),  # this checkout, not another
            # Attributes next to a file are not written in one piece: after a kill they made the state unreadable.
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

    def configure(self, config: Mapping[str, Any]) -> None:
        """Change the stack's configuration; encrypted values and their salt stay."""
        current: dict[str, Any] = {}
        if self.stack_file.exists():
            current = yaml.safe_load(self.stack_file.read_text(encoding="utf-8"))
        encrypted = {key: value for key, value in current.get("config", {}).items() if _encrypted(value)}
        content = {**current, "config": {**config, **encrypted}}
        self.stack_file.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


@contextmanager
def _as_lab_errors() -> Iterator[None]:
    try:
        yield
    except PulumiError as error:
        raise EngineError(f"{error}\n    fix: {error.fix}", error.run) from None
    except RunInterrupted:
        raise KeyboardInterrupt from None


def _installed(pulumi: Path) -> Path | None:
    """Return the Kubernetes provider in `plugins` next to Pulumi's folder, or the newest in the user's plugin cache."""
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
