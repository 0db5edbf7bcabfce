"""A GPU job from its push to the node that is given back, with stand-ins for GitHub and ARC in a real control plane."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import yaml

from infra.arc import runner_pod
from paddock.fleet import Stack
from paddock.kubernetes import pods
from paddock.kubernetes.client import Api, Object
from paddock.lab import github
from paddock.lab.control_plane import daemon, servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.demo import demo
from paddock.lab.simulators import arc, runner_sets, timeline
from paddock.lab.simulators.scaling import Group
from paddock.lab.simulators.timeline import JobTimeline
from tests.support import spot
from tests.support.github_control import FaultyGitHub
from tests.support.kubernetes import applied, gpu_nodes, runner_set
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

LABELS = ["self-hosted", "gpu"]
MakeSet = Callable[..., Object]


def over(hub: FaultyGitHub, *numbers: int) -> Callable[[], bool]:
    return lambda: all(job["state"] == "completed" for job in hub.jobs() if job["id"] in numbers)


def job_timeline(lab: Lab, number: int) -> JobTimeline:
    return next(entry for entry in timeline.job_timelines(lab) if entry.number == number)


def started(hub: FaultyGitHub, number: int) -> Object | None:
    job = hub.job(number)
    return job if job["state"] == "running" else None


# One job.


def test_a_job_scales_a_pool_from_zero_and_back(
    cluster: Lab,
    hub: FaultyGitHub,
    api: Api,
    stack: Stack,
    make_set: MakeSet,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_set()
    until(lambda: not gpu_nodes(api))  # those of other tests
    story = demo(cluster, stack, job_seconds=1.0)
    assert story.ok, story.document()
    assert not gpu_nodes(api)
    assert story.job.node.startswith("t4-spot-")
    steps = [
        "queued",
        "acquired",
        "pod made",
        "pod waits",
        "node asked",
        "node ready",
        "scheduled",
        "started",
        "completed",
        "node gone",
    ]
    times = [story.job.seconds(step) or 0.0 for step in steps]
    assert times == sorted(times)
    assert times[-2] - times[-3] >= 1.0, "the job did not work as long as it was to"
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" s  ")[1].split("  ")[0].strip() for line in lines[1:-1]] == steps
    assert lines[-1] == "pool t4 is back at 0 nodes"
    assert json.loads(json.dumps(story.document()))["ok"]
    afterwards = job_timeline(cluster, story.job.number)
    assert (afterwards.node, afterwards.pod) == (story.job.node, story.job.pod)
    assert afterwards.seconds("scheduled") == story.job.seconds("scheduled")


def test_its_pod_is_the_one_of_the_template(hub: FaultyGitHub, api: Api, namespace: str, make_set: MakeSet) -> None:
    runner_set_ = make_set()
    job = hub.push(LABELS, 3600)["id"]
    until(lambda: started(hub, job))
    (pod,) = api.list("v1", "Pod", namespace)
    template = runner_set_["spec"]["template"]
    same = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "same", "namespace": namespace}}
    expected = api.create({**same, "spec": template["spec"]}, dry_run=True)
    pod["spec"].pop("nodeName")
    assert pod["spec"] == expected["spec"]
    annotations = pod["metadata"]["annotations"]
    assert template["metadata"]["annotations"].items() <= annotations.items()
    assert pod["metadata"]["labels"]["actions-ephemeral-runner"] == "True"
    assert pod["metadata"]["labels"]["actions.github.com/scale-set-name"] == runner_set_["metadata"]["name"]


def test_a_job_in_its_own_pod_holds_the_gpu_alone(
    cluster: Lab, hub: FaultyGitHub, api: Api, stack: Stack, namespace: str, make_set: MakeSet
) -> None:
    runner = stack.fleet.runners["gpu"].model_copy(update={"container": "kubernetes-novolume"})
    fleet = stack.fleet.model_copy(update={"runners": {"gpu": runner}})
    template = {"pod.yaml": yaml.safe_dump(runner_pod.job_template(fleet, runner))}
    named = {"name": runner_pod.template_name(runner), "namespace": namespace}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": template})
    make_set(template=runner_pod.runner_template(fleet, runner))
    job = hub.push(LABELS, 2.0)["id"]
    name = until(lambda: started(hub, job))["runner"]

    def placed() -> str:
        pod = api.find("v1", "Pod", f"{name}-workflow", namespace)
        return str(pod["spec"].get("nodeName", "")) if pod else ""

    own = until(placed, seconds=40)
    assert own.startswith("t4-spot-")
    assert api.get("v1", "Pod", name, namespace)["spec"]["nodeName"].startswith("system-")
    until(over(hub, job))
    until(lambda: not api.list("v1", "Pod", namespace))
    life = job_timeline(cluster, job)
    assert (life.result, life.node, life.pod) == ("succeeded", own, f"{namespace}/{name}-workflow")


def test_a_job_whose_labels_nobody_serves_is_never_acquired(
    cluster: Lab, hub: FaultyGitHub, api: Api, make_set: MakeSet
) -> None:
    make_set()
    nobodys, served = hub.push([*LABELS, "tpu"])["id"], hub.push(LABELS)["id"]
    until(over(hub, served), seconds=40)
    assert [entry["state"] for entry in hub.job(nobodys)["history"]] == ["queued"]
    acquired = [request["body"] for request in hub.requests() if "acquirejobs" in request["path"]]
    assert acquired == [[served]]
    waiting = job_timeline(cluster, nobodys)
    assert waiting.why == "no scale set has all of its labels: self-hosted, gpu, tpu"
    assert waiting.seconds("acquired") is None


# Many jobs.


@pytest.fixture
def no_fallback(cluster: Lab, groups: dict[str, Group]) -> Iterator[None]:
    """Allow spot nodes only."""
    spot.set_shortage(cluster, [name for name, group in groups.items() if group.capacity != "spot"])
    yield
    spot.set_shortage(cluster, [])


@pytest.mark.usefixtures("no_fallback")
@pytest.mark.parametrize(
    ("count", "set_max", "quota", "at_work"),
    [
        pytest.param(10, 4, 100, 4, id="the set's maximum"),
        pytest.param(12, 12, 100, 5, id="the pool's maximum"),
        pytest.param(6, 12, 2, 2, id="the quota"),
    ],
)
def test_many_jobs_at_once_stay_within(
    hub: FaultyGitHub,
    api: Api,
    stack: Stack,
    namespace: str,
    make_set: MakeSet,
    count: int,
    set_max: int,
    quota: int,
    at_work: int,
) -> None:
    limit = {"metadata": {"name": "pools", "namespace": namespace}, "apiVersion": "v1", "kind": "ResourceQuota"}
    hard = {"requests.nvidia.com/gpu": str(quota)}
    api.patch(limit, {"spec": {"hard": hard}})
    until(lambda: hard.items() <= api.get("v1", "ResourceQuota", "pools", namespace)["status"]["hard"].items())
    make_set(maxRunners=set_max)
    pushed = [hub.push(LABELS, 1.0)["id"] for _ in range(count)]
    most = {"runners": 0, "on nodes": 0, "nodes": 0, "acquired": 0}

    def all_completed() -> bool:
        there = [pod for pod in api.list("v1", "Pod", namespace) if pod["status"]["phase"] != "Succeeded"]
        now = {
            "runners": len(there),
            "on nodes": sum(map(pods.occupies_node, there)),
            "nodes": len(gpu_nodes(api)),
            "acquired": sum(job["state"] in ("acquired", "running") for job in hub.jobs()),
        }
        most.update({name: max(most[name], amount) for name, amount in now.items()})
        return over(hub, *pushed)()

    until(all_completed, seconds=120)
    assert {hub.job(number)["result"] for number in pushed} == {"succeeded"}
    assert most["on nodes"] == at_work
    assert most["nodes"] <= stack.fleet.pools["t4"].nodes.max
    assert most["acquired"] <= set_max
    assert most["runners"] <= min(quota, set_max)
    assert len({hub.job(number)["runner"] for number in pushed}) == count, "each job has a runner of its own"


def test_a_warm_runner_takes_a_job_at_once_and_is_replaced(hub: FaultyGitHub, api: Api, make_set: MakeSet) -> None:
    make_set(minRunners=1)
    (warm,) = until(lambda: [runner for runner in hub.runners() if runner["online"]])
    job = hub.push(LABELS, 30.0)["id"]
    assert until(lambda: started(hub, job))["runner"] == warm["name"]
    until(lambda: [runner for runner in hub.runners() if runner["online"] and runner["name"] != warm["name"]])


# What goes wrong.


def test_a_template_without_the_toleration_is_found_out(
    cluster: Lab, api: Api, stack: Stack, make_set: MakeSet, capsys: pytest.CaptureFixture[str]
) -> None:
    template = runner_set(stack.fleet, "gpu")["spec"]["template"]
    template["spec"]["tolerations"] = []
    make_set(template=template)
    story = demo(cluster, stack, bound=12.0)
    assert not story.ok
    assert story.missing == "scheduled"
    assert "node group t4-spot has a taint that the pod does not tolerate: nvidia.com/gpu=true:NoSchedule" in story.fix
    assert any(line.startswith("FailedScheduling") for line in story.events)
    assert "'scheduled' did not come in time" in capsys.readouterr().out
    assert not gpu_nodes(api), "a node was bought for it"
    assert FaultyGitHub(github.url_of(cluster)).job(story.job.number)["result"] == "canceled"


def test_an_interrupt_right_after_the_push_cancels_the_job(
    cluster: Lab, hub: FaultyGitHub, stack: Stack, make_set: MakeSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*words: object) -> None:
        raise KeyboardInterrupt

    make_set()
    monkeypatch.setattr("paddock.lab.demo.say", interrupt)
    with pytest.raises(KeyboardInterrupt):
        demo(cluster, stack)
    assert hub.jobs()[-1]["result"] == "canceled"


def test_a_refused_pod_is_reported_with_the_reason(
    cluster: Lab, hub: FaultyGitHub, api: Api, stack: Stack, make_set: MakeSet
) -> None:
    template = runner_set(stack.fleet, "gpu")["spec"]["template"]
    template["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    runner_set_ = make_set(template=template)
    story = demo(cluster, stack, bound=12.0)
    assert story.missing == "pod made"
    assert "violates PodSecurity" in story.job.why
    until(lambda: not hub.runners())  # those that it registered and made no pod for
    fine = runner_set(stack.fleet, "gpu")["spec"]["template"]
    api.patch(runner_set_, {"spec": {"template": fine}})
    job = hub.push(LABELS)["id"]
    until(over(hub, job), seconds=40)


def test_a_canceled_job_takes_its_waiting_pod_along(
    hub: FaultyGitHub, api: Api, stack: Stack, namespace: str, make_set: MakeSet
) -> None:
    template = runner_set(stack.fleet, "gpu")["spec"]["template"]
    template["spec"]["nodeSelector"] = {"no": "such-node"}
    make_set(template=template)
    job = hub.push(LABELS)["id"]
    until(lambda: api.list("v1", "Pod", namespace))
    hub.cancel(job)
    until(lambda: not api.list("v1", "Pod", namespace))
    assert hub.runners() == []


def test_a_job_on_a_reclaimed_spot_node_fails_without_a_rerun(
    cluster: Lab, hub: FaultyGitHub, make_set: MakeSet
) -> None:
    make_set()
    job = hub.push(LABELS, 3600)["id"]
    running = until(lambda: started(hub, job), seconds=40)
    spot.reclaim(cluster, running["pod"]["node"], notice_seconds=0.5)
    until(over(hub, job))
    assert hub.job(job)["result"] == "failed"
    assert [entry["state"] for entry in hub.job(job)["history"]].count("running") == 1


def test_arc_goes_on_after_a_kill_without_doubling_pods(
    cluster: Lab, hub: FaultyGitHub, namespace: str, api: Api, make_set: MakeSet
) -> None:
    make_set()
    pushed = [hub.push(LABELS, 4.0)["id"] for _ in range(3)]
    until(lambda: len(api.list("v1", "Pod", namespace)) == 3)
    os.kill(servers.status(cluster.folder).running["arc"].pid, signal.SIGKILL)
    until(lambda: not daemon.is_running(cluster, "arc"))
    late = hub.push(LABELS, 1.0)["id"]
    arc.start(cluster, hub.url)
    until(over(hub, *pushed, late), seconds=60)
    registered = [entry for entry in hub.requests() if "generatejitconfig" in entry["path"]]
    assert len(registered) == 4, "a runner for each job"
    until(lambda: not api.list("v1", "Pod", namespace))


def test_github_and_the_runners_go_on_after_a_kill(cluster: Lab, hub: FaultyGitHub, make_set: MakeSet) -> None:
    make_set()
    job = hub.push(LABELS, 3.0)["id"]
    until(lambda: started(hub, job), seconds=40)
    running = servers.status(cluster.folder).running
    for name in ("github", "runners"):
        os.kill(running[name].pid, signal.SIGKILL)
    until(lambda: not daemon.is_running(cluster, "github"))
    assert github.start(cluster) == hub.url, "stacks know it by this address"
    arc.start(cluster, hub.url)
    next_one = hub.push(LABELS, 1.0)["id"]
    until(over(hub, job, next_one), seconds=60)
    assert [hub.job(number)["result"] for number in (job, next_one)] == ["succeeded"] * 2


@pytest.mark.parametrize(
    "fault", [{"status": 500, "times": 6}, {"status": 401, "times": 6}, {"seconds": 60, "times": 100}]
)
def test_a_job_comes_through_a_github_that_fails_for_a_while(
    hub: FaultyGitHub, make_set: MakeSet, fault: dict[str, int]
) -> None:
    make_set()
    hub.fault(**fault)  # type: ignore[arg-type]
    job = hub.push(LABELS, 1.0)["id"]
    healing = threading.Timer(2.0, hub.heal)
    healing.start()
    until(over(hub, job), seconds=60)
    healing.join()
    assert hub.job(job)["result"] == "succeeded"


def test_a_set_of_another_form_keeps_no_other_waiting(
    hub: FaultyGitHub, api: Api, namespace: str, make_set: MakeSet
) -> None:
    meta = {"name": "broken", "namespace": namespace}
    broken = {"apiVersion": runner_sets.VERSION, "kind": runner_sets.KIND, "metadata": meta, "spec": {"template": 1}}
    api.create(broken)
    make_set()
    job = hub.push(LABELS, 0.5)["id"]
    until(over(hub, job), seconds=40)
    api.delete(broken)


def test_a_set_of_another_github_is_left_alone(hub: FaultyGitHub, api: Api, stack: Stack, namespace: str) -> None:
    runner_set_ = runner_set(stack.fleet, "gpu")
    runner_set_["metadata"]["namespace"] = namespace
    assert runner_set_["spec"]["githubConfigUrl"].startswith("https://github.com/")
    made = until(lambda: applied(api, runner_set_))
    time.sleep(2 * arc.POLL_SECONDS)
    assert hub.sets() == []
    assert "finalizers" not in api.get(runner_sets.VERSION, runner_sets.KIND, "gpu", namespace)["metadata"]
    api.delete(made)


def test_a_group_that_could_take_the_pod_is_not_blamed(stack: Stack, groups: dict[str, Group]) -> None:
    from paddock.lab.demo import refusal

    pod = {"spec": runner_set(stack.fleet, "gpu")["spec"]["template"]["spec"]}
    assert [refusal(pod, group) for group in groups.values()] == ["", ""]
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000"
    assert refusal(pod, groups["t4-spot"]) == "has too little cpu"
    pod["spec"]["nodeSelector"] = {"paddock.dev/pool": "other"}
    assert refusal(pod, groups["t4-spot"]) == "does not have the labels that the pod asks for"
