"""The stand-in for ARC: what it makes of a scale set and of GitHub's messages, and how a job's life is told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.arc import runner_pod
from paddock.lab.control_plane.servers import Lab
from paddock.lab.demo import demo
from paddock.lab.errors import LabInputError
from paddock.lab.github.client import Actions, Token
from paddock.lab.github.server import Server
from paddock.lab.simulators import runner_sets, timeline, workflow_pods
from paddock.lab.simulators.listener import Listener
from paddock.lab.simulators.timeline import JobTimeline, Snapshot
from tests.support import fleets, kubernetes
from tests.support.github_control import FaultyGitHub
from tests.support.waiting import until

Object = dict[str, Any]
LABELS = ["self-hosted", "gpu"]


def a_set(**spec: Any) -> Object:
    runner_set = kubernetes.runner_set(fleets.example("dev").fleet, "gpu")
    runner_set["metadata"] |= {"uid": "1-2-3", "labels": {"app.kubernetes.io/version": "0.14.2"}}
    runner_set["spec"] |= spec
    return runner_set


# Pods of a scale set.


def test_a_runner_pod_is_the_template_with_arcs_labels() -> None:
    runner_set = a_set()
    template = runner_set["spec"]["template"]
    template["metadata"]["labels"] = {"team": "ml", "actions-ephemeral-runner": "no"}
    owner = {"kind": "EphemeralRunner", "metadata": {"name": "gpu-runner-abcde", "uid": "4-5-6"}}
    pod = runner_sets.runner_pod(runner_set, "gpu-runner-abcde", owner)
    assert pod["spec"] == template["spec"]
    assert pod["metadata"]["annotations"] == template["metadata"]["annotations"]
    assert pod["metadata"]["labels"] == {
        "team": "ml",
        "actions-ephemeral-runner": "True",
        "actions.github.com/organization": "acme",
        "actions.github.com/scale-set-name": "gpu",
        "actions.github.com/scale-set-namespace": "arc-runners",
        "app.kubernetes.io/component": "runner",
        "app.kubernetes.io/part-of": "gha-runner-scale-set",
        "app.kubernetes.io/version": "0.14.2",
    }
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "4-5-6"
    pod["spec"]["containers"].clear()
    assert template["spec"]["containers"], "the next pod would have none"


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 100))
def test_the_warm_runners_come_on_top_and_the_maximum_holds(least: int, more: int, assigned: int) -> None:
    desired = runner_sets.desired_runners(a_set(minRunners=least, maxRunners=least + more), assigned)
    assert least <= desired <= least + more
    assert desired == least + assigned or desired == least + more


def test_a_set_without_a_maximum_has_none() -> None:
    runner_set = a_set()
    del runner_set["spec"]["maxRunners"], runner_set["spec"]["minRunners"]
    assert runner_sets.desired_runners(runner_set, 5000) == 5000


def test_pending_and_young_runners_are_removed_first() -> None:
    def pod(name: str, created: str, node: str, phase: str) -> Object:
        meta = {"name": name, "creationTimestamp": created}
        return {"metadata": meta, "spec": {"nodeName": node}, "status": {"phase": phase}}

    runner_pods = [
        pod("works", "2026-01-01T00:00:09Z", "n1", "Running"),
        pod("old", "2026-01-01T00:00:01Z", "", "Pending"),
        pod("starts", "2026-01-01T00:00:05Z", "n2", "Pending"),
        pod("young", "2026-01-01T00:00:03Z", "", "Pending"),
    ]
    order = [pod["metadata"]["name"] for pod in runner_sets.surplus(runner_pods)]
    assert order == ["young", "old", "starts", "works"]


def test_only_jobs_with_their_own_pods_have_a_template() -> None:
    for stack in ("dev", "prod"):
        fleet = fleets.example(stack).fleet
        for name, runner in fleet.runners.items():
            pod = kubernetes.runner(fleet, name)
            own = runner_pod.template_name(runner) if runner.container == "kubernetes-novolume" else ""
            assert workflow_pods.template_map(pod) == own, name


# The listener.


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server(0)
    server.poll_seconds = 0.1
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/sessions", {"status": 500, "times": 2}),
        ("/queue/", {"status": 500, "times": 2}),
        ("/queue/", {"status": 401, "times": 2}),
        ("/queue/", {"status": 429, "retry_after": 0}),
        ("/acquirejobs", {"status": 500}),
        ("/acquirejobs", {"status": 401}),
        ("/runner-registration", {"status": 401, "times": 2}),
        ("", {"seconds": 0.1, "times": 5}),
    ],
)
def test_a_listener_acquires_a_job_whatever_github_answers_first(
    server: Server, monkeypatch: pytest.MonkeyPatch, path: str, fault: Object
) -> None:
    monkeypatch.setattr("paddock.lab.github.messages.OFFER_SECONDS", 0.1)
    monkeypatch.setattr("paddock.lab.simulators.listener._PATIENCE_SECONDS", (0.01, 0.1))
    control, changed = FaultyGitHub(server.url), threading.Event()
    number = Actions(f"{server.url}/acme", Token("ghp_x")).create_set("gpu", 1, LABELS)["id"]
    control.fault(path, **fault)
    listener = Listener(lambda: Actions(f"{server.url}/acme", Token("ghp_x")), number, "gpu-listener", 5, changed.set)
    listener.start()
    try:
        job = control.push(LABELS)["id"]
        until(lambda: control.job(job)["state"] == "acquired")
        until(lambda: listener.assigned == 1)
        assert changed.is_set()
    finally:
        listener.end()
    listener.join(5)
    assert not listener.is_alive()
    Actions(f"{server.url}/acme", Token("ghp_x")).open_session(number, "the next one, at once")


# The life of a job.

START = 1_800_000_000.0  # 2027-01-15T08:00:00Z


def a_job(*states: str, runner: str = "", labels: list[str] | None = None, number: int = 1) -> Object:
    history = [{"state": state, "at": START + 0.25 * step} for step, state in enumerate(states)]
    return {
        "id": number,
        "name": "job",
        "labels": labels or LABELS,
        "state": states[-1],
        "result": "succeeded" if states[-1] == "completed" else "",
        "scale_set": "gpu" if len(states) > 1 else "",
        "runner": runner,
        "registered": START + 0.3 if runner else None,
        "pod": {},
        "history": history,
    }


def a_pod(name: str, created: str = "2027-01-15T08:00:00Z", node: str = "", message: str = "") -> Object:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    labels = {"actions.github.com/scale-set-name": "gpu"}
    meta = {"name": name, "namespace": "arc-runners", "creationTimestamp": created, "labels": labels}
    spec = {"containers": [{"name": "runner"}], **({"nodeName": node} if node else {})}
    return {
        "metadata": meta,
        "spec": spec,
        "status": {"phase": "Pending", "conditions": [condition] if message else []},
    }


def snapshot(
    *jobs: Object, pods: tuple[Object, ...] = (), nodes: tuple[Object, ...] = (), **events: list[Object]
) -> Snapshot:
    sets = [{"name": "gpu", "labels": [{"name": label} for label in LABELS]}]
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    by_object = {("Pod", name.replace("_", "-")): named for name, named in events.items()}
    return Snapshot(jobs, sets, by_name, {}, {node["metadata"]["name"]: node for node in nodes}, by_object, [a_set()])


def only_timeline(snapshot_: Snapshot) -> JobTimeline:
    (life,) = timeline.from_snapshot(snapshot_)
    return life


def test_what_has_not_come_has_no_time() -> None:
    life = only_timeline(snapshot(a_job("queued", labels=["self-hosted", "tpu"])))
    assert life.seconds("queued") == 0.0
    assert {life.seconds(step.name) for step in life.steps[1:]} == {None}
    assert life.why == "no scale set has all of its labels: self-hosted, tpu"
    assert only_timeline(snapshot(a_job("queued"))).why == "scale set gpu has not acquired it"


def test_whole_seconds_keep_the_order_of_steps() -> None:
    life = only_timeline(snapshot(a_job("queued", "acquired", "running", runner="r"), pods=(a_pod("r"),)))
    assert life.seconds("pod made") == 0.3, "08:00:00 is anything up to 08:00:01"
    late = a_pod("r", created="2027-01-15T08:00:04Z")
    assert (
        only_timeline(snapshot(a_job("queued", "acquired", "running", runner="r"), pods=(late,))).seconds("pod made")
        == 4.0
    )


def test_an_event_says_to_the_microsecond_when_a_pod_was_scheduled() -> None:
    scheduled = {"reason": "Scheduled", "eventTime": "2027-01-15T08:00:02.500000Z", "message": ""}
    life = only_timeline(
        snapshot(a_job("queued", "acquired", "running", runner="r"), pods=(a_pod("r", node="n"),), r=[scheduled])
    )
    assert life.seconds("scheduled") == 2.5
    assert life.step("pod waits").note == "not at all"
    assert life.step("node ready").note == "unknown"


def test_what_nobody_wrote_down_is_unknown() -> None:
    life = only_timeline(snapshot(a_job("queued", "acquired", "running", "completed", runner="gone")))
    assert life.step("pod made") == timeline.JobStep("pod made", None, "unknown")
    assert life.seconds("scheduled") is None
    assert (life.pod, life.node) == ("", "")


def test_a_node_that_was_there_before_is_not_waited_for() -> None:
    node = {
        "metadata": {"name": "n", "labels": {}},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T07:00:00Z"}]},
    }
    job = a_job("queued", "acquired", "running", runner="r")
    life = only_timeline(snapshot(job, pods=(a_pod("r", node="n"),), nodes=(node,)))
    assert life.step("node ready") == timeline.JobStep("node ready", None, "it was there before")


def test_the_oldest_waiting_pod_is_that_of_the_oldest_job() -> None:
    first, second = a_job("queued", "acquired"), a_job("queued", "acquired", number=2)
    second["history"][1]["at"] += 1
    young = a_pod("a", created="2027-01-15T08:00:03Z", message="0/1 nodes are available: why. preemption: none.")
    old = a_pod("z", created="2027-01-15T08:00:02Z", message="other")
    lives = timeline.from_snapshot(snapshot(second, first, pods=(young, old)))
    assert [(life.number, life.pod) for life in lives] == [(2, "arc-runners/a"), (1, "arc-runners/z")]
    assert lives[0].why == "0/1 nodes are available: why."


def test_a_later_observation_keeps_what_an_earlier_one_had() -> None:
    job = a_job("queued", "acquired", "running", runner="r")
    before = only_timeline(snapshot(job, pods=(a_pod("r", node="n"),)))
    after = only_timeline(snapshot(a_job("queued", "acquired", "running", "completed", runner="r"))).after(before)
    assert after.seconds("pod made") == 0.3
    assert (after.state, after.node, after.pod) == ("completed", "n", "arc-runners/r")
    assert after.with_step("node gone", START + 9).seconds("node gone") == 9.0


# Bad input of the demo.


@pytest.mark.parametrize(
    ("runner", "seconds", "message"),
    [
        ("gpuu", 1.0, "did you mean gpu"),
        ("cpu-large", 1.0, "expected: one of gpu"),
        ("gpu", 0.0, "cannot work for 0.0 seconds"),
        ("gpu", float("nan"), "cannot work for nan seconds"),
        ("gpu", 1e9, "at most a day"),
    ],
)
def test_a_demo_of_what_is_not_there_starts_nothing(
    tmp_path: Path, runner: str, seconds: float, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LabInputError, match=message):
        demo(Lab(tmp_path, {}, {}, ()), fleets.example("dev"), runner=runner, job_seconds=seconds)
    assert capsys.readouterr().out == ""
