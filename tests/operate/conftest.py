"""A project, programs and examinations of it, against a stand-in for its account."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import pytest
from botocore.loaders import JSONFileLoader

from paddock import clock
from paddock.fleet import Stack, load
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.examination import examine
from paddock.operate.doctor.report import Examination, Result
from paddock.operate.sources.aws import AwsReader
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.program import plan_graph
from tests.support.allowed import only_what_policies_allow
from tests.support.aws_account import REGION, Account, Answer, healthy
from tests.support.chain_world import World
from tests.support.operation import VERSIONS

__all__ = ["only_what_policies_allow"]
Examine = Callable[..., "Examined"]
AT = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
"""The time in a world of objects."""
OWN_ADDRESS = "198.18.7.7/32"


class Examined:
    """A report, and the account that answered."""

    def __init__(self, report: Examination, account: Account) -> None:
        self.report, self.account = report, account

    def line(self, area: str, subject: str = "") -> Result:
        """Return the one line of an area whose subject holds a text."""
        (result,) = (r for r in self.report.results if r.area == area and subject in r.subject)
        return result


@pytest.fixture(scope="session")
def stack(root: Path) -> Stack:
    """The example stack `dev`."""
    return load(root, "dev")


@pytest.fixture
def world(stack: Stack) -> World:
    """A fleet at work."""
    return World(stack, AT)


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Path:
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
        shutil.copy(root / name, tmp_path)
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text(file.read_text().replace("203.0.113.0/24", "198.18.0.0/15"))
    return tmp_path


@pytest.fixture
def of_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let commands be about the project."""
    monkeypatch.setenv("PADDOCK_ROOT", str(project))
    return project


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for pulumi, aws, kubectl and docker, which state a version and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in VERSIONS.items():
        program(folder, name, f"echo '{text}'")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def program(folder: Path, name: str, script: str) -> None:
    """Write a program that runs a shell script."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's address, which no test asks the internet for."""
    monkeypatch.setattr("paddock.operate.doctor.checks.network.public_network", lambda: OWN_ADDRESS)


@pytest.fixture(scope="session", autouse=True)
def _models_of_aws() -> Iterator[None]:
    """Read each file of botocore once: every session reads its own, and some have ten megabytes."""
    read = JSONFileLoader.load_file
    kept = cache(lambda path: read(JSONFileLoader(), path))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JSONFileLoader, "load_file", lambda _, path: kept(path))
        yield


_graphs: dict[str, Graph] = {}


def planned_once(stack: Stack) -> Graph:
    """Return the graph of a stack, which is planned for the first test that asks."""
    key = json.dumps(stack.config, sort_keys=True)
    if key not in _graphs:
        _graphs[key] = plan_graph(stack)
    return _graphs[key]


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan a stack once: examinations of an account differ in what it answers."""
    monkeypatch.setattr("paddock.operate.doctor.context.plan_graph", planned_once)


@pytest.fixture
def examination(project: Path, programs: Path, address: None, graphs: None) -> Examine:
    """Examine the project's stack `dev` in an account whose answers are those of a healthy one, changed by these."""

    def run(
        answers: Mapping[str, Answer] | None = None, *, key: str = "", base: Mapping[str, Answer] | None = None
    ) -> Examined:
        account = Account({**(base or healthy()), **(answers or {})})
        reader = AwsReader(REGION, account.clients)
        stack = load(project, "dev")
        return Examined(examine(Context(project, stack, clock.today(), reader, key)), account)

    return run
