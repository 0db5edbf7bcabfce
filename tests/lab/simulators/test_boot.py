"""Registration of a simulated node, and the conditions for its GPUs."""

from __future__ import annotations

from typing import Any

from paddock.lab.simulators import boot

TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
READY = {"type": "Ready", "status": "True"}


def node(**labels: str) -> dict[str, Any]:
    """Return a node that is ready, as a fleet describes it."""
    amounts = {"cpu": "3500m", "nvidia.com/gpu": "4"}
    return {
        "metadata": {"name": "a", "labels": labels, "resourceVersion": "7"},
        "spec": {"taints": [TAINT]},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [READY]},
    }


def plugin_pod(of: str = "nvidia-device-plugin", on: str = "a", ready: str = "True") -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "ownerReferences": [{"kind": "DaemonSet", "name": of}]},
        "spec": {"nodeName": on},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def since(fresh: dict[str, Any], pods: list[dict[str, Any]], *daemonsets: str) -> dict[str, float]:
    return boot.plugin_since([fresh], pods, [{"metadata": {"name": name}} for name in daemonsets], {}, 5.0)


def test_a_node_registers_without_gpus_and_gets_them_back() -> None:
    whole = node()
    fresh = boot.registered(whole)
    assert fresh["spec"]["taints"] == [TAINT, boot.UNINITIALIZED]
    assert fresh["status"]["allocatable"] == fresh["status"]["capacity"] == {"cpu": "3500m"}
    assert boot.waits_for_gpus(fresh)
    assert whole == node(), "the template was changed"
    change = boot.initialized(fresh)
    assert change == {"metadata": {"resourceVersion": "7"}, "spec": whole["spec"]}
    assert boot.initialized(whole) is None
    gpus = boot.advertised(fresh)["status"]
    assert {**fresh["status"]["allocatable"], **gpus["allocatable"]} == whole["status"]["allocatable"]
    assert {**fresh["status"]["capacity"], **gpus["capacity"]} == whole["status"]["capacity"]


def test_a_node_without_gpus_registers_as_it_is() -> None:
    plain = node()
    plain["status"] = {"allocatable": {"cpu": "1"}, "capacity": {"cpu": "1"}}
    assert boot.registered(plain) == plain
    assert not boot.waits_for_gpus(plain)


def test_gpus_wait_for_an_existing_device_plugin() -> None:
    fresh = boot.registered(node())
    assert since(fresh, []) == {"a": 5.0}, "without a DaemonSet they come by themselves"
    assert since(fresh, [], "agent") == {"a": 5.0}
    assert since(fresh, [], "nvidia-device-plugin") == {}
    assert since(fresh, [plugin_pod()], "nvidia-device-plugin") == {"a": 5.0}
    assert since(fresh, [plugin_pod(on="b")], "nvidia-device-plugin") == {}
    assert since(fresh, [plugin_pod(ready="False")], "nvidia-device-plugin") == {}
    assert since(fresh, [plugin_pod(of="gpu-feature-discovery")], "nvidia-device-plugin") == {}


def test_an_image_with_a_plugin_of_its_own_needs_no_pod() -> None:
    fresh = boot.registered(node(**{"paddock.dev/device-plugin": "bottlerocket"}))
    assert since(fresh, [], "nvidia-device-plugin") == {"a": 5.0}


def test_only_a_ready_node_without_its_gpus_waits() -> None:
    fresh = boot.registered(node())
    fresh["status"] = {**fresh["status"], "conditions": []}
    assert since(fresh, []) == {}
    assert since(node(), []) == {}


def test_the_time_counts_from_the_first_observation() -> None:
    fresh = boot.registered(node())
    assert boot.plugin_since([fresh], [], [], {"a": 1.0, "gone": 1.0}, 5.0) == {"a": 1.0}
