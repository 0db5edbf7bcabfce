"""Steps of workflows that call a task are run as written, with stand-ins for docker, aws, gh and AWS."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from tests.support import aws_server, docker_program, workflow
from tests.support.ami_account import World
from tests.support.ami_account import world as world
from tests.support.checkout import with_pipeline
from tests.support.door import Door, real
from tests.support.fleets import serve
from tests.support.image_builder import AMI

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / ".github" / "workflows"
RUN_HERE = {
    "build-images": {"build"},
    "build-ami": {"build"},
    "plan": {"plan"},
    "gpu-canary": {"canary"},
    "docs/day-two": {"rerun"},
}
"""Jobs whose steps a test below runs. `ci` calls `.ci/run`, `explore` the suite, a job of `propose-pin` no task."""


def test_every_job_that_calls_a_task_is_run_here() -> None:
    written = {path.stem: [workflow.read(path.read_text(encoding="utf-8"))] for path in WORKFLOWS.glob("*.yml")}
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", *(ROOT / "ami").glob("*.md")]
    written |= {f"docs/{page.stem}": list(workflow.of_page(page)) for page in pages}
    calling = {
        name: {job for one in workflows for job, text in one["jobs"].items() if workflow.calls_us(text)}
        for name, workflows in written.items()
    }
    assert {name: jobs for name, jobs in calling.items() if jobs} == {**RUN_HERE, "explore": {"explore"}}


def _workflow(name: str) -> dict[str, Any]:
    return workflow.read((WORKFLOWS / f"{name}.yml").read_text(encoding="utf-8"))


@pytest.fixture
def programs(inv: Door) -> Door:
    """Put the stand-ins for programs on PATH that are not a task's counterpart; `sudo` runs nothing."""
    for name in ("bash", "git", "jq"):
        real(name)
    inv.program("sudo", "#!/bin/sh\n")
    inv.program("cosign", f'#!/bin/sh\necho "$@" >> {inv.home}/cosign\n')
    inv.program("gh", f'#!/bin/sh\necho "$@" >> {inv.home}/gh\ncase "$*" in *visibility*) echo public ;; esac\n')
    inv.program("aws", f'#!/bin/sh\necho "$@" >> {inv.home}/aws\necho of-twelve-hours\n')
    return inv


@pytest.fixture
def cloud() -> Iterator[aws_server.AwsServer]:
    with mock_aws(), aws_server.serve() as server:
        yield server


@pytest.mark.door("images.build", "a docker program that keeps images in a file, and AWS as an HTTP server over moto")
@pytest.mark.door("images.check", "a docker program that keeps images in a file")
def test_the_weekly_images_are_built_pushed_pinned_and_signed(
    programs: Door, project: Path, cloud: aws_server.AwsServer
) -> None:
    state = docker_program.install(programs)
    serve(project / "Pulumi.dev.yaml")
    contexts = {
        "vars": {"PADDOCK_STACK": "dev", "PADDOCK_PUSH_ROLE": "arn", "PADDOCK_ATTEST": "on"},
        "inputs": {"cuda": "12.8", "ubuntu": "22.04"},
        "github": {"token": "t"},
    }
    environ = programs.environment({**cloud.env, "GITHUB_REPOSITORY": "acme/fleet"})
    job = workflow.Job(_workflow("build-images"), "build", project, environ, contexts)
    outputs = job.run()
    assert outputs["image"].endswith("@sha256:" + "2" * 64)
    assert outputs["stack"] == "dev"
    assert outputs["image"] in base64.b64decode(outputs["file"]).decode()
    assert (project / "cuda-build" / "manifest.json").exists()
    assert [call[1] for call in docker_program.calls(state, "push")] == [
        image.partition("@")[0] for image in (outputs["image"], outputs["gateway"])
    ]
    assert outputs["gateway"] in base64.b64decode(outputs["file"]).decode()
    summary = job.summary.read_text()
    assert summary.startswith(f"### {outputs['image']}")
    assert "| 4 | `RUN make` |" in summary
    signed = [
        f"{image.partition('@')[0].rpartition(':')[0]}@{image.partition('@')[2]}"
        for image in (outputs["image"], outputs["gateway"])
    ]
    assert (programs.home / "cosign").read_text().splitlines() == [f"sign --yes {name}" for name in signed]


def test_the_weekly_machine_image_is_built_and_pinned(programs: Door, tmp_path: Path, world: World) -> None:
    from tests.doors.test_ami import Builder

    folder = with_pipeline(ROOT, tmp_path / "project")
    workflow.checkout_of(folder, ROOT, sys.executable)
    builder = Builder(world)
    with aws_server.serve(builder.answers()) as cloud:
        environ = programs.environment(cloud.env)
        contexts = {"vars": {"PADDOCK_STACK": "dev"}, "inputs": {"execution": ""}}
        job = workflow.Job(_workflow("build-ami"), "build", folder, environ, contexts)
        outputs = job.run()
    assert outputs["ami"] == builder.id != AMI
    assert builder.id in base64.b64decode(outputs["file"]).decode()
    assert f"### {builder.id}" in job.summary.read_text()


def test_a_pull_request_is_planned_and_its_comment_written(programs: Door, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir(exist_ok=True)
    for name in ("base", "head"):
        folder = here / name
        folder.mkdir()
        for file in ("Pulumi.yaml", "Pulumi.dev.yaml", "Pulumi.prod.yaml"):
            shutil.copy(ROOT / file, folder)
        workflow.checkout_of(folder, ROOT, sys.executable)
    stack = here / "head" / "Pulumi.dev.yaml"
    stack.write_text(stack.read_text().replace("max: ", "max: 1", 1))
    environ = programs.environment({})
    job = workflow.Job(_workflow("plan"), "plan", here, environ, {"matrix": {"stack": "dev"}})
    outputs = job.run()
    assert outputs["dev"].startswith("<!-- paddock-plan stack=dev -->")
    assert "cannot be compared" not in outputs["dev"]
    contexts = {
        "matrix": {"stack": "dev"}, "needs": {"plan": {"outputs": outputs}},
        "github": {"repository": "acme/fleet", "event": {"pull_request": {"number": "7"}}},
    }  # fmt: skip
    workflow.Job(_workflow("plan"), "comment", here, environ, contexts).run()
    last = (programs.home / "gh").read_text().splitlines()[-1]
    assert last == "api --silent --method POST repos/acme/fleet/issues/7/comments --field body=@comment.md"
    assert (here / "comment.md").read_text().rstrip("\n") == outputs["dev"].rstrip("\n")


READ_ALONE = f'#!/bin/sh\nPADDOCK_PARSE_ONLY=1 exec "{sys.executable}" -P -m paddock "$@"\n'
"""Tasks whose command line alone is read: their counterpart is a fleet's node or cluster. It is the console program, as
in an image: `./inv` would fetch gigabytes for some."""


def test_the_canarys_commands_are_those_of_the_tasks(programs: Door, tmp_path: Path, nvml_library: Path) -> None:
    """The steps run to their end: health of a made-up driver, and the words for other tasks are read."""
    programs.program("paddock", READ_ALONE)
    case = f'case "$1" in -m) shift 2; exec {programs.bin}/paddock "$@" ;; *) cat > /dev/null ;; esac\n'
    programs.program("python3", f"#!/bin/sh\n{case}")
    programs.program("nvidia-smi", "#!/bin/sh\necho NVIDIA-SMI 580.95.05\n")
    contexts = {"github": {"workspace": str(tmp_path)}, "vars": {"PADDOCK_BASELINES": str(tmp_path)}}
    driver = {"LD_LIBRARY_PATH": str(nvml_library), "FAKE_NVML_COUNT": "1", "FAKE_NVML_LINKS": "0"}
    job = workflow.Job(_workflow("gpu-canary"), "canary", programs.folder, programs.environment(driver), contexts)
    job.run()
    assert "NVIDIA-SMI 580.95.05" in job.summary.read_text()


def test_the_workflow_of_the_page_reruns_jobs(programs: Door) -> None:
    (shown,) = (one for one in workflow.of_page(ROOT / "docs" / "day-two.md") if "rerun" in one["jobs"])
    (programs.folder / "inv").write_text(READ_ALONE)
    (programs.folder / "inv").chmod(0o755)
    contexts = {"github": {"token": "t"}, "vars": {"PADDOCK_STACK": "dev", "PADDOCK_CLUSTER": "paddock-dev"}}
    environ = programs.environment({"GITHUB_REPOSITORY": "acme/fleet"})
    job = workflow.Job(shown, "rerun", programs.folder, environ, contexts)
    job.run()
    assert (job.temp / "token").read_text() == "t"
    assert json.dumps((programs.home / "aws").read_text()).startswith('"eks update-kubeconfig --name paddock-dev')
