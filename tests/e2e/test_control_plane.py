"""The lab's control plane is a real one: it schedules the fleet's pods and refuses what it should."""

from __future__ import annotations

import copy
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.runner_pod import runner_template
from paddock.fleet import Stack, load
from paddock.lab import command, control_plane, nodes, pods, programs
from paddock.lab.api import Api, ApiError, Object, Unreachable
from paddock.lab.control_plane import Lab
from paddock.lab.errors import LabError, LabInputError
from paddock.lab.progress import Progress
from paddock.lab.scaling import Group

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
ENDS_AFTER = "lab.paddock.dev/ends-after"
BOOT_SECONDS = 1.0
IDLE_SECONDS = 2.0


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    absent = sorted(set(programs.PROGRAMS) - set(programs.locate()))
    if absent:
        pytest.skip(f"the lab's programs are not here: {', '.join(absent)} (on PATH, or in PADDOCK_LAB_BIN)")


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(ROOT, "dev")


@pytest.fixture(scope="module")
def spot(stack: Stack) -> Group:
    """The node group that dev's runners grow."""
    return nodes.group_named(nodes.groups(stack), "t4-spot")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, stack: Stack, _programs: None) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    lab, started = control_plane.up(folder, progress=Progress(quiet=True))
    try:
        assert started
        nodes.bring(lab, stack, boot_seconds=BOOT_SECONDS, idle_seconds=IDLE_SECONDS)
        yield lab
    finally:
        control_plane.down(folder)


@pytest.fixture
def api(lab: Lab) -> Iterator[Api]:
    with Api.of(lab.kubeconfig) as api:
        yield api


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace like that of the fleet's runners, with what each runner mounts."""
    made = api.create(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "generateName": "test-",
                "labels": {"pod-security.kubernetes.io/enforce": "baseline"},
            },
        }
    )
    name = made["metadata"]["name"]
    until(lambda: api.find("v1", "ServiceAccount", "default", name))
    hooks = {"name": "paddock-job-hooks", "namespace": name}
    api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": hooks})
    yield name
    for pod in api.list("v1", "Pod", name):
        api.delete(pod, grace_seconds=0)
    api.delete(made)
    # The next test begins with an empty pool.
    until(lambda: not gpu_nodes(api), seconds=30)


def until(true: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.1)
    return found


def runner_pod(stack: Stack, namespace: str, name: str = "runner", **annotations: str) -> Object:
    """The pod that the scale set of dev's runner makes, with another image."""
    template = copy.deepcopy(runner_template(stack.fleet, "gpu"))
    template["spec"]["containers"][0]["image"] = "any"
    metadata = {"name": name, "namespace": namespace}
    annotations = {**template["metadata"].get("annotations", {}), **annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "annotations": annotations},
        "spec": template["spec"],
    }


def gpu_nodes(api: Api) -> list[Object]:
    return api.list("v1", "Node", labelSelector="nvidia.com/gpu.present=true")


def waits(api: Api, namespace: str, name: str) -> bool:
    return pods.waits_for_room(api.get("v1", "Pod", name, namespace))


# The life of the lab.


def test_an_up_and_a_down_leave_no_process_and_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    began = time.monotonic()
    lab, started = control_plane.up(folder, progress=Progress(quiet=True))
    assert started
    assert time.monotonic() - began < 90
    assert folder.stat().st_mode & 0o777 == 0o700
    assert lab.up
    again, started = control_plane.up(folder)
    assert not started
    assert again == lab
    assert set(control_plane.down(folder)) == set(control_plane.PROGRAMS)
    assert not folder.exists()
    assert not any(process.alive for process in lab.running.values())
    assert str(folder) not in subprocess.check_output(["ps", "-eo", "args"], text=True)
    assert control_plane.down(folder) == ()


def test_a_lab_that_was_killed_comes_up_again_with_its_objects(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    first, _ = control_plane.up(folder, progress=Progress(quiet=True))
    try:
        api = Api.of(first.kubeconfig)
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}})
        for name in ("kube-apiserver", "etcd", "kwok"):
            os.kill(first.running[name].pid, signal.SIGKILL)
        with pytest.raises(Unreachable, match=r"lab\.up"):
            until(lambda: api.list("v1", "Node") is None, seconds=5)
        api.close()
        broken = control_plane.status(folder)
        assert not broken.up
        assert set(broken.ended) == {"kube-apiserver", "etcd", "kwok"}
        second, started = control_plane.up(folder, progress=Progress(quiet=True))
        assert started
        assert second.ports == first.ports, "kubeconfigs in other hands would be wrong now"
        assert not any(process.alive for process in first.running.values())
        api = Api.of(second.kubeconfig)
        assert api.find("v1", "Namespace", "kept")
        api.close()
    finally:
        control_plane.down(folder)


def test_a_taken_port_starts_nothing(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        first = taken.getsockname()[1] - 1
        with pytest.raises(LabInputError, match="in use"):
            control_plane.up(tmp_path, first_port=first, progress=Progress(quiet=True))
    assert not control_plane.status(tmp_path).running


def test_a_program_that_fails_ends_the_others_and_shows_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "bin"
    wrong.mkdir()
    (wrong / "kube-apiserver").write_text("#!/bin/sh\necho v1.35.4 '[flag] something is not right'\nexit 3\n")
    (wrong / "kube-apiserver").chmod(0o755)
    monkeypatch.setenv("PADDOCK_LAB_BIN", f"{wrong}{os.pathsep}{os.environ.get('PADDOCK_LAB_BIN', '')}")
    folder = tmp_path / "lab"
    with pytest.raises(LabError, match=r"kube-apiserver ended while it started[\s\S]*something is not right"):
        control_plane.up(folder, progress=Progress(quiet=True))
    assert control_plane.status(folder).running == {}
    assert str(folder) not in subprocess.check_output(["ps", "-eo", "args"], text=True)


@pytest.mark.parametrize("after", [0.3, 1.5])
def test_an_interrupted_up_leaves_no_process(tmp_path: Path, after: float) -> None:
    folder = tmp_path / "lab"
    script = f"from pathlib import Path; from paddock.lab import control_plane; control_plane.up(Path({str(folder)!r}))"
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.DEVNULL) as up:
        until(lambda: (folder / "lab.json").exists())
        time.sleep(after)
        up.send_signal(signal.SIGINT)
        up.wait(30)
    assert up.returncode
    assert control_plane.status(folder).running == {}
    assert f"{folder}/" not in subprocess.check_output(["ps", "-eo", "args"], text=True)


def test_the_state_is_told_as_json(lab: Lab) -> None:
    told = command.document(lab)
    assert told["up"]
    assert {"system-0", "system-1"} <= {node["name"] for node in told["nodes"]}
    assert told["processes"]["etcd"] == lab.running["etcd"].pid


# What its scheduler does with the fleet's pods.


def test_a_runner_waits_until_a_node_has_booted_and_leaves_none_behind(api: Api, namespace: str, stack: Stack) -> None:
    assert not gpu_nodes(api)
    pod = api.create(runner_pod(stack, namespace, **{ENDS_AFTER: "1s"}))
    until(lambda: waits(api, namespace, "runner") or gpu_nodes(api))
    placed = until(lambda: api.get("v1", "Pod", "runner", namespace)["spec"].get("nodeName"))
    node = api.get("v1", "Node", placed)
    assert node["metadata"]["labels"]["eks.amazonaws.com/nodegroup"] == "t4-spot"
    assert node["metadata"]["labels"]["eks.amazonaws.com/capacityType"] == "SPOT"
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "g4dn.xlarge"
    until(lambda: api.get("v1", "Pod", "runner", namespace)["status"]["phase"] == "Succeeded")
    api.delete(pod, grace_seconds=0)
    until(lambda: not gpu_nodes(api), seconds=20)


def test_twenty_at_once_stay_within_the_maximum(api: Api, namespace: str, stack: Stack) -> None:
    for number in range(20):
        api.create(runner_pod(stack, namespace, f"runner-{number}", **{ENDS_AFTER: "1s"}))
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, len(gpu_nodes(api)))
        return all(pod["status"]["phase"] == "Succeeded" for pod in api.list("v1", "Pod", namespace))

    until(done, seconds=60)
    assert most == stack.fleet.pools["t4"].nodes.max


def test_a_runner_without_its_toleration_waits_for_ever(api: Api, namespace: str, stack: Stack, spot: Group) -> None:
    (name,) = nodes.grow(api, spot)
    pod = runner_pod(stack, namespace)
    pod["spec"]["tolerations"] = []
    api.create(pod)
    until(lambda: waits(api, namespace, "runner"))
    conditions = api.get("v1", "Pod", "runner", namespace)["status"]["conditions"]
    assert any("untolerated taint" in condition.get("message", "") for condition in conditions)
    time.sleep(2 * BOOT_SECONDS)
    assert {node["metadata"]["name"] for node in gpu_nodes(api)} <= {name}, "a node was bought for it"


def test_a_pod_without_a_toleration_lands_on_a_system_node(api: Api, namespace: str, spot: Group) -> None:
    nodes.grow(api, spot)
    for number in range(6):
        api.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"plain-{number}", "namespace": namespace},
                "spec": {"containers": [{"name": "x", "image": "any"}]},
            }
        )
    until(lambda: all(pod["spec"].get("nodeName") for pod in api.list("v1", "Pod", namespace)))
    assert {pod["spec"]["nodeName"] for pod in api.list("v1", "Pod", namespace)} <= {"system-0", "system-1"}


def test_a_gpu_daemonset_lands_on_each_gpu_node_and_keeps_none(api: Api, namespace: str, spot: Group) -> None:
    names = nodes.grow(api, spot, 2)
    labels = {"app": "agent"}
    agent = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [{"name": "agent", "image": "any"}],
                    "nodeSelector": {"nvidia.com/gpu.present": "true"},
                    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                },
            },
        },
    }
    api.apply(agent)

    # Idle nodes go again soon: what counts is where the pods were seen.
    seen: set[str] = set()

    def on_all() -> bool:
        seen.update(pod["spec"].get("nodeName", "") for pod in api.list("v1", "Pod", namespace))
        return set(names) <= seen

    until(on_all)
    until(lambda: not gpu_nodes(api), seconds=20)
    api.delete(agent)


# What its admission does.


def test_a_privileged_pod_is_refused_among_the_runners(api: Api, namespace: str, stack: Stack) -> None:
    pod = runner_pod(stack, namespace)
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(ApiError, match="violates PodSecurity") as refused:
        api.create(pod)
    assert refused.value.status == 403


def test_a_quota_holds_gpus(api: Api, namespace: str, stack: Stack) -> None:
    api.apply(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "gpus", "namespace": namespace},
            "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
        }
    )
    until(lambda: api.get("v1", "ResourceQuota", "gpus", namespace).get("status", {}).get("used"))
    api.create(runner_pod(stack, namespace, "first"))
    with pytest.raises(ApiError, match="exceeded quota: gpus"):
        api.create(runner_pod(stack, namespace, "second"))


def test_custom_resources_of_the_fleet_are_accepted(
    api: Api, namespace: str, stack: Stack, reference_data: Path
) -> None:
    found = sorted((reference_data / "crds").glob("*.yaml"))
    if not found:
        pytest.skip(f"no CRDs in {reference_data / 'crds'}")
    for path in found:
        for document in yaml.load_all(path.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if document:
                api.apply(document)
    crd = "autoscalingrunnersets.actions.github.com"

    def served() -> bool:
        status = api.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd).get("status", {})
        return any(each["type"] == "Established" and each["status"] == "True" for each in status.get("conditions", []))

    until(served)
    template = runner_template(stack.fleet, "gpu")
    runner_set: Object = {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {"name": "gpu", "namespace": namespace},
        "spec": {
            "githubConfigUrl": stack.fleet.github.url,
            "githubConfigSecret": "github",
            "runnerScaleSetName": stack.fleet.scale_set("gpu"),
            "minRunners": 0,
            "maxRunners": 5,
            "template": template,
        },
    }
    made = until(lambda: _applied(api, runner_set))
    assert made["spec"]["template"]["spec"]["tolerations"] == template["spec"]["tolerations"]
    assert api.apply(runner_set)["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    runner_set["spec"]["maxRunners"] = "five"
    with pytest.raises(ApiError, match=r"spec\.maxRunners: expected numeric"):
        api.apply(runner_set)


def _applied(api: Api, thing: Object) -> Object | None:
    try:
        return api.apply(thing)
    except ApiError as error:
        if error.status == 404:  # established, but not yet served
            return None
        raise


def test_an_answer_that_refuses_is_a_sentence(api: Api, lab: Lab) -> None:
    with pytest.raises(ApiError, match=r"namespaces/nowhere: NotFound"):
        api.get("v1", "Namespace", "nowhere")
    with pytest.raises(ApiError, match="knows no Unicorn in v1"):
        api.get("v1", "Unicorn", "x")
    assert api.find("v1", "Namespace", "nowhere") is None
    assert not api.delete({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nowhere"}})
    stranger = Api(lab.server, "no-such-token", Api.of(lab.kubeconfig)._connection._context)
    with pytest.raises(ApiError, match="Unauthorized"):
        stranger.request("GET", "/api/v1/nodes")
    stranger.close()
