"""One version of program, wheel, policy pack and changelog; and the forms that a visitor of the repository finds."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
import yaml

from paddock import __version__
from tests.support import door
from tests.support.door import Door


@pytest.fixture
def inv(root: Path, tmp_path: Path) -> Door:
    return Door(root, tmp_path)


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_printed_with_the_smallest_packages(flag: str, root: Path, inv: Door) -> None:
    assert door.bootstrap(root).needed_sets([flag]) == ["base"]
    assert inv(flag).stdout == f"paddock {__version__}\n"


def test_the_wheel_has_the_version(root: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "version"]
    assert subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip() == __version__


def test_the_policy_pack_has_the_version(root: Path) -> None:
    assert yaml.safe_load((root / "policy/PulumiPolicy.yaml").read_text())["version"] == __version__


def test_the_changelog_ends_with_the_version(root: Path) -> None:
    headings = re.findall(r"^## (.*)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    releases = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)", heading) for heading in headings[1:]]
    days = [date.fromisoformat(release[2]) for release in releases if release]
    assert [release[1] for release in releases if release][:1] == [__version__]
    assert (len(days), days) == (len(releases), sorted(days, reverse=True)), "newest first, each with its day"


def test_the_changelog_has_the_kinds_of_keep_a_changelog(root: Path) -> None:
    kinds = set(re.findall(r"^### (.*)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_a_form_for_issues_is_one_that_github_takes(name: str, root: Path) -> None:
    form = yaml.safe_load((root / f".github/ISSUE_TEMPLATE/{name}.yml").read_text())
    assert form.keys() == {"name", "description", "labels", "body"}
    questions = [part for part in form["body"] if part["type"] != "markdown"]
    assert {part["type"] for part in questions} <= {"input", "textarea", "dropdown", "checkboxes"}
    assert len({part["id"] for part in questions}) == len(questions)
    assert all(part["attributes"]["label"] for part in questions)
    assert any(part.get("validations", {}).get("required") for part in questions)


def test_a_report_of_a_fault_asks_for_version_and_doctor(root: Path) -> None:
    form = (root / ".github/ISSUE_TEMPLATE/bug.yml").read_text()
    assert "./inv --version" in form
    assert "./inv doctor --json" in form
