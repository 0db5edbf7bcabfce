"""The tree as a whole: every room has its place in the contracts, and no file speaks of one machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.conftest import LONGEST


def test_every_room_stands_in_a_layer(root: Path) -> None:
    contracts = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    placed = set(re.findall(r"[\w.]+", " ".join(contracts[0]["layers"])))
    rooms = {f"paddock.{p.parent.name}" for p in (root / "paddock").glob("*/__init__.py")}
    modules = {f"paddock.{p.stem}" for p in (root / "paddock").glob("*.py") if p.stem != "__init__"}
    assert rooms | modules <= placed


def test_no_room_that_exists_is_still_called_later(root: Path) -> None:
    later = re.findall(r"^# later: (.*)$", (root / "pyproject.toml").read_text(), re.M)
    there = {name for line in later for name in line.split() if (root / name.replace(".", "/")).is_dir()}
    assert not there, f"move into the contract above the comment: {there}"


def test_the_wheel_holds_the_library_alone(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["paddock"]


def test_no_file_names_a_machine_or_a_registry(root: Path) -> None:
    if not (root / ".git").exists():
        pytest.skip("not a git checkout: what is tracked cannot be told from what lies around")
    hosts = r"https?://[a-z0-9.-]*(pypi|pythonhosted|npmjs|crates|maven|debian)\.(org|io|com)"
    homes = r"(/home/[a-z]+|/Users/[a-z]+|/root)/[A-Za-z.]"
    matches = subprocess.run(
        ["git", "grep", "-nIE", f"{hosts}|{homes}", "--", ".", ":!tests/house/test_tree.py"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    # /home/runner is inside GitHub's runner image, the same on every machine, and so is root's home in ours.
    lines = (line.replace("/home/runner/", "/") for line in matches.stdout.splitlines())
    named = [
        line
        for line in lines
        if re.search(f"{hosts}|{homes}", line.replace("/root/", "/") if line.startswith("ami/scripts/") else line)
    ]
    assert named == []


def test_renovate_reads_the_annotations_of_versions(root: Path) -> None:
    managers = json.loads((root / "renovate.json").read_text())["customManagers"]
    pattern, sums, bases = (re.compile(manager["matchStrings"][0].replace("(?<", "(?P<")) for manager in managers)
    line = '# renovate: datasource=helm depName=keda registryUrl=https://charts.example.com\nKEDA = "2.18.1"\n'
    match = pattern.search(line)
    assert match
    assert match["currentValue"] == "2.18.1"
    assert match["registryUrl"] == "https://charts.example.com"

    versions = root / "infra/versions.py"
    if versions.exists():
        text = versions.read_text()
        matched = len(pattern.findall(text)) + len(sums.findall(text))
        assert matched == text.count("# renovate:"), "an annotation that renovate would not see"
        assert len(bases.findall(text)) == text.count('"nvidia/cuda:'), "a CUDA base that renovate would not see"
        runner = next(match for match in pattern.finditer(text) if match["depName"] == "ghcr.io/actions/actions-runner")
        assert runner["currentDigest"]
        assert {match["currentValue"] for match in sums.finditer(text)} == {f"v{runner['currentValue']}"}, (
            "the sums of the runner's archives are of another version than ACTIONS_RUNNER"
        )


def test_every_action_is_pinned_to_a_commit(root: Path) -> None:
    for workflow in (root / ".github").rglob("*.yml"):
        for action in re.findall(r"uses:\s*([^\s#]+)", workflow.read_text()):
            assert action.startswith("./") or re.fullmatch(r"[^@]+@[0-9a-f]{40}", action), f"{workflow.name}: {action}"


def test_the_groups_that_begin_first_are_there(root: Path) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.py"))
    assert [name for name in LONGEST if f'xdist_group("{name}"' not in text] == []


@pytest.mark.xdist_group("house")
def test_tests_of_a_group_run_in_one_process(request: pytest.FixtureRequest) -> None:
    """Run a group's shared fixtures in one process; where xdist does not understand pytest, every process runs them."""
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        pytest.skip("one process runs all of them")
    assert request.node.nodeid.endswith("@house")
