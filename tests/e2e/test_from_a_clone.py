"""A fresh clone, and the Pulumi CLI alone: it installs what the program needs, previews and applies it.

The engine and Pulumi's own language host are real; stand-ins take the place of the providers' plugins.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from paddock.fleet.stackfile.loader import load
from paddock.lab.stack import charts
from paddock.lab.stack import stack as lab_stack
from paddock.lab.stack.engine import ROOT, STAND_INS, Engine, Programs
from paddock.plan.engine.program import plan_graph

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("clone")]

HOST = "PADDOCK_LANGHOST_BIN"
"""Variable with the folder of Pulumi's own language host, where another one stands beside the engine."""
KEY = "paddock:githubAppKey"


@pytest.fixture(scope="module")
def own_host(programs: Programs) -> Path:
    """Return the language host of Pulumi's CLI, which installs what a program needs."""
    folders = [
        os.environ.get(HOST),
        programs.language_host.parent,
        programs.pulumi.resolve().parent.parent / "langhost",
    ]
    for folder in map(Path, filter(None, folders)):
        host = folder / "pulumi-language-python"
        if host.is_file() and host.read_bytes()[:2] != b"#!":
            return host
    pytest.skip(f"Pulumi's own language host is not here (beside pulumi, or in {HOST})")


@dataclass(frozen=True)
class Clone:
    """A checkout without an environment, whose stacks are the lab's variants of the examples."""

    root: Path
    engine: Engine
    """Of the environment that runs the tests: backend and stand-ins are its own."""
    host: Path

    def pulumi(self, *words: str, stdin: str | None = None) -> str:
        """Call the CLI in the clone. Nothing of the tests' environment is on its way."""
        inherited = self.engine.environment()
        path = [str(self.host), str(self.engine.programs.pulumi.parent), *_system_path()]
        if self.host == self.engine.programs.language_host.parent and (self.root / ".venv").exists():
            path.insert(0, str(self.root / ".venv/bin"))  # the stand-in for the host is a program in Python
        environment = {name: value for name, value in inherited.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environment |= {"PATH": os.pathsep.join([*path, inherited["PATH"].rpartition(os.pathsep)[2]])}
        environment |= {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_"))}
        environment["PIP_NO_COMPILE"] = "1"  # most of what is installed is imported by nobody
        command = [str(self.engine.programs.pulumi), *words, "--non-interactive", "--color", "never"]
        completed = subprocess.run(
            command, cwd=self.root, env=environment, input=stdin, capture_output=True, text=True, timeout=900
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
        return completed.stdout + completed.stderr

    def inv(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
        return subprocess.run(
            ["./inv", *words], cwd=self.root, env=environment, capture_output=True, text=True, timeout=900
        )

    def created(self, stack: str) -> int:
        """Return how many resources the preview of a stack creates."""
        return int(re.findall(r"\+ (\d+) to create", self.pulumi("preview", "--stack", stack))[0])


def _system_path() -> list[str]:
    """Return the folders of PATH that are no environment's."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return [folder for folder in folders if not (Path(folder).parent / "pyvenv.cfg").exists()]


def clone(tmp_path: Path, programs: Programs, host: Path) -> Clone:
    root = tmp_path / "paddock"
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    folder = tmp_path / "charts"
    engine = Engine(tmp_path / "state", programs, stack="none", root=root)
    engine.project.mkdir(parents=True)
    engine.stack_file.write_text("config: {}\n")
    engine.prepare()  # backend, passphrase and stand-ins
    for stack in ("dev", "prod"):
        held = load(ROOT, stack)
        charts.serve(folder, charts.required_charts(plan_graph(held)), None)
        held = lab_stack.overlay(held, kubeconfig=tmp_path / "kubeconfig", charts=folder)
        config = {"config": lab_stack.configuration(held)}
        (root / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump(config))
    for line in (root / "locks/infra.txt").read_text().splitlines():
        name, _, version = line.removesuffix(" \\").partition("==")
        if name.removeprefix("pulumi-") in STAND_INS:
            provider = name.removeprefix("pulumi-")
            cached = engine.state / "home/plugins" / f"resource-{provider}-v{version}"
            shutil.copytree(engine.state / "plugins" / provider, cached)
    if host != programs.language_host:
        host = with_flags(root, host)
    cloned = Clone(root, engine, host.parent)
    for stack in ("dev", "prod"):
        cloned.pulumi("stack", "init", stack, "--secrets-provider", "passphrase")
    cloned.pulumi("config", "set", "--secret", "--stack", "dev", KEY, stdin="made-up-private-key")
    return cloned


def with_flags(root: Path, host: Path) -> Path:
    """Call the host as the CLI of its own year did: project and options came as flags, today they are in requests."""
    virtualenv = yaml.safe_load((root / "Pulumi.yaml").read_text())["runtime"]["options"]["virtualenv"]
    folder = root.with_name("host")
    folder.mkdir()
    program = folder / host.name
    program.write_text(f"#!/bin/sh\nexec '{host}' -root='{root}' -virtualenv='{virtualenv}' \"$@\"\n")
    program.chmod(0o755)
    return program


def packages(root: Path) -> dict[str, str]:
    """Return the versions of the locked packages that the clone's environment holds."""
    locked = {line.split("==")[0] for line in (root / "locks/constraints.txt").read_text().splitlines()}
    (site,) = (root / ".venv/lib").glob("python*/site-packages")
    pairs = (path.name.removesuffix(".dist-info").rpartition("-") for path in site.glob("*.dist-info"))
    held = {re.sub("[-_.]+", "-", name).lower(): version for name, _, version in pairs}
    return {name: version for name, version in held.items() if name in locked}


def test_pulumi_alone_installs_previews_and_applies(own_host: Path, programs: Programs, tmp_path: Path) -> None:
    cloned = clone(tmp_path, programs, own_host)
    assert not (cloned.root / ".venv").exists()

    assert "Finished installing dependencies" in cloned.pulumi("install")

    installed = packages(cloned.root)
    for stack in ("dev", "prod"):
        planned = plan_graph(load(cloned.root, stack), preview=True)
        assert cloned.created(stack) >= len(planned.resources)
    assert re.search(r"\+ \d+ created", cloned.pulumi("up", "--yes", "--skip-preview", "--stack", "dev"))

    adopted = cloned.inv("plan", "--stack", "dev")
    assert "packages are added to it" in adopted.stderr
    assert adopted.returncode in (0, 1), adopted.stderr
    assert packages(cloned.root).items() >= installed.items()
    assert re.search(r"\d+ unchanged", cloned.pulumi("preview", "--stack", "dev"))
    assert "inv:" not in cloned.inv("plan", "--stack", "dev").stderr


@pytest.fixture(scope="module")
def planned(programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Return a clone whose environment `inv` made, with the host that installs nothing."""
    cloned = clone(tmp_path_factory.mktemp("planned"), programs, programs.language_host)
    assert "making .venv (once)" in cloned.inv("plan", "--stack", "dev").stderr
    return cloned


def test_pulumi_takes_the_environment_that_inv_made(planned: Clone, own_host: Path, programs: Programs) -> None:
    host = own_host if own_host == programs.language_host else with_flags(planned.root, own_host)
    cloned = replace(planned, host=host.parent)
    held = packages(cloned.root)

    before = cloned.created("dev")
    cloned.pulumi("install")

    assert packages(cloned.root) == held
    assert cloned.created("dev") == before
    assert "inv:" not in cloned.inv("plan", "--stack", "dev").stderr


def test_a_host_that_installs_nothing_previews_after_a_plan(planned: Clone) -> None:
    held = packages(planned.root)
    assert planned.created("prod") >= len(plan_graph(load(planned.root, "prod"), preview=True).resources)
    assert "paddock" in planned.pulumi("preview", "--stack", "dev", "--policy-pack", "policy")
    assert packages(planned.root) == held
