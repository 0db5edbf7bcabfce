"""A fleet in operation, by its doors: AWS, Kubernetes, GitHub and Pulumi are stand-ins at the process's boundary."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import versions
from paddock.fleet import Stack, load
from paddock.operate.lifecycle.arc import VERSION
from tests.support import actions_api, aws_http, github_api, kubernetes_api, pulumi_program
from tests.support.actions_api import LOST, TOKEN, ActionsApi, stamp
from tests.support.aws_account import Account, Answer, healthy
from tests.support.chain_objects import NODE, POD
from tests.support.chain_world import World
from tests.support.door import Door
from tests.support.engine_stand_in import StandInForPulumi, stack
from tests.support.github_api import GitHubApi, private_key
from tests.support.kubernetes_api import KubernetesApi
from tests.support.waiting import until

VERSIONS = {
    "pulumi": "v3.259.0",
    "aws": "aws-cli/2.31.2 Python/3.13.7 Linux/6.12",
    "kubectl": '{"clientVersion": {"gitVersion": "v1.36.1"}}',
    "docker": "Docker version 28.2.2, build e6534b4",
}
NOWHERE = {
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
}


class Operation:
    """A project, its account, cluster and engine, and the door to its tasks."""

    def __init__(self, inv: Door, root: Path, folder: Path, served: ExitStack) -> None:
        self.inv, self.served = inv, served
        self.project = folder / "project"
        self.project.mkdir()
        for name in ("Pulumi.yaml", "Pulumi.dev.yaml"):
            (self.project / name).write_text((root / name).read_text().replace("203.0.113.0/24", "198.18.0.0/15"))
        for name, text in VERSIONS.items():
            inv.program(name, f"#!/bin/sh\necho '{text}'\n")
        # The doctor asks a service for this machine's address, which no test does.
        self.env = {"PADDOCK_ROOT": str(self.project), "HTTPS_PROXY": "http://127.0.0.1:9"}
        self.api: KubernetesApi | None = None
        self.flags: list[str] = []

    @property
    def stack(self) -> Stack:
        return load(self.project, "dev")

    def account(self, answers: dict[str, Answer]) -> Account:
        account = Account(answers)
        self.env |= self.served.enter_context(aws_http.serve(account))
        return account

    def cluster(self) -> KubernetesApi:
        """Serve a cluster with one runner at work."""
        self.api = self.served.enter_context(
            kubernetes_api.serve(KubernetesApi(World(self.stack, datetime.now(UTC).replace(microsecond=0))))
        )
        file = self.api.kubeconfig(self.inv.home / "kubeconfig")
        self.flags = ["--kubeconfig", str(file)]
        return self.api

    def github(self, url: str) -> None:
        """Let the stack's GitHub be a server at an address."""
        path = self.project / "Pulumi.dev.yaml"
        document = yaml.safe_load(path.read_text())
        document["config"]["paddock:fleet"]["github"] |= {"url": f"{url}/acme", "serverVersion": "3.21"}
        path.write_text(yaml.safe_dump(document, sort_keys=False))

    def engine(self, version: str) -> StandInForPulumi:
        """Put a Pulumi on PATH whose stack has ARC at a version."""
        engine = StandInForPulumi(stack(version), lambda name, urns: None)
        self.inv.program("pulumi", self.served.enter_context(pulumi_program.program(engine)))
        return engine

    @staticmethod
    def without(name: str) -> str:
        """Return PATH without the folders that have a program of that name."""
        folders = os.environ["PATH"].split(os.pathsep)
        return os.pathsep.join(folder for folder in folders if not Path(folder, name).exists())

    def __call__(self, *words: str, env: dict[str, str] | None = None) -> Any:
        return self.inv(*words, *self.flags, env={**self.env, **(env or {})})

    def start(self, *words: str) -> Any:
        return self.inv.start(*words, *self.flags, env=self.env)


@pytest.fixture
def operation(inv: Door, root: Path, tmp_path: Path) -> Iterator[Operation]:
    with ExitStack() as served:
        yield Operation(inv, root, tmp_path, served)


# Before there is a fleet.


@pytest.mark.door("doctor", "AWS and GitHub over HTTP, programs that state their versions")
def test_doctor_reads_account_github_and_machine(operation: Operation) -> None:
    key = operation.inv.folder / "key.pem"
    key.write_text(private_key())
    api = operation.served.enter_context(github_api.serve(GitHubApi(key.read_text())))
    operation.github(api.url)
    account = operation.account(healthy())
    told = operation("doctor", "--github-key", "key.pem", "--json", "report.json")
    report = json.loads((operation.inv.folder / "report.json").read_text())
    lines = {(r["area"], r["subject"]): r["status"] for r in report["results"]}
    assert told.returncode == 0, told.stdout
    assert lines["github", "installation"] == lines["account", "credentials"] == lines["tools", "docker"] == "pass"
    assert ("account", "clock") in lines
    assert account.called("iam.SimulatePrincipalPolicy")


@pytest.mark.door("doctor", "AWS that does not answer", interrupted=True)
def test_doctor_ends_at_once_when_interrupted(operation: Operation) -> None:
    asked = threading.Event()

    def never(parameters: dict[str, Any]) -> dict[str, Any]:
        asked.set()
        time.sleep(10)
        return {}

    operation.account({"sts.GetCallerIdentity": never})
    running = operation.start("doctor")
    assert asked.wait(60)
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
    told = operation("doctor", "--json")
    (line,) = (r for r in json.loads(told.stdout)["results"] if r["subject"] == "docker")
    assert line["status"] == "warn"
    assert message in line["message"]
    assert fix in line["fix"]


@pytest.mark.door("cost", "Cost Explorer over HTTP")
def test_cost_reads_the_bill(operation: Operation) -> None:
    amounts = {"UnblendedCost": {"Amount": "4.2", "Unit": "USD"}, "UsageQuantity": {"Amount": "20", "Unit": "Hrs"}}
    group = {"Keys": ["Name$paddock-dev-t4", "USW2-SpotUsage:g4dn.xlarge"], "Metrics": amounts}
    day = {
        "TimePeriod": {"Start": "2026-11-23", "End": "2026-11-24"},
        "Total": {},
        "Groups": [group],
        "Estimated": False,
    }
    operation.account({"ce.GetCostAndUsage": {"ResultsByTime": [day]}})
    told = operation("cost", "--json", "cost.json")
    assert told.returncode == 0, told.stderr
    assert "bill: 4.20 USD" in told.stdout
    assert json.loads((operation.inv.folder / "cost.json").read_text())["bill"]["usd"] == 4.2


# Without credentials, cluster or token.

ALONE = {
    "ami.list": "there are no credentials for AWS",
    "arc.upgrade --dry-run": "there is no kubeconfig",
    "cost": "there are no credentials for AWS",
    "runners.drain --yes": "there is no kubeconfig",
    "runners.recycle --yes": "there is no kubeconfig",
    "runners.resume --yes": "there is no kubeconfig",
    "runners.rerun --yes": "--github-key is missing",
    "status": "there is no kubeconfig",
    "verify": "there is no kubeconfig",
    "why": "there is no kubeconfig",
}


@pytest.mark.door("cost", "no credentials")
@pytest.mark.parametrize("words", ALONE)
def test_without_credentials_one_line_says_so_and_one_what_mends_it(operation: Operation, words: str) -> None:
    told = operation(*words.split())
    assert told.returncode in (1, 2)
    assert told.stdout == ""
    first, *rest = told.stderr.splitlines()
    assert first.startswith(ALONE[words])
    assert [line.split(":")[0].strip() for line in rest] in (["fix"], ["expected", "fix"])


@pytest.mark.door("fleet.destroy", "no Pulumi")
def test_removal_without_pulumi_is_one_message(operation: Operation) -> None:
    (operation.inv.bin / "pulumi").unlink()
    operation.env["PATH"] = f"{operation.inv.bin}:{operation.without('pulumi')}"
    told = operation("fleet.destroy", "--dry-run")
    assert (told.returncode, told.stderr.splitlines()[0]) == (2, "pulumi is not on PATH")


@pytest.mark.e2e
@pytest.mark.door("doctor", "no credentials")
def test_doctor_says_once_what_needs_credentials(operation: Operation) -> None:
    told = operation("doctor")
    assert told.stdout.count("there are no valid credentials for AWS") == 1
    assert told.stdout.count("there are no credentials for AWS") == 1


@pytest.mark.door("status", "a cluster that does not answer")
@pytest.mark.parametrize("words", ["status", "why", "verify", "runners.drain --yes", "arc.upgrade --dry-run"])
def test_cluster_that_does_not_answer_is_one_message(operation: Operation, words: str) -> None:
    operation.cluster().url = "http://127.0.0.1:9"
    operation.api.kubeconfig(operation.inv.home / "kubeconfig")  # type: ignore[union-attr]
    told = operation(*words.split())
    assert (told.returncode, told.stdout) == (1, "")
    assert "http://127.0.0.1:9 does not answer" in told.stderr
    assert len(told.stderr.splitlines()) == 2


# Every day.


@pytest.mark.door("status", "a Kubernetes API over HTTP")
def test_status_counts_pools_and_scale_sets(operation: Operation) -> None:
    operation.cluster()
    told = operation("status", "--json")
    report = json.loads(told.stdout)
    assert told.returncode == 0, told.stderr
    assert [(pool["pool"], pool["ready"]) for pool in report["pools"]] == [("t4", 1)]
    assert report["scale_sets"][0]["running"] == 1


@pytest.mark.door("status", "a Kubernetes API over HTTP", interrupted=True)
def test_status_watches_until_interrupted(operation: Operation) -> None:
    operation.cluster()
    running = operation.start("status", "--watch")
    assert "Status of dev" in running.stdout.readline()
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
    told = operation("verify", "--junit", "junit.xml", "--json")
    report = json.loads(told.stdout)
    assert told.returncode == 0, told.stdout + told.stderr
    assert [step["state"] for step in report["steps"]] == ["pass", "pass", "pass", "skip"]
    assert not [item for item in api.world.objects if item["kind"] == "Job"]
    assert (operation.inv.folder / "junit.xml").read_text()


@pytest.mark.door("verify", "a Kubernetes API over HTTP whose Jobs run on", interrupted=True)
def test_verify_takes_jobs_away_when_interrupted(operation: Operation) -> None:
    api = operation.cluster()
    api.phase = "Running"
    running = operation.start("verify")
    until(lambda: any(item["kind"] == "Job" for item in api.world.objects), seconds=60)
    code, shown, errors = operation.inv.interrupt(running)
    assert code == 130
    assert "interrupted; " in shown
    assert "nothing left behind" in shown
    assert "Traceback" not in errors
    assert not [item for item in api.world.objects if item["kind"] == "Job"]


@pytest.mark.door("runners.drain", "a Kubernetes API over HTTP")
@pytest.mark.door("runners.resume", "a Kubernetes API over HTTP")
def test_runners_are_drained_and_resumed(operation: Operation) -> None:
    world = operation.cluster().world
    before = world.runner_set["spec"]["maxRunners"]
    drained = operation("runners.drain", "--yes")
    assert drained.returncode == 0, drained.stdout + drained.stderr
    assert world.runner_set["spec"]["maxRunners"] == 0
    resumed = operation("runners.resume", "--yes", "--json")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert json.loads(resumed.stdout)["command"] == "resume"
    assert world.runner_set["spec"]["maxRunners"] == before


@pytest.mark.door("runners.drain", "a runner whose job does not end", interrupted=True)
def test_drain_that_waits_stays_drained_when_interrupted(operation: Operation) -> None:
    api = operation.cluster()
    world = api.world
    running = operation.start("runners.drain", "--yes", "--wait")
    until(lambda: world.runner_set["spec"]["maxRunners"] == 0, seconds=60)
    _reads_anew(api)
    code, shown, errors = operation.inv.interrupt(running)
    assert code == 130
    assert "runners.resume" in shown + errors
    assert "Traceback" not in errors


@pytest.mark.door("runners.recycle", "a Kubernetes API over HTTP")
def test_failed_runner_is_deleted(operation: Operation) -> None:
    world = operation.cluster().world
    world.another("gpu-abc12-runner-dead1", phase="Failed")
    shown = operation("runners.recycle", "--dry-run")
    assert world.has("EphemeralRunner", "gpu-abc12-runner-dead1"), shown.stdout
    told = operation("runners.recycle", "--yes")
    assert told.returncode == 0, told.stdout + told.stderr
    assert not world.has("EphemeralRunner", "gpu-abc12-runner-dead1")
    assert world.has("EphemeralRunner", POD), "a runner with a job is never deleted"


@pytest.fixture
def lost(operation: Operation) -> ActionsApi:
    """A job that failed when its node went, and what GitHub, AWS and the cluster say of it."""
    at = datetime.now(UTC).replace(microsecond=0)
    api = operation.served.enter_context(actions_api.serve(ActionsApi(at)))
    operation.github(api.url)
    world = operation.cluster().world
    world.pod["metadata"]["creationTimestamp"] = stamp(at - timedelta(minutes=45))
    world.drop("Node", NODE)
    instance = {
        "InstanceId": "i-0a",
        "State": {"Name": "terminated"},
        "StateReason": {"Code": "Server.SpotInstanceTermination"},
        "StateTransitionReason": f"Service initiated ({at - timedelta(minutes=11):%Y-%m-%d %H:%M:%S GMT})",
        "PrivateDnsName": NODE,
        "LaunchTime": at - timedelta(hours=3),
        "InstanceLifecycle": "spot",
        "Tags": [{"Key": "eks:nodegroup-name", "Value": "t4-spot-0a1b2c3"}],
    }
    operation.account({**world.answers(), "ec2.DescribeInstances": {"Reservations": [{"Instances": [instance]}]}})
    api.run(1)
    api.job(1, 42, LOST, runner_name=POD)
    (operation.inv.folder / "token").write_text(TOKEN)
    return api


@pytest.mark.door("runners.rerun", "GitHub's REST API, Kubernetes and AWS over HTTP")
def test_job_whose_node_was_taken_back_is_run_again(operation: Operation, lost: ActionsApi) -> None:
    flags = ("--github-key", "token", "--repository", "acme/app", "--since", "1d")
    planned = operation("runners.rerun", "--dry-run", *flags)
    assert lost.posted == [], planned.stdout
    told = operation("runners.rerun", "--yes", *flags, "--json")
    assert [line["state"] for line in json.loads(told.stdout)["jobs"]] == ["rerun"], told.stdout
    assert lost.posted == ["/api/v3/repos/acme/app/actions/jobs/42/rerun"]


@pytest.mark.door("runners.rerun", "GitHub's REST API, Kubernetes and AWS over HTTP", interrupted=True)
def test_watch_for_lost_jobs_ends_when_interrupted(operation: Operation, lost: ActionsApi) -> None:
    flags = ("--github-key", "token", "--repository", "acme/app", "--since", "1d")
    running = operation.start("runners.rerun", "--watch", "--dry-run", *flags)
    assert "acme/app, run 1" in running.stdout.readline()
    code, _, errors = operation.inv.interrupt(running)
    assert (code, errors) == (0, "")


# The last days.


@pytest.fixture
def old(operation: Operation) -> KubernetesApi:
    """A cluster with an older ARC and no runner, and its Pulumi stack."""
    api = operation.cluster()
    world = api.world
    world.no_runner()
    older = versions.ARC.rpartition(".")[0] + ".0"

    def label(kind: str, name: str, version: str) -> None:
        world.get(kind, name)["metadata"]["labels"][VERSION] = version

    label("Deployment", "arc-gha-rs-controller", older)
    label("AutoscalingRunnerSet", "", older)
    engine = operation.engine(older)

    def changed(name: str, urns: list[str]) -> None:
        if name == "up controller":
            label("Deployment", "arc-gha-rs-controller", versions.ARC)
        elif name.startswith("up"):
            label("AutoscalingRunnerSet", "", versions.ARC)

    engine.changed = changed
    return api


@pytest.mark.door("arc.upgrade", "Kubernetes over HTTP, and a program in the place of Pulumi")
def test_arc_is_brought_to_the_pinned_version(operation: Operation, old: KubernetesApi) -> None:
    before = old.world.runner_set["spec"]["maxRunners"]
    shown = operation("arc.upgrade", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    told = operation("arc.upgrade", "--yes", "--json")
    report = json.loads(told.stdout)
    assert told.returncode == 0, told.stdout
    assert {phase["state"] for phase in report["phases"]} <= {"done", "unchanged"}
    assert old.world.runner_set["spec"]["maxRunners"] == before


@pytest.mark.door("arc.upgrade", "a runner whose job does not end", interrupted=True)
def test_upgrade_says_how_to_go_on_when_interrupted(operation: Operation, old: KubernetesApi) -> None:
    old.world.another("gpu-abc12-runner-busy1", phase="Running", runnerId=8, jobId="j8", jobDisplayName="other")
    running = operation.start("arc.upgrade", "--yes")
    until(lambda: old.world.runner_set["spec"]["maxRunners"] == 0, seconds=60)
    _reads_anew(old)
    code, shown, errors = operation.inv.interrupt(running)
    assert code == 130
    assert "interrupted runners end" in " ".join(shown.split())
    assert "arc.upgrade" in shown
    assert "Traceback" not in errors


@pytest.fixture
def leaving(operation: Operation) -> KubernetesApi:
    """A fleet without jobs that is removed, in an account that then has nothing of it."""
    api = operation.cluster()
    api.world.no_runner()
    operation.engine(versions.ARC)

    def arc_removes(verb: str, item: dict[str, Any]) -> None:
        if verb == "DELETE" and item["kind"] == "AutoscalingRunnerSet":
            arc = ("AutoscalingListener", "EphemeralRunnerSet", "EphemeralRunner")
            api.world.objects[:] = [one for one in api.world.objects if one["kind"] not in arc]

    api.changed = arc_removes
    operation.account(
        {
            "resourcegroupstaggingapi.GetResources": {"ResourceTagMappingList": []},
            "ecr.ListImages": {"imageIds": []},
            "eks.DescribeCluster": lambda asked: {"cluster": {"name": asked["name"], "deletionProtection": False}},
        }
    )
    return api


@pytest.mark.door("fleet.destroy", "Kubernetes and AWS over HTTP, and a program in the place of Pulumi")
def test_fleet_is_removed_and_what_stays_is_said(operation: Operation, leaving: KubernetesApi) -> None:
    shown = operation("fleet.destroy", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert leaving.world.has("AutoscalingRunnerSet", "gpu")
    told = operation("fleet.destroy", "--yes", "--json")
    report = json.loads(told.stdout)
    assert told.returncode == 0, told.stdout
    assert {phase["state"] for phase in report["phases"]} <= {"done", "unchanged"}
    assert not leaving.world.has("AutoscalingRunnerSet", "gpu")
    assert report["stays"], "what is protected stays, and is said"


@pytest.mark.door("fleet.destroy", "a controller that does not sign runners off", interrupted=True)
def test_removal_says_how_to_go_on_when_interrupted(operation: Operation, leaving: KubernetesApi) -> None:
    leaving.changed = lambda verb, item: None
    running = operation.start("fleet.destroy", "--yes")
    until(lambda: not leaving.world.has("AutoscalingRunnerSet", "gpu"), seconds=60)
    _reads_anew(leaving)
    code, shown, errors = operation.inv.interrupt(running)
    assert code == 130
    assert "interrupted" in shown
    assert "fleet.destroy" in shown
    assert "Traceback" not in errors


def _reads_anew(api: KubernetesApi) -> None:
    """Wait until a task whose change was answered looks at what became of it."""
    seen = len(api.requests)
    until(lambda: len(api.requests) > seen, seconds=60)
