"""The real ARC, its controller and its listeners, in a lab to which the real program was applied.

GitHub, the nodes and what runs in a runner's pod are stand-ins; everything between them is not.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.console.progress import Progress
from paddock.fleet import Stack, load
from paddock.kubernetes.client import Object
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab import github
from paddock.lab.control_plane import servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.github import Control
from paddock.lab.simulators import arc_programs, nodes
from paddock.lab.simulators.runner_sets import KIND, RUNNER_LABEL, VERSION
from paddock.lab.stack.engine import ROOT, Programs
from paddock.lab.stack.stack import apply

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("arc")]

SYSTEM, RUNNERS, LISTENERS = "arc-systems", "arc-runners", "app.kubernetes.io/component=runner-scale-set-listener"
SERVED = ("self-hosted", "gpu")
PATIENCE_SECONDS = 90.0
"""A listener hears of a change with its next message, which GitHub's stand-in may hold back for 20 s."""


def until(true: Callable[[], Any], description: str, seconds: float = PATIENCE_SECONDS) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < deadline, f"{description}: not so after {seconds:.0f} s"
        time.sleep(0.2)
    return value


class World:
    """The lab, seen from Kubernetes and from GitHub."""

    def __init__(self, lab: Lab, stack: Stack, url: str) -> None:
        self.lab, self.stack, self.url = lab, stack, url
        self.api, self.github = lab_api(lab.kubeconfig), Control(url)

    def push(self, *labels: str, seconds: float = 1.0) -> int:
        return int(self.github.push(labels or SERVED, seconds)["id"])

    def completed(self, job: int) -> Object:
        def over() -> Object | None:
            job_ = self.github.job(job)
            return job_ if job_["state"] == "completed" else None

        return dict(until(over, f"job {job} is completed"))

    def runner_pods(self) -> list[Object]:
        return self.api.list("v1", "Pod", RUNNERS, labelSelector=f"{RUNNER_LABEL}=True")

    def at_work(self) -> list[Object]:
        return [pod for pod in self.runner_pods() if pod["status"].get("phase") in ("Pending", "Running")]

    def ephemeral_runners(self) -> list[Object]:
        return self.api.list(VERSION, "EphemeralRunner", RUNNERS)

    def gpu_nodes(self) -> list[str]:
        nodes_ = self.api.list("v1", "Node", labelSelector="nvidia.com/gpu.present=true")
        return [node["metadata"]["name"] for node in nodes_]

    def listener(self) -> Object | None:
        """Return the pod of the set's listener, once GitHub has its session."""
        running = [pod for pod in self.api.list("v1", "Pod", SYSTEM, labelSelector=LISTENERS)
                   if pod["status"].get("phase") == "Running"]  # fmt: skip
        return running[0] if running and self.github.sets() else None

    def program(self, name: str) -> list[int]:
        """Ids of the processes that run one of ARC's programs."""
        keeper = servers.status(self.lab.folder).running[arc_programs.NAME].pid
        children = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
        return [int(pid) for pid in children if Path(f"/proc/{pid}/exe").readlink().name == name]

    def keep(self, least: int) -> None:
        """Set `minRunners` as the CronJobs of warm capacity do."""
        runner_set = self.api.get(VERSION, KIND, "gpu", RUNNERS)
        self.api.patch(runner_set, {"spec": {"minRunners": least}})

    def empty(self) -> bool:
        return not (self.runner_pods() or self.ephemeral_runners() or self.gpu_nodes())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, engine_programs: Programs) -> Iterator[World]:
    if why := arc_programs.unavailable_reason():
        pytest.skip(f"the real ARC cannot run here: {why}")
    quiet, stack = Progress(quiet=True), load(ROOT, "dev")
    lab, _ = servers.up(tmp_path_factory.mktemp("lab"), progress=quiet)
    try:
        nodes.start(lab, stack, boot_seconds=1, idle_seconds=2)
        url = github.start(lab)
        apply(lab, stack, github=url, progress=quiet)
        arc_programs.start(lab, url)
        world = World(lab, stack, url)
        yield world
        world.api.close()
    finally:
        servers.down(lab.folder)
        assert not _leftovers(lab), "processes of ARC outlived the lab"


def _leftovers(lab: Lab) -> list[str]:
    return [path.name for path in Path("/proc").glob("[0-9]*") if str(lab.folder) in _words(path)]


def _words(path: Path) -> str:
    try:
        return (path / "cmdline").read_text()
    except OSError:
        return ""


@pytest.fixture
def idle(world: World) -> World:
    """Return the world with a listener, without runners and GPU nodes."""
    until(world.listener, "a listener runs")
    until(world.empty, "the pool is empty")
    return world


def test_a_job_scales_gpu_nodes_from_zero_and_back(idle: World) -> None:
    unserved = idle.push("self-hosted", "tpu")
    job = idle.push(seconds=2)
    pod = until(idle.runner_pods, "the controller makes a runner's pod")[0]
    assert [runner["metadata"]["name"] for runner in idle.ephemeral_runners()] == [pod["metadata"]["name"]]

    job_ = idle.completed(job)
    assert [entry["state"] for entry in job_["history"]] == ["queued", "acquired", "running", "completed"]
    assert (job_["result"], job_["runner"]) == ("succeeded", pod["metadata"]["name"])
    assert job_["pod"]["node"] in idle.gpu_nodes()

    until(idle.empty, "the pool returns to zero")
    assert [entry["state"] for entry in idle.github.job(unserved)["history"]] == ["queued"], "nobody serves its labels"
    idle.github.cancel(unserved)


def test_more_jobs_than_runners_wait_for_their_turn(idle: World) -> None:
    most = idle.stack.fleet.max_runners(idle.stack.fleet.runners["gpu"])
    jobs = [idle.push(seconds=1) for _ in range(most + 2)]
    busiest = 0

    def over() -> bool:
        nonlocal busiest
        busiest = max(busiest, len(idle.at_work()))
        return all(idle.github.job(job)["state"] == "completed" for job in jobs)

    until(over, "all jobs are completed", 2 * PATIENCE_SECONDS)
    assert {idle.github.job(job)["result"] for job in jobs} == {"succeeded"}
    assert busiest == most


def test_a_minimum_is_kept_without_jobs_and_given_up_again(idle: World) -> None:
    idle.keep(1)
    warm = until(lambda: [pod for pod in idle.runner_pods() if pod["status"].get("phase") == "Running"], "it is warm")
    assert warm[0]["spec"]["nodeName"] in idle.gpu_nodes()

    job_ = idle.completed(idle.push())
    assert job_["runner"] == warm[0]["metadata"]["name"], "a warm runner takes the job at once"
    until(lambda: [pod for pod in idle.at_work() if pod["metadata"]["name"] != job_["runner"]], "the next one is warm")
    idle.keep(0)
    until(idle.empty, "the pool returns to zero")


def test_a_listener_that_was_killed_has_a_successor_that_goes_on(idle: World) -> None:
    before = idle.listener()
    assert before
    (process,) = idle.program(arc_programs.LISTENER)
    os.kill(process, signal.SIGKILL)
    job = idle.push()

    assert idle.completed(job)["result"] == "succeeded"
    after = until(idle.listener, "a listener runs")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


def test_a_listener_of_runners_that_are_gone_is_made_anew(idle: World) -> None:
    """Recreate the state that a race in ARC itself sometimes leaves behind."""
    pod = idle.listener()
    assert pod
    listener = idle.api.get(VERSION, "AutoscalingListener", pod["metadata"]["name"], SYSTEM)
    idle.api.patch(listener, {"spec": {"ephemeralRunnerSetName": "gone"}})
    (process,) = idle.program(arc_programs.LISTENER)
    os.kill(process, signal.SIGKILL)

    assert idle.completed(idle.push())["result"] == "succeeded"


def test_programs_end_with_the_process_that_runs_them_and_come_back(idle: World) -> None:
    processes = [*idle.program(arc_programs.LISTENER), *idle.program(arc_programs.MANAGER)]
    assert len(processes) == 3, "a listener, and two controllers of which one leads"
    os.kill(servers.status(idle.lab.folder).running[arc_programs.NAME].pid, signal.SIGKILL)
    until(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in processes), "they are ended")

    arc_programs.start(idle.lab, idle.url)
    assert idle.completed(idle.push())["result"] == "succeeded"


def test_keys_and_tokens_are_in_no_log(idle: World) -> None:
    secret = idle.api.get("v1", "Secret", "github-credential", RUNNERS)
    token = next((idle.lab.folder / "run" / arc_programs.NAME).glob("*/account/token")).read_text()
    assert secret["data"]["github_app_private_key"]
    logs = "".join(path.read_text(errors="replace") for path in (idle.lab.folder / "logs").glob("*.log"))
    assert "PRIVATE KEY" not in logs
    assert token not in logs
    for path in (idle.lab.folder / "run" / arc_programs.NAME).rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path
