"""A fleet in operation, by its doors: AWS, Kubernetes, GitHub and Pulumi are stand-ins at the process's boundary."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import pytest

from tests.support import github_api
from tests.support.aws_account import healthy
from tests.support.chain_objects import NODE
from tests.support.door import Here
from tests.support.github_api import GitHubApi, private_key
from tests.support.operation import VERSIONS, Operation
from tests.support.waiting import until


@pytest.mark.door("doctor", "AWS and GitHub over HTTP, programs that state their versions")
def test_doctor_reads_account_github_and_machine(operation: Operation) -> None:
    key = operation.inv.folder / "key.pem"
    key.write_text(private_key())
    api = operation.served.enter_context(github_api.serve(GitHubApi(key.read_text())))
    operation.github(api.url)
    account = operation.account(healthy())
    completed = operation("doctor", "--github-key", "key.pem", "--json", "report.json")
    report = json.loads((operation.inv.folder / "report.json").read_text())
    lines = {(r["area"], r["subject"]): r["status"] for r in report["results"]}
    assert completed.returncode == 0, completed.stdout
    assert lines["github", "installation"] == lines["account", "credentials"] == lines["tools", "docker"] == "pass"
    assert ("account", "clock") in lines
    assert account.called("iam.SimulatePrincipalPolicy")


@pytest.mark.door("doctor", "AWS that does not answer", interrupted=True)
def test_doctor_ends_at_once_when_interrupted(operation: Operation) -> None:
    requested = threading.Event()

    def never(parameters: dict[str, Any]) -> dict[str, Any]:
        requested.set()
        time.sleep(10)
        return {}

    operation.account({"sts.GetCallerIdentity": never})
    running = operation.start("doctor")
    assert requested.wait(60)
    code, _, errors = operation.inv.interrupt(running)
    assert (code, errors) == (130, "interrupted\n")


DOCKER = {
    "no client": ("", "there is no docker on PATH", "engine/install"),
    "no engine": (
        "echo 'Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?' >&2",
        "the docker daemon does not answer",
        "docker context ls",
    ),
    "wrong address": (
        "echo 'error during connect: Get \"http://nowhere:2375/v1.51/version\": dial tcp: lookup nowhere' >&2",
        "the docker daemon does not answer",
        "docker context ls",
    ),
    "wrong context": (
        "echo 'Failed to initialize: unable to resolve docker endpoint: context \"gone\" not found' >&2",
        "docker is set to an engine that it does not know",
        "docker context use default",
    ),
    "hangs": ("exec sleep 100", "docker version did not answer within 10 s", "docker info"),
}


@pytest.mark.e2e
@pytest.mark.door("doctor", "docker without a client, without an engine, set to a wrong one, and one that hangs")
@pytest.mark.parametrize("case", DOCKER)
def test_doctor_says_where_docker_cannot_build(operation: Operation, case: str) -> None:
    script, message, fix = DOCKER[case]
    operation.inv.program(
        "docker", f"#!/bin/sh\n[ $1 = version ] || exec echo '{VERSIONS['docker']}'\n{script}\nexit 1\n"
    )
    if not script:
        (operation.inv.bin / "docker").unlink()
        operation.env["PATH"] = f"{operation.inv.bin}:{operation.without('docker')}"
    completed = operation("doctor", "--json")
    (line,) = (r for r in json.loads(completed.stdout)["results"] if r["subject"] == "docker")
    assert line["status"] == "warn"
    assert message in line["message"]
    assert fix in line["fix"]


@pytest.mark.door("cost", "Cost Explorer over HTTP")
def test_cost_reads_the_bill(operation: Operation) -> None:
    costs = ("UnblendedCost", "AmortizedCost", "NetAmortizedCost")
    amounts = {key: {"Amount": "4.2", "Unit": "USD"} for key in costs} | {
        "UsageQuantity": {"Amount": "20", "Unit": "Hrs"}
    }
    group = {"Keys": ["Name$paddock-dev-t4", "USW2-SpotUsage:g4dn.xlarge"], "Metrics": amounts}
    day = {
        "TimePeriod": {"Start": "2026-11-23", "End": "2026-11-24"},
        "Total": {},
        "Groups": [group],
        "Estimated": False,
    }
    operation.account({"ce.GetCostAndUsage": {"ResultsByTime": [day]}})
    completed = operation("cost", "--json", "cost.json")
    assert completed.returncode == 0, completed.stderr
    assert "bill: 4.20 USD" in completed.stdout
    assert json.loads((operation.inv.folder / "cost.json").read_text())["bill"]["usd"] == 4.2


# Without credentials, cluster or token.

ALONE = {
    "ami.list": "there are no credentials for AWS",
    "runners.upgrade --dry-run": "there is no kubeconfig",
    "cost": "there are no credentials for AWS",
    "runners.drain --yes": "there is no kubeconfig",
    "runners.recycle --yes": "there is no kubeconfig",
    "runners.resume --yes": "there is no kubeconfig",
    "runners.rerun --yes": "--github-key is missing",
    "status": "there is no kubeconfig",
    "verify": "there is no kubeconfig",
    "why": "there is no kubeconfig",
}


@pytest.mark.parametrize("words", ALONE)
def test_without_credentials_one_line_says_so_and_one_what_mends_it(
    operation: Operation, here: Here, words: str
) -> None:
    code, shown, errors = here(*words.split(), env=operation.env)
    assert code in (1, 2)
    assert shown == ""
    first, *rest = errors.splitlines()
    assert first.startswith(ALONE[words])
    assert [line.split(":")[0].strip() for line in rest] in (["fix"], ["expected", "fix"])


@pytest.mark.door("status", "no kubeconfig")
def test_a_process_without_a_kubeconfig_says_the_same(operation: Operation) -> None:
    completed = operation("status")
    assert (completed.returncode, completed.stdout) == (2, "")
    assert completed.stderr.startswith(ALONE["status"])


@pytest.mark.door("destroy", "no Pulumi")
def test_removal_without_pulumi_is_one_message(operation: Operation) -> None:
    (operation.inv.bin / "pulumi").unlink()
    operation.env["PATH"] = f"{operation.inv.bin}:{operation.without('pulumi')}"
    completed = operation("destroy", "--dry-run")
    assert (completed.returncode, completed.stderr.splitlines()[0]) == (2, "pulumi is not on PATH")


@pytest.mark.e2e
@pytest.mark.door("doctor", "no credentials")
def test_doctor_says_once_what_needs_credentials(operation: Operation) -> None:
    completed = operation("doctor")
    assert completed.stdout.count("there are no valid credentials for AWS") == 1
    assert completed.stdout.count("there are no credentials for AWS") == 1


@pytest.mark.parametrize("words", ["status", "why", "verify", "runners.drain --yes", "runners.upgrade --dry-run"])
def test_cluster_that_does_not_answer_is_one_message(operation: Operation, here: Here, words: str) -> None:
    operation.cluster().url = "http://127.0.0.1:9"
    operation.api.kubeconfig(operation.inv.home / "kubeconfig")  # type: ignore[union-attr]
    code, shown, errors = here(*words.split(), *operation.flags, env=operation.env)
    assert (code, shown) == (1, "")
    assert "http://127.0.0.1:9 does not answer" in errors
    assert len(errors.splitlines()) == 2


# Every day.


@pytest.mark.door("status", "a Kubernetes API over HTTP")
def test_status_counts_pools_and_scale_sets(operation: Operation) -> None:
    operation.cluster()
    completed = operation("status", "--json")
    report = json.loads(completed.stdout)
    assert completed.returncode == 0, completed.stderr
    assert [(pool["pool"], pool["ready"]) for pool in report["pools"]] == [("t4", 1)]
    assert report["scale_sets"][0]["running"] == 1


@pytest.mark.door("status", "a Kubernetes API over HTTP", interrupted=True)
def test_status_watches_until_interrupted(operation: Operation) -> None:
    operation.cluster()
    running = operation.start("status", "--watch")
    assert "Status: dev" in running.stdout.readline()
    code, _, errors = operation.inv.interrupt(running)
    assert (code, errors) == (0, "")


@pytest.mark.door("why", "a Kubernetes API over HTTP")
def test_why_finds_nothing_wrong_and_then_the_broken_link(operation: Operation) -> None:
    world = operation.cluster().world
    well = operation("why", "gpu")
    assert well.returncode == 0, well.stdout + well.stderr
    del world.get("Node", NODE)["status"]["allocatable"]["nvidia.com/gpu"]
    world.pending()
    broken = operation("why", "gpu", "--json")
    assert json.loads(broken.stdout)["verdict"] in ("broken", "unknown", "waits")


@pytest.mark.door("verify", "a Kubernetes API over HTTP whose Jobs succeed at once")
def test_verify_proves_nodes_and_takes_jobs_away(operation: Operation) -> None:
    api = operation.cluster()
    completed = operation("verify", "--junit", "junit.xml", "--json")
    report = json.loads(completed.stdout)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert [step["state"] for step in report["steps"]] == ["pass", "pass", "pass", "skip"]
    assert not [item for item in api.world.objects if item["kind"] == "Job"]
    assert (operation.inv.folder / "junit.xml").read_text()


@pytest.mark.door("verify", "a Kubernetes API over HTTP whose Jobs run on", interrupted=True)
def test_verify_takes_jobs_away_when_interrupted(operation: Operation) -> None:
    api = operation.cluster()
    api.phase = "Running"
    running = operation.start("verify")
    until(lambda: any(item["kind"] == "Job" for item in api.world.objects), seconds=60)
    shown, _ = operation.inv.interrupted(running)
    assert "interrupted; " in shown
    assert "nothing left behind" in shown
    assert not [item for item in api.world.objects if item["kind"] == "Job"]
