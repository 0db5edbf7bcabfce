"""Objects of ARC as the stand-in makes them, against ARC 0.14's source."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.lab.simulators import arc_objects
from tests.support import fleets, kubernetes

Object = dict[str, Any]


@pytest.fixture
def runner_set() -> Object:
    item = kubernetes.runner_set(fleets.example("dev").fleet, "gpu")
    labels = {arc_objects.LABEL_VERSION: "0.14.2"}
    item["metadata"] |= {"uid": "1-2-3", "labels": labels, "annotations": {"runner-scale-set-id": "7"}}
    return item


@pytest.fixture
def group(runner_set: Object) -> Object:
    made = arc_objects.group(runner_set)
    made["metadata"] |= {"name": "gpu-x1", "uid": "4-5-6"}
    return made


@pytest.mark.parametrize(
    ("resource", "build", "allowed"),
    [
        ("0.14.1", "0.14.2", True),
        ("0.14.2", "0.15.0", False),
        ("1.14.2", "0.14.2", False),
        ("", "0.14.2", False),
        ("nonsense", "0.14.2", False),
        ("0.14.2", "dev", True),
        ("0.14.2", "canary-abc", True),
        ("nonsense", "nonsense", True),
    ],
)
def test_versions_are_compared_by_their_minor(resource: str, build: str, allowed: bool) -> None:
    assert arc_objects.version_allowed(resource, build) is allowed


def test_listener_has_arcs_name_and_asks_for_one_group(runner_set: Object, group: Object) -> None:
    item = arc_objects.listener(runner_set, group, "arc-systems")
    assert item["metadata"]["name"] == "gpu-754b578d-listener"
    assert item["metadata"]["namespace"] == "arc-systems"
    assert item["metadata"]["labels"][arc_objects.LABEL_VERSION] == "0.14.2"
    assert item["metadata"]["finalizers"] == ["autoscalinglistener.actions.github.com/finalizer"]
    assert (item["spec"]["ephemeralRunnerSetName"], item["spec"]["runnerScaleSetId"]) == ("gpu-x1", 7)


def test_limits_make_a_new_listener_and_keep_the_group(runner_set: Object) -> None:
    hashes, template = arc_objects.listener_hashes(runner_set), arc_objects.template_hash(runner_set)
    runner_set["spec"]["maxRunners"] = 0
    assert arc_objects.listener_hashes(runner_set) != hashes
    assert arc_objects.template_hash(runner_set) == template
    runner_set["spec"]["template"]["spec"]["nodeSelector"] = {"a": "b"}
    assert arc_objects.template_hash(runner_set) != template


def test_listener_pod_is_the_template_of_the_set(runner_set: Object, group: Object) -> None:
    item = arc_objects.listener(runner_set, group, "arc-systems")
    item["metadata"]["uid"] = "7-8-9"
    pod = arc_objects.listener_pod(item)
    assert pod["metadata"]["name"] == item["metadata"]["name"]
    assert pod["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux"
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "AutoscalingListener"
    (container,) = pod["spec"]["containers"]
    assert container["resources"] == runner_set["spec"]["listenerTemplate"]["spec"]["containers"][0]["resources"]


def test_runner_has_both_finalizers_and_its_job(runner_set: Object, group: Object) -> None:
    item = arc_objects.runner(runner_set, group, "gpu-x1-runner-abcde")
    assert len(item["metadata"]["finalizers"]) == 2
    assert item["metadata"]["ownerReferences"][0]["name"] == "gpu-x1"
    pod = {"metadata": {"name": "gpu-x1-runner-abcde"}, "status": {"phase": "Running"}}
    job = {
        "jobId": "5",
        "runnerRequestId": 5,
        "ownerName": "acme",
        "repositoryName": "app",
        "jobWorkflowRef": "w",
        "jobDisplayName": "test",
        "workflowRunId": 5,
    }
    status = arc_objects.runner_status(pod, 3, job)
    assert (status["phase"], status["runnerId"], status["jobDisplayName"]) == ("Running", 3, "test")
    assert "jobId" not in arc_objects.runner_status(pod, 3, None)


def test_finalizers_of_others_stay() -> None:
    item = {"metadata": {"finalizers": ["mine", "theirs"]}}
    assert arc_objects.without(item, "mine") == {"metadata": {"finalizers": ["theirs"]}}
