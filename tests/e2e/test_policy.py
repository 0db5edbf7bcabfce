"""The policy pack inside a preview of the real engine says what the plan says."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock import clock
from paddock.fleet import load
from paddock.lab.stack.engine import ROOT, Engine, EngineError, Programs
from paddock.plan import rules
from paddock.plan.engine.program import plan_graph
from paddock.pulumi_cli.stack import Run

pytestmark = pytest.mark.e2e

KEY = {"paddock:githubAppKey": "made-up-private-key-3f9c1d"}


def good(config: dict[str, Any]) -> None:
    """As it is."""


def bad(config: dict[str, Any]) -> None:
    """Open to everybody, kept from nobody, and with privileged jobs, which are in order in a namespace of their own."""
    fleet = config["paddock:fleet"]
    fleet["cluster"] |= {
        "endpoint": {"allow": "any"},
        "access": {"all": {"principal": "arn:aws:iam::123456789012:root", "policy": "cluster-admin"}},
        "deletionProtection": False,
        "logDays": 7,
    }
    fleet["runners"]["gpu"]["container"] = "dind"


def excused(config: dict[str, Any]) -> None:
    """As bad, but the stack file says why."""
    bad(config)
    soon = str(clock.today() + timedelta(days=30))
    config["paddock:suppressions"] = [
        {
            "rule": rule,
            "resource": name,
            "reason": "a stack to be refused in tests",
            "expires": soon,
        }
        for rule, name in (
            ("PAD003", "cluster-eksCluster"),
            ("PAD005", "cluster-all"),
            ("PAD005", "cluster-all-policy"),
        )
    ]


@pytest.mark.parametrize(
    ("stack", "change", "broken"),
    [("prod", good, set()), ("dev", bad, {"PAD003", "PAD005"}), ("dev", excused, set())],
    ids=["good", "bad", "excused"],
)
def test_a_preview_breaks_the_rules_that_the_plan_says_are_broken(
    stack: str, change: Callable[[dict[str, Any]], None], broken: set[str], programs: Programs, tmp_path: Path
) -> None:
    root = _project(tmp_path / "project", stack, change)
    engine = Engine(tmp_path / "lab", programs, stack=stack, root=root)
    engine.prepare(secret=KEY if stack == "dev" else None)

    if broken:
        with pytest.raises(EngineError, match="PAD003: The Kubernetes API is not open") as error_info:
            engine.run("preview", "--policy-pack", str(root / "policy"))
        result = error_info.value.run
        assert result is not None
    else:
        result = engine.run("preview", "--policy-pack", str(root / "policy"))

    read = load(root, stack)
    accepted = rules.suppressions(read.config, clock.today())
    planned = rules.evaluate(plan_graph(read), read.fleet, accepted, clock.today(), root=ROOT).violations
    assert {violation.rule.id for violation in planned if violation.severity == "error"} == broken
    assert reported(result) == {
        (
            violation.rule.id if violation.severity == violation.rule.severity else f"{violation.rule.id}-advice",
            violation.severity == "error",
            violation.detail.urn,
            f"{violation.detail.subject}: {violation.detail.message}",
        )
        for violation in planned
    }


def reported(result: Run) -> set[tuple[str, bool, str, str]]:
    """Policy, whether it is mandatory, the resource, and what is wrong with it."""
    return {
        (violation.policy, violation.mandatory, violation.urn, violation.message.splitlines()[1])
        for violation in result.violations
    }


def _project(root: Path, stack: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """Return a copy of the project with one stack file changed: the pack reads details from it."""
    for name in ("infra", "runners", "ami", "policy", "images", ".github"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    (root / ".venv").symlink_to(sys.prefix)
    shutil.copy(ROOT / "Pulumi.yaml", root)
    written = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8"))
    change(written["config"])
    (root / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump(written), encoding="utf-8")
    return root
