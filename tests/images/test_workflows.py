"""The project's own workflows: what they may do, that their commands exist, and what GitHub would refuse."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.images import gateway, runner
from paddock.images.cuda import builder, manifest
from paddock.images.recipes import recipe, wheels
from paddock.tasks.program import contents

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EVERY_WORKFLOW = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
MAY_WRITE = {"plan": {"comment"}, "propose-pin": {"propose"}, "build-images": {"propose"}, "build-ami": {"propose"}}
"""Jobs with a token that may change the repository."""


def read(path: Path) -> dict[str, Any]:
    workflow: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    return workflow


def jobs(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    yield from read(path)["jobs"].items()


def scripts(job: dict[str, Any]) -> Iterator[str]:
    yield from (step["run"] for step in job.get("steps", []) if "run" in step)


def test_actionlint_finds_nothing() -> None:
    actionlint = shutil.which("actionlint")
    if actionlint is None:
        pytest.skip("actionlint is not on PATH")
    result = subprocess.run([actionlint, "-no-color"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@EVERY_WORKFLOW
def test_every_job_ends_and_an_older_run_is_no_rival(path: Path) -> None:
    called = list(read(path)["on"]) == ["workflow_call"]
    assert called or read(path)["concurrency"]["group"]
    for name, job in jobs(path):
        assert "uses" in job or 1 <= int(job["timeout-minutes"]) <= 360, name


@EVERY_WORKFLOW
def test_rights_are_given_to_the_job_that_needs_them(path: Path) -> None:
    assert read(path)["permissions"] in ({"contents": "read"}, {})
    for name, job in jobs(path):
        scopes = {scope for scope, right in job.get("permissions", {}).items() if right == "write"}
        writes = name in MAY_WRITE.get(path.stem, set())
        assert scopes <= ({"contents", "pull-requests"} if writes else {"id-token", "attestations"}), name
        if writes:
            assert not [step for step in job.get("steps", []) if "uses" in step], "it runs nobody's code"
            assert not [script for script in scripts(job) if "./" in script]


@EVERY_WORKFLOW
def test_actions_are_pinned_and_leave_no_credential(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    used = re.findall(r"^ *(?:- )?uses: (.*)$", text, re.MULTILINE)
    assert all(re.fullmatch(r"\./\S+|[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action) for action in used)
    for _, job in jobs(path):
        for step in job.get("steps", []):
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] == "false"


def test_an_action_has_one_version_in_all_workflows() -> None:
    used = {action for path in FILES for action in re.findall(r"uses: ([\w-]+/[\w-]+@.*)", path.read_text())}
    assert len({action.partition("@")[0] for action in used}) == len(used)


@EVERY_WORKFLOW
def test_nothing_from_outside_enters_a_script(path: Path) -> None:
    assert "secrets." not in path.read_text(encoding="utf-8")
    for name, job in jobs(path):
        assert not [script for script in scripts(job) if "${{" in script], name


@EVERY_WORKFLOW
def test_only_a_job_on_one_branch_assumes_a_role(path: Path) -> None:
    """The trust policy of the role says so as well; a pull request must not even ask."""
    takes = [step for _, job in jobs(path) for step in job.get("steps", []) if "configure-aws-credentials" in str(step)]
    if takes:
        on = read(path)["on"]
        assert set(on) <= {"schedule", "push", "workflow_dispatch"}
        assert on.get("push", {"branches": ["main"]})["branches"] == ["main"]


def commands() -> list[tuple[str, str]]:
    """(workflow, words after ./inv) of every task that a workflow runs; what a shell would put in is one word."""
    pairs = []
    for path in FILES:
        for _, job in jobs(path):
            for script in scripts(job):
                whole = script.replace("\\\n", " ")
                pairs += [
                    (path.stem, command) for command in re.findall(r"(?:\./inv|\bpaddock) ([a-z][^\n;|&>]*)", whole)
                ]
    return pairs


@pytest.mark.parametrize(("workflow", "command"), commands())
def test_a_command_of_a_workflow_and_its_flags_exist(workflow: str, command: str) -> None:
    name, *words = re.sub(r"\$\{(\w+):\+([^}]*)\}", r"\2", command).replace('"', "").split()
    found = contents().find(name)
    assert found, f"{workflow}: {contents().explain(name)}"
    flags = {f"--{flag.flag.name}" for flag in found[0].load().parameters.flags()} | {"--json"}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in flags, f"{workflow}: {name} has no {word}"


def test_the_commands_are_found() -> None:
    named = {command.split()[0] for _, command in commands()}
    assert {"plan", "images.build", "images.check", "ami.build", "ami.promote", "gpu.health"} <= named


def test_images_are_rebuilt_when_their_sources_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on = read(ROOT / ".github/workflows/build-images.yml")["on"]
    assert {"schedule", "push", "workflow_dispatch"} == set(on)
    monkeypatch.setattr(wheels, "of_lock", lambda *_: tmp_path)  # nothing is downloaded
    monkeypatch.setattr(manifest, "FOLDER", "not there")  # what this checkout has built is not in git
    gathered = [part for part in runner.parts(ROOT, "amd64", tmp_path).values() if part.is_relative_to(ROOT)]
    sources = [
        *gathered,
        *(ROOT / name for name in wheels.PROJECT),
        *(recipe.folder(ROOT, builder.NAME), recipe.folder(ROOT, gateway.NAME), ROOT / "locks" / "gateway.txt"),
        *(ROOT / "paddock" / "images", ROOT / "infra" / "versions.py"),  # which say how, and with which arguments
    ]
    files = {path for source in sources for path in (source.rglob("*") if source.is_dir() else [source])}
    names = {path.relative_to(ROOT).as_posix() for path in files if path.is_file() and path.suffix != ".pyc"}
    # As GitHub reads them: one star stays in its folder.
    patterns = {
        pattern: re.compile(re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^/]*"))
        for pattern in on["push"]["paths"]
    }
    assert [name for name in sorted(names) if not any(pattern.fullmatch(name) for pattern in patterns.values())] == []
    assert [pattern for pattern, form in patterns.items() if not any(form.fullmatch(name) for name in names)] == []


def test_a_proposed_image_is_signed_in_public_or_on_request() -> None:
    steps = dict(jobs(ROOT / ".github/workflows/build-images.yml"))["build"]["steps"]
    pin = next(number for number, step in enumerate(steps) if step.get("id") == "pin")
    condition, *attested = steps[pin + 1 :]
    assert condition["if"] == "${{ steps.pin.outputs.file }}"
    assert "== public || $ASKED == on" in condition["run"]
    assert attested[-1]["run"] == 'cosign sign --yes "$NAME@$DIGEST"'
    outputs = f"${{{{ steps.{condition['id']}.outputs."
    assert {step["if"] for step in attested} == {f"{outputs}so }}}}", f"{outputs}gateway }}}}"}


GH = """#!/usr/bin/env bash
# GitHub as far as the pin asks it: what an object is made of is its name.
[[ $1 != pr ]] || { echo "$1 $2" >> "$LOG"; exit; }
words=() method=GET
for word in "${@:2}"; do
  case $word in
    GET | POST | PATCH) method=$word ;;
    repos/*) path=${word#repos/acme/fleet/git/} ;;
    *=*) words+=("$word") ;;
  esac
done
case $method-$path in
  GET-ref/*) [[ $THERE ]] || { echo "gh: Not Found (HTTP 404)" >&2; exit 1; } ;;
  GET-commits/*) echo "tree-of-${path#*/}" ;;
  *-refs*) echo "$method $path ${words[*]}" >> "$LOG" ;;
  POST-*) echo "${path%s}(${words[*]})" ;;
esac
"""


@pytest.mark.parametrize(("there", "moved"), [("yes", "PATCH refs/heads/pin"), ("", "POST refs ref=refs/heads/pin")])
def test_a_branch_changes_proposals_without_becoming_empty(there: str, moved: str, tmp_path: Path) -> None:
    """GitHub closes a pull request whose branch is moved to its base, also where a commit follows at once."""
    (job,) = (job for _, job in jobs(ROOT / ".github/workflows/propose-pin.yml"))
    (script,) = scripts(job)
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    environment = {
        "GH_REPO": "acme/fleet", "BASE": "main", "COMMIT": "base", "BRANCH": "pin", "FILE": "Pulumi.prod.yaml",
        "CONTENT": "bmV3", "TITLE": "build: pin", "BODY": "why", "LOG": str(tmp_path / "log"), "THERE": there,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }  # fmt: skip
    subprocess.run(["bash", "-e"], input=script, env=environment, cwd=tmp_path, text=True, check=True)
    blob = "blob(content=bmV3 encoding=base64)"
    entry = f"tree[][path]=Pulumi.prod.yaml tree[][mode]=100644 tree[][type]=blob tree[][sha]={blob}"
    commit = f"commit(message=build: pin tree=tree(base_tree=tree-of-base {entry}) parents[]=base)"
    refs, *requests = (tmp_path / "log").read_text().splitlines()
    assert refs.removesuffix(" force=true") == f"{moved} sha={commit}"
    assert requests == ["pr list", "pr create"]


def test_the_canary_reports_its_findings_also_when_it_fails() -> None:
    (job,) = (job for _, job in jobs(ROOT / ".github/workflows/gpu-canary.yml"))
    assert job["runs-on"] == ["self-hosted", "gpu"]
    first, driver, *checks, summary, keep = job["steps"]
    assert "SAID" in first["run"]
    assert "nvidia-smi" in driver["run"]
    assert all(step["if"] == "${{ !cancelled() }}" for step in checks)
    commands = " ".join(step["run"] for step in checks)
    assert all(command in commands for command in ("nvcc --version", "paddock smoke --tier 2", "bench.compare"))
    assert "--gate" in commands
    assert summary["if"] == keep["if"] == "${{ always() }}"
    # `| tee` hides a failure from a shell without pipefail, which GitHub sets only where bash is named.
    assert read(ROOT / ".github/workflows/gpu-canary.yml")["defaults"]["run"]["shell"] == "bash"


def test_the_canary_passes_on_the_runner_image_of_github(tmp_path: Path) -> None:
    """The steps run for real, in a container's place on a PATH that has the driver's nvidia-smi and a shell's tools."""
    (job,) = (job for _, job in jobs(ROOT / ".github/workflows/gpu-canary.yml"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "cat", "head", "mkdir", "rm", "tee"):
        (programs / name).symlink_to(str(shutil.which(name)))
    (programs / "nvidia-smi").write_text("#!/bin/bash\necho NVIDIA-SMI 580.95.05\n")
    (programs / "nvidia-smi").chmod(0o755)
    summary = tmp_path / "summary.md"
    env = {"PATH": str(programs), "SAID": str(tmp_path / "canary"), "BASELINES": ""}
    env["GITHUB_STEP_SUMMARY"] = str(summary)
    output = ""
    for step in job["steps"]:
        if "run" in step:
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, step["name"] + done.stdout + done.stderr
            output += done.stdout
    skipped = [line.removeprefix("::notice::") for line in output.splitlines() if line.startswith("::notice::")]
    assert len(skipped) == 6
    assert "NVIDIA-SMI 580.95.05" in summary.read_text()


def test_credentials_outlast_the_longest_build_of_a_machine_image() -> None:
    (job,) = (job for name, job in jobs(ROOT / ".github/workflows/build-ami.yml") if name == "build")
    (credentials,) = (step["with"] for step in job["steps"] if "configure-aws-credentials" in step.get("uses", ""))
    (followed,) = (int(n) for script in scripts(job) for n in re.findall(r"--timeout-minutes (\d+)", script))
    assert followed < int(job["timeout-minutes"]) <= int(credentials["role-duration-seconds"]) / 60 == 360
