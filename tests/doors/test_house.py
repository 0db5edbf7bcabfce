"""The chores of this repository, in a small copy of it: its checkers and resolver are stand-ins, pytest is real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support import aws_http
from tests.support.aws_account import Account
from tests.support.door import Door, bootstrap, real

_TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >>{log}
if [ "$(basename "$0")" = "$FAILS" ]; then echo "$FAILS found something"; exit 1; fi
"""
_UV = """#!{python}
import os, sys, time
words = sys.argv[1:]
name = words[words.index("--output-file") + 1]
if os.environ.get("STOPS_AT", "-") in name:
    print("here", flush=True)
    time.sleep(600)
with open(name, "a") as file:
    file.write(f"{{words[2]}}\\n")
"""
_TESTS = """
def test_first(): pass
def test_second(): pass
def test_third(): assert False
"""


@pytest.fixture
def small(inv: Door, tmp_path: Path) -> Door:
    """Return a door into a copy of the project, whose environment has this one's packages and its own programs."""
    root, log = tmp_path / "copy", tmp_path / "log"
    shutil.copytree(inv.root / "paddock", root / "paddock", ignore=shutil.ignore_patterns("__pycache__", "lab", "site"))
    shutil.copytree(inv.root / "locks", root / "locks")
    for name in ("inv", "pyproject.toml", "tasks.py"):
        shutil.copy2(inv.root / name, root / name)
    (root / "tests").mkdir()
    (root / "tests/test_small.py").write_text(_TESTS)
    (root / ".ci").mkdir()
    (root / ".ci/run").touch()
    venv = root / ".venv"
    site = venv / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    for folder in (venv / "bin", venv / "installed", site):
        folder.mkdir(parents=True)
    (venv / "bin/python").symlink_to(os.path.realpath(sys.executable))
    (venv / "pyvenv.cfg").write_text(f"home = {Path(os.path.realpath(sys.executable)).parent}\n")
    (site / "all.pth").write_text(f"{root}\n{Path(pytest.__file__).parents[1]}\n")
    for name in ("ruff", "lint-imports", "mypy", "shellcheck"):
        (venv / "bin" / name).write_text(_TOOL.format(log=log))
        (venv / "bin" / name).chmod(0o755)
    (venv / "bin/uv").write_text(_UV.format(python=sys.executable))
    (venv / "bin/uv").chmod(0o755)
    own = bootstrap(root)
    (venv / "installed/dev.txt").write_bytes(own.stamp_text(str(venv), "dev"))
    inv.root = root
    return inv


def _called(door: Door) -> list[str]:
    log = door.folder.parent / "log"
    return [line.split()[0] for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.door("lint", "stand-ins for the checkers")
def test_every_checker_runs_and_the_ones_that_fail_are_named(small: Door) -> None:
    assert small("lint").returncode == 0
    assert _called(small) == ["ruff", "ruff", "lint-imports", "mypy", "shellcheck"]
    failed = small("lint", env={"FAILS": "ruff"})
    assert (failed.returncode, failed.stderr) == (
        1, "lint: ruff check, ruff format failed. `./inv lint --fix` repairs what it can.\n"
    )  # fmt: skip
    assert _called(small)[5:] == ["ruff", "ruff", "lint-imports", "mypy", "shellcheck"]


@pytest.mark.door("test", "real pytest on three tests")
def test_words_behind_the_dashes_go_to_pytest_as_they_are(small: Door) -> None:
    passed = small("test", "--", "-n0", "-k", "first or second")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "2 passed, 1 deselected" in passed.stdout
    assert small("test", "-k", "third", "--", "-n0").returncode == 1


@pytest.mark.door("check", "stand-ins for the checkers, real pytest")
def test_a_check_lints_and_then_tests(small: Door) -> None:
    failed = small("check", env={"FAILS": "mypy"})
    assert (failed.returncode, failed.stderr) == (1, "lint: mypy failed.\n")
    assert "passed" not in failed.stdout
    tested = small("check")
    assert tested.returncode == 1
    assert "1 failed, 2 passed" in tested.stdout


@pytest.mark.door("check", "stand-ins for the checkers, real git and pytest")
def test_a_fast_check_looks_at_what_changed_alone(small: Door) -> None:
    (small.root / "tests/conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--within')\n")
    (small.root / "tests/test_other.py").write_text("def test_other(): assert False\n")
    (small.root / ".gitignore").write_text(".venv\n__pycache__\n")
    user = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([real("git"), *user, *words], cwd=small.root, check=True)
    unchanged = small("check", "--fast")
    assert (unchanged.returncode, _called(small)) == (0, [])
    assert unchanged.stdout == "nothing differs from HEAD; `./inv check` checks everything\n"

    (small.root / "tests/test_small.py").write_text("def test_first(): pass\n")
    checked = small("check", "--fast")
    assert checked.returncode == 0, checked.stdout
    assert "1 passed" in checked.stdout
    assert _called(small) == ["ruff", "ruff"]
    refused = small("check", "--since", "HAED")
    assert refused.returncode == 2
    assert refused.stderr.startswith("--since HAED: fatal: bad revision 'HAED'\n    expected: a commit")


@pytest.mark.door("lock", "a stand-in for uv", interrupted=True)
def test_locks_are_replaced_together_or_not_at_all(small: Door) -> None:
    before = {path.name: path.read_bytes() for path in (small.root / "locks").rglob("*.txt")}
    process = small.start("lock", env={"STOPS_AT": "serve.txt"})
    assert process.stdout
    assert process.stdout.readline() == "here\n"
    code, _, err = small.interrupt(process)
    assert (code, err.splitlines()[-1]) == (130, "interrupted")
    assert {path.name: path.read_bytes() for path in (small.root / "locks").rglob("*.txt")} == before
    assert small("lock").returncode == 0
    assert (small.root / "locks/base.txt").read_text() == "pyproject.toml\n"
    assert (small.root / "locks/constraints.txt").read_bytes() == before["constraints.txt"] + b"pyproject.toml\n"


@pytest.mark.door("completion", "a real bash")
def test_what_completes_is_read_by_a_shell(inv: Door) -> None:
    printed = inv("completion", "--shell", "bash")
    assert printed.returncode == 0, printed.stderr
    shell = ["bash", "-c", f"{printed.stdout}\ncomplete -p inv"]
    completed = subprocess.run(shell, capture_output=True, text=True, check=True)
    assert "_paddock_complete inv" in completed.stdout
    unset = inv("completion", env={"SHELL": ""})
    assert (unset.returncode, unset.stdout) == (2, "")


@pytest.mark.door("catalog.refresh", "AWS without credentials")
@pytest.mark.parametrize("profile", ["absent", None])
def test_without_credentials_the_facts_stay_and_one_message_says_why(inv: Door, profile: str | None) -> None:
    named = {"AWS_PROFILE": profile} if profile else {}
    files = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), os.devnull)
    refused = inv("catalog.refresh", "--dry-run", env={**files, "AWS_EC2_METADATA_DISABLED": "true", **named})
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("there are no credentials for AWS")
    assert len(refused.stderr.splitlines()) == 3
    assert "\n    fix: aws sso login" in refused.stderr


@pytest.mark.door("catalog.refresh", "AWS over HTTP, which allows one of the sources")
def test_a_source_that_answers_is_read_and_the_others_say_why_not(inv: Door) -> None:
    price = {
        "InstanceType": "g4dn.xlarge", "SpotPrice": "0.1234", "AvailabilityZone": "us-west-2a",
        "ProductDescription": "Linux/UNIX", "Timestamp": datetime(2026, 11, 23, tzinfo=UTC),
    }  # fmt: skip
    github = {"GITHUB_API_URL": "http://127.0.0.1:1"}
    with aws_http.serve(Account({"ec2.DescribeSpotPriceHistory": {"SpotPriceHistory": [price]}})) as env:
        read = inv("catalog.refresh", "--region", "us-west-2", "--dry-run", "--json", env={**env, **github})
    sources = {source["source"]: source for source in json.loads(read.stdout)["sources"]}
    assert read.returncode == 1
    (changed,) = sources.pop("spot")["changed"]
    assert changed.startswith("g4dn.xlarge us-west-2 spot")
    assert changed.endswith("-> 0.1234")
    assert sources.pop("faults")["failed"].startswith("GitHub does not answer /repos/")
    assert all("AWS denies " in source["failed"] for source in sources.values())
