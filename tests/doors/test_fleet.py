"""A fleet before it costs money, by its doors."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path

import pytest
import yaml

from paddock.plan.command import PlanParameters, plan
from tests.support.door import Door
from tests.support.github_api import private_key
from tests.support.on_terminal import CTRL_C, on_terminal
from tests.support.performing import performed

ANSWERS = {"url": "https://github.com/acme", "region": "us-west-2", "allow": "198.18.0.7/32", "gpu": "t4"}


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Path:
    """Return a folder with the project's file and stack `dev`, which a task may write into."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
        shutil.copy(root / name, folder)
    return folder


@pytest.mark.door("init", "flags, and the plan of what was written")
def test_flags_make_a_stack_that_plans(inv: Door, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [word for name, value in ANSWERS.items() for word in (f"--{name}", value)]
    made = inv("init", *flags, "--yes", "--json", env={"PADDOCK_ROOT": str(project)})
    assert made.returncode == 0, made.stderr
    written = yaml.safe_load((project / "Pulumi.ci.yaml").read_text())["config"]["paddock:fleet"]
    assert written["github"]["url"] == ANSWERS["url"]
    assert json.loads(made.stdout)["stack"] == "ci"
    assert performed(plan, project, PlanParameters(stack="ci")) == 0
    gc.enable()  # the command switches it off for its own short process
    assert capsys.readouterr().out.startswith("Plan: ci")


@pytest.mark.door("init", "no terminal to ask on")
def test_nothing_is_asked_where_nobody_answers(inv: Door, project: Path) -> None:
    refused = inv("init", env={"PADDOCK_ROOT": str(project)})
    assert refused.returncode == 2
    assert "--url" in refused.stderr
    assert not (project / "Pulumi.ci.yaml").exists()


@pytest.mark.door("init", "a terminal with somebody who answers, and one who presses Ctrl-C", interrupted=True)
@pytest.mark.parametrize(
    ("typed", "code"), [(["acme", "us-west-2", "t4", "198.18.0.7/32"], 0), (["acme", "mars-1", CTRL_C], 130)]
)
def test_answers_on_a_terminal_make_a_stack(inv: Door, project: Path, typed: list[str], code: int) -> None:
    ended, shown = on_terminal(inv, "init", env={"PADDOCK_ROOT": str(project)}, typed=typed)
    assert ended == code, shown
    assert (project / "Pulumi.ci.yaml").exists() == (code == 0)
    assert "Traceback" not in shown


@pytest.mark.door("plan", "the program of this checkout")
def test_plan_of_dev_is_printed_written_and_compared(inv: Door) -> None:
    planned = inv("plan", "--json", "plan.json", "--html", "plan.html", "--markdown", "plan.md")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith("Plan: dev")
    assert json.loads((inv.folder / "plan.json").read_text())["schema"].startswith("paddock.plan/")
    assert "<html" in (inv.folder / "plan.html").read_text()
    same = inv("plan", "--against", "plan.json", "--comment", "comment.md")
    assert same.returncode == 0, same.stderr
    assert (inv.folder / "comment.md").read_text()


@pytest.mark.door("plan", "the program of this checkout", interrupted=True)
def test_plan_ends_at_once_when_interrupted(inv: Door) -> None:
    planning = inv.start("plan", "--stack", "prod")
    inv.runs(planning)
    code, _, errors = inv.interrupt(planning)
    assert (code, errors) == (130, "interrupted\n")


@pytest.mark.door("init", "the model of this checkout")
def test_schema_of_stack_and_fleet_is_printed(inv: Door, root: Path) -> None:
    stack, fleet = inv("init", "--schema"), inv("init", "--schema", "--fleet")
    assert json.loads(stack.stdout) == json.loads((root / "docs/fleet.schema.json").read_text())
    assert "pools" in json.loads(fleet.stdout)["properties"]


@pytest.mark.door("init.permissions", "the program of this checkout")
def test_permissions_are_shown_and_written(inv: Door) -> None:
    shown = inv("init.permissions", "--write", "policies", "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["stack"] == "dev"
    written = sorted((inv.folder / "policies").glob("*.json"))
    assert written
    assert all(json.loads(file.read_text())["Statement"] for file in written)


@pytest.mark.door("init.github", "a key that was just made")
def test_app_form_is_printed_and_its_key_looked_at(inv: Door) -> None:
    (inv.folder / "key.pem").write_text(key := private_key())
    shown = inv("init.github", "--url", "acme", "--key", "key.pem", "--manifest", "app.json")
    assert shown.returncode == 0, shown.stderr
    assert "https://github.com/organizations/acme/settings/apps/new" in shown.stdout
    assert key.splitlines()[1] not in shown.stdout
    assert json.loads((inv.folder / "app.json").read_text())["default_permissions"]
