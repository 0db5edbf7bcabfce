"""The workflow that comments on pull requests; tests/images has what holds of all, and tests/doors runs its jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.plan.output import pull_request


@pytest.fixture(scope="module")
def workflow(root: Path) -> dict[str, Any]:
    data: dict[str, Any] = yaml.load((root / ".github/workflows/plan.yml").read_text(), Loader=yaml.BaseLoader)
    return data


def test_only_the_job_without_pull_request_code_may_write(workflow: dict[str, Any]) -> None:
    assert list(workflow["on"]) == ["pull_request"]
    plan, writer = workflow["jobs"]["plan"], workflow["jobs"]["comment"]
    assert "permissions" not in plan
    assert writer["permissions"] == {"pull-requests": "write"}


def test_actions_are_those_of_ci(root: Path) -> None:
    plan_actions, ci_actions = (
        set(re.findall(r"uses: (\S+@[0-9a-f]{40}) # v", (root / f".github/workflows/{name}.yml").read_text()))
        for name in ("plan", "ci")
    )
    assert plan_actions
    assert plan_actions <= ci_actions


def test_every_stack_has_its_output_and_its_marker(root: Path, workflow: dict[str, Any]) -> None:
    stacks = sorted(path.name.split(".")[1] for path in root.glob("Pulumi.*.yaml"))
    for job in workflow["jobs"].values():
        assert sorted(job["strategy"]["matrix"]["stack"]) == stacks
    assert sorted(workflow["jobs"]["plan"]["outputs"]) == stacks
    scripts = "\n".join(step.get("run", "") for job in workflow["jobs"].values() for step in job["steps"])
    assert scripts.count(pull_request.marker("STACK").replace("STACK", "$STACK")) == 2
