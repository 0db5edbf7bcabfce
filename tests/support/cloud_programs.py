"""Stand-ins for `aws` and `gh` while a page is walked through: what they answer, and what they do in the lab.

`python -m tests.support.cloud_programs aws|gh ARGUMENT...`
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from pathlib import Path

import yaml

from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.github import Control
from paddock.lab.providers import aws_command
from paddock.lab.providers.aws_command import KUBECONFIG

GITHUB = "WALK_GITHUB"
"""Address of the lab's GitHub."""
_ACCOUNT = "123456789012"
_PATIENCE = 60.0
"""Seconds that a queued job may take to get a pod."""


def main(program: str, arguments: list[str]) -> int:
    if program == "gh":
        return _gh(arguments)
    match arguments:
        case ["sts", "get-caller-identity"]:
            identity = {"UserId": "made-up", "Account": _ACCOUNT, "Arn": f"arn:aws:iam::{_ACCOUNT}:user/me"}
            _say(json.dumps(identity, indent=4))
        case ["service-quotas", "get-service-quota", *_]:
            _say("0.0")
        case ["service-quotas", "request-service-quota-increase", *_]:
            _say(json.dumps({"RequestedQuota": {"Status": "PENDING"}}, indent=4))
        case ["eks", "update-kubeconfig", "--name", name, "--region", region]:
            target = Path(os.environ["HOME"], ".kube/config")
            target.parent.mkdir(exist_ok=True)
            shutil.copy(os.environ[KUBECONFIG], target)
            _say(f"Added new context arn:aws:eks:{region}:{_ACCOUNT}:cluster/{name} to {target}")
        case _:
            return aws_command.main(arguments)
    return 0


def _gh(arguments: list[str]) -> int:
    """`gh workflow run FILE`: queue the workflow's jobs at the lab's GitHub, and wait until the first has a pod."""
    if arguments[:2] != ["workflow", "run"]:
        return 2
    workflow = yaml.safe_load(Path(".github/workflows", arguments[2]).read_text(encoding="utf-8"))
    for name, job in workflow["jobs"].items():
        Control(os.environ[GITHUB]).push(job["runs-on"], 15.0, name)
    deadline = time.monotonic() + _PATIENCE
    with lab_api(Path(os.environ[KUBECONFIG])) as api:
        while not api.list("v1", "Pod", "arc-runners"):
            if time.monotonic() > deadline:
                return 1
            time.sleep(0.1)
    _say(f"Created workflow_dispatch event for {arguments[2]}")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
