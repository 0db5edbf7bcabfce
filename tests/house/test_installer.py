"""An environment that works keeps working, whatever happens to an installation."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.explore import count

from .conftest import INSTALLERS, Checkout

OFFLINE = {"PATH": "/nowhere", "PIP_INDEX_URL": "http://127.0.0.1:9/"}
UNREACHABLE = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "UV_HTTP_RETRIES": "0"}

HALF = """\
#!/bin/sh
# uv, or what it leaves when it ends half-way: the package counts as installed and lacks files.
[ "$1" = pip ] && [ ! -e {done} ] || exec {uv} "$@"
{uv} "$@"
rm {site}/other_data/1*.txt
touch {done}
{end}
"""
NO_SPACE = 'echo "error: Failed to install: other"; echo "  Caused by: No space left on device (os error 28)"; exit 2'


def half_way(checkout: Checkout, end: str, folder: str = ".venv") -> None:
    """Replace uv by one that ends half-way, once."""
    uv = checkout.bin / "uv"
    real = uv.resolve()
    uv.unlink()
    (site,) = (checkout.venv / "lib").glob("python*/site-packages")
    site = checkout.root / folder / site.relative_to(checkout.venv)
    uv.write_text(HALF.format(uv=real, site=site, done=checkout.bin / "done", end=end))
    uv.chmod(0o755)


def adding(checkout: Checkout) -> str:
    """`base` is there, and `dev` has a package more."""
    checkout.lock("1.0", "dev", package="other")
    checkout.run("list")
    return "test"


def changing(checkout: Checkout) -> str:
    """`base` and `infra` are there, and a package of `infra` gets another version."""
    checkout.lock("1.0", "infra", package="other")
    checkout.run("plan")
    checkout.lock("2.0", "infra", package="other")
    return "plan"


CHANGES = pytest.mark.parametrize("change", [adding, changing])


def works_offline(checkout: Checkout) -> None:
    completed = checkout.run("list", **OFFLINE)
    assert (completed.returncode, completed.stderr) == (0, "")
    assert "tiny 1.0" in completed.stdout


@pytest.mark.e2e
@pytest.mark.at_length
@CHANGES
def test_what_worked_works_after_a_kill_at_any_moment(change, checkout: Checkout, tmp_path: Path) -> None:
    task = change(checkout)
    saved, log = tmp_path / "saved", tmp_path / "steps"
    shutil.copytree(checkout.venv, saved, symlinks=True)
    killed_at = [sys.executable, str(Path(__file__).with_name("killed_at.py")), str(checkout.root / "inv")]

    def run(step: int) -> int:
        command = [*killed_at, str(step), str(log), task]
        return subprocess.run(command, cwd=checkout.root, env=checkout.env, capture_output=True, timeout=600).returncode

    assert run(0) == 0
    steps = int(log.read_text())
    for step in sorted(random.Random(20).sample(range(1, steps + 1), count(3, steps))):
        for folder in checkout.root.glob(".venv*/"):
            shutil.rmtree(folder)
        shutil.copytree(saved, checkout.venv, symlinks=True)
        assert run(step) == -signal.SIGKILL
        works_offline(checkout)
        completed = checkout.run(task)
        assert completed.returncode == 0, completed.stderr
        assert (checkout.venv / "bin/other").exists()


@pytest.mark.parametrize("end", ["kill -9 $PPID", NO_SPACE], ids=["killed", "disk full"])
@CHANGES
def test_a_package_that_was_half_written_is_written_anew(change, end: str, checkout: Checkout) -> None:
    task = change(checkout)
    half_way(checkout, end, ".venv" if change is adding else ".venv.next")
    completed = checkout.run(task)
    assert completed.returncode in (1, -signal.SIGKILL)
    if completed.returncode == 1:
        assert "The disk is full" in completed.stderr
        assert ".venv is as it was: what worked before works" in completed.stderr
    works_offline(checkout)

    assert checkout.run(task).returncode == 0
    assert len(list(checkout.venv.glob("lib/python*/site-packages/other_data/*"))) == 20


@CHANGES
def test_without_network_nothing_is_lost(change, checkout: Checkout) -> None:
    task = change(checkout)
    completed = checkout.run(task, **UNREACHABLE)
    assert completed.returncode == 1
    assert "The package index cannot be reached" in completed.stderr
    assert ".venv is as it was: what worked before works" in completed.stderr
    works_offline(checkout)


def test_two_runs_at_once_add_both_their_sets(checkout: Checkout) -> None:
    task = adding(checkout)
    checkout.lock("1.0", "docs", package="third")
    both = [
        subprocess.Popen(checkout.command(word), env=checkout.env, stdout=subprocess.DEVNULL) for word in (task, "docs")
    ]
    assert [process.wait(600) for process in both] == [0, 0]
    for word in (task, "docs", "list"):
        assert checkout.run(word, **OFFLINE).stderr == ""


def test_an_installer_that_outlives_its_run_is_waited_for(checkout: Checkout) -> None:
    task = adding(checkout)
    ends, outlived = checkout.bin / "ends", checkout.bin / "outlived"
    half_way(checkout, f"kill -9 $PPID; while [ ! -e {ends} ]; do sleep 0.02; done; touch {outlived}")
    assert checkout.run(task).returncode == -signal.SIGKILL
    waiting = subprocess.Popen(
        checkout.command(task), env=checkout.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert waiting.stderr
    assert "another ./inv is installing; waiting for it" in waiting.stderr.readline()
    ends.touch()
    waiting.communicate(timeout=600)
    assert outlived.exists()
    assert waiting.returncode == 0


def test_a_successor_holds_every_set_that_stays_true(checkout: Checkout) -> None:
    checkout.lock("1.0", "docs", package="third")
    checkout.run("docs")
    task = changing(checkout)
    (checkout.venv / "mine").touch()
    completed = checkout.run(task)
    assert "making the successor of .venv next to it (other 1.0 becomes 2.0)" in completed.stderr
    assert [checkout.run(word, **OFFLINE).stderr for word in ("list", "docs", "plan")] == ["", "", ""]
    assert (checkout.venv / "mine").exists()


def test_scripts_of_a_successor_run(checkout: Checkout) -> None:
    checkout.run(changing(checkout))
    for script in ("tiny", "other", "paddock"):
        completed = subprocess.run([checkout.venv / "bin" / script], capture_output=True, text=True, env=checkout.env)
        assert (completed.returncode, completed.stderr) == (0, "")
    assert ".venv.next" not in (checkout.venv / "bin/activate").read_text()


@INSTALLERS
def test_a_moved_checkout_needs_no_network(checkout: Checkout, installer: str) -> None:
    """uv may have gone since, and pip is then added."""
    checkout.run("list")
    moved = checkout.root.with_name("elsewhere")
    checkout.root.rename(moved)
    checkout.root = moved
    if installer == "pip":
        checkout.without_uv()
    completed = checkout.run("list", **UNREACHABLE, PIP_RETRIES="0")
    assert f"in {moved}" in completed.stdout, completed.stderr
    assert "making" in completed.stderr
    script = subprocess.run([moved / ".venv/bin/tiny"], capture_output=True, text=True)
    assert script.stdout == "tiny\n"


def make_venv(folder: Path, *packages: str, checkout: Checkout) -> None:
    """As another tool does."""
    uv = [str(checkout.bin / "uv"), "--quiet"]
    subprocess.run([*uv, "venv", str(folder), "--python", sys.executable], check=True, env=checkout.env)
    if packages:
        command = [*uv, "pip", "install", "--python", str(folder / "bin/python"), *packages]
        subprocess.run([*command, "--index-url", checkout.index.as_uri()], check=True, env=checkout.env)


def test_an_environment_of_another_tool_is_adopted(checkout: Checkout) -> None:
    checkout.lock("1.0", package="third")
    make_venv(checkout.venv, "third", checkout=checkout)
    completed = checkout.run("list")
    assert "tiny 1.0" in completed.stdout, completed.stderr
    assert ".venv was not made by ./inv; packages are added to it" in completed.stderr
    assert (checkout.venv / "bin/third").exists()


@pytest.mark.e2e
def test_pip_of_another_tool_keeps_to_the_locked_versions(checkout: Checkout) -> None:
    checkout.without_uv()
    (checkout.root / "locks/constraints.txt").write_text("tiny==1.0\n")
    checkout.run("list")
    checkout.lock("2.0")
    command = [checkout.venv / "bin/python", "-m", "pip", "install", "--upgrade", "tiny"]
    subprocess.run(command, check=True, env=checkout.env, capture_output=True)
    assert "tiny 1.0" in checkout.run("list").stdout


def test_what_another_tool_made_is_kept_when_versions_change(checkout: Checkout) -> None:
    checkout.lock("0.9")
    make_venv(checkout.venv, "tiny==0.9", checkout=checkout)
    completed = checkout.run("list")
    assert "tiny 1.0" in completed.stdout, completed.stderr
    assert "what was there before is .venv-before now" in completed.stderr
    assert list(checkout.root.glob(".venv-before/lib/python*/site-packages/tiny-0.9.dist-info"))


def test_what_a_link_leads_to_is_left_alone(checkout: Checkout, tmp_path: Path) -> None:
    checkout.lock("0.9")
    make_venv(tmp_path / "shared", "tiny==0.9", checkout=checkout)
    checkout.venv.symlink_to(tmp_path / "shared")
    completed = checkout.run("list")
    assert "tiny 1.0" in completed.stdout, completed.stderr
    assert f".venv was a link to {tmp_path}/shared, which stays as it is" in completed.stderr
    assert list(tmp_path.glob("shared/lib/python*/site-packages/tiny-0.9.dist-info"))


def test_the_environment_of_another_checkout_is_not_taken_over(checkout: Checkout, tmp_path: Path) -> None:
    checkout.run("list")
    other = tmp_path / "other"
    shutil.copytree(checkout.root, other, symlinks=True, ignore=shutil.ignore_patterns(".venv*"))
    (other / ".venv").symlink_to(checkout.venv)
    command = [sys.executable, str(other / "inv"), "list"]
    completed = subprocess.run(command, cwd=other, env=checkout.env, capture_output=True, text=True)
    assert f"in {other}" in completed.stdout, completed.stderr
    assert checkout.run("list").stderr == ""


@pytest.mark.parametrize("kind", ["dangling", "no python", "system packages"])
def test_what_cannot_be_used_is_refused_and_kept(kind: str, checkout: Checkout, tmp_path: Path) -> None:
    match kind:
        case "dangling":
            checkout.venv.symlink_to(tmp_path / "gone")
        case "no python":
            (checkout.venv / "notes").mkdir(parents=True)
        case "system packages":
            make_venv(checkout.venv, checkout=checkout)
            settings = checkout.venv / "pyvenv.cfg"
            settings.write_text(settings.read_text().replace("packages = false", "packages = true"))
    completed = checkout.run("list")
    assert completed.returncode == 1
    assert "Nothing was changed; rename or delete it and run again" in completed.stderr
    assert os.path.lexists(checkout.venv)


def test_a_python_that_is_gone_is_replaced_by_one_that_runs(checkout: Checkout) -> None:
    checkout.run("list")
    for link in checkout.venv.glob("bin/python*"):
        link.unlink()
    (checkout.venv / "bin/python").symlink_to("/gone/python3.10")
    completed = checkout.run("list")
    assert "its Python, " in completed.stderr
    assert "the old one, " in completed.stderr
    assert "tiny 1.0" in completed.stdout


def test_where_nothing_can_be_linked_the_size_is_said(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, inv, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(1, "Operation not permitted")

    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/tool").write_text("x" * 3_000_000)
    monkeypatch.setattr(os, "link", refuse)
    inv.clone(str(tmp_path / "venv"), str(tmp_path / "next"), [])
    assert "there are no hard links here: 3 MB are copied" in capsys.readouterr().err
    assert (tmp_path / "next/bin/tool").stat().st_size == 3_000_000
