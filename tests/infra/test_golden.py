"""Text for nodes, charts and people, word by word."""

from __future__ import annotations

import base64
import email
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.gpu import device_plugin
from paddock.plan.engine.graph import Resource
from tests.support.fleets import graph, named
from tests.support.golden import same_as_golden

GOLDEN = Path(__file__).parent / "golden"
RELEASE = "kubernetes:helm.sh/v3:Release"
USER_DATA = {
    "plain": ("t4-on-own-disk", "t4"),
    "nvme": ("smallest", "t4"),
    "mig": ("mig", "a100"),
    "custom-image": ("custom-image", "t4"),
    "adopted-cluster-custom-image": ("adopted-own-image", "t4"),
}


def user_data(sample: str, pool: str) -> str:
    (template,) = [r for r in graph(sample).of_type("aws:ec2/launchTemplate:LaunchTemplate") if r.name == pool]
    return base64.b64decode(template.inputs["userData"]).decode()


def parts(text: str) -> list[tuple[str, str]]:
    """(content type, text) of each part, as cloud-init and nodeadm read the document."""
    message = email.message_from_string(text)
    assert message.get_content_type() == "multipart/mixed"
    assert not message.defects
    return [(part.get_content_type(), str(part.get_payload())) for part in message.walk() if not part.is_multipart()]


@pytest.mark.parametrize("name", USER_DATA)
def test_user_data_of_amazons_linux(name: str) -> None:
    text = user_data(*USER_DATA[name])
    sections = parts(text)
    kubelet_and_more = yaml.safe_load(sections[0][1])
    node = kubelet_and_more["spec"]

    same_as_golden(GOLDEN, f"user-data-{name}.txt", text)
    assert "\r" not in text
    assert [kind for kind, _ in sections] == [
        "application/node.eks.aws",
        *["text/x-shellscript"] * (2 if name == "mig" else 1),
    ]
    assert (kubelet_and_more["apiVersion"], kubelet_and_more["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    assert str(node["kubelet"]["config"]["maxPods"]) == node["kubelet"]["maxPodsExpression"]
    assert ("localStorage" in node.get("instance", {})) is (name != "plain")
    joins = {"apiServerEndpoint", "certificateAuthority", "cidr", "name"} if "custom" in name else set()
    assert set(node.get("cluster", {})) == joins
    assert all(body.startswith("#!/bin/bash\n") for kind, body in sections if kind == "text/x-shellscript")


def test_user_data_of_bottlerocket() -> None:
    text = user_data("bottlerocket", "t4")
    settings = tomllib.loads(text)["settings"]

    same_as_golden(GOLDEN, "user-data-bottlerocket.toml", text)
    assert settings["kubernetes"]["max-pods"] == 16
    assert settings["bootstrap-commands"]["local-storage"]["commands"][0] == ["apiclient", "ephemeral-storage", "init"]


def scale_set(sample: str) -> Resource:
    (release,) = [r for r in graph(sample).of_type(RELEASE) if "RunnerScaleSet" in r.parent]
    return release


@pytest.mark.parametrize(
    "sample", ["smallest", "docker", "job-pods", "every-volume", "existing-cluster", "any-cluster"]
)
def test_values_of_a_scale_set(sample: str) -> None:
    values = dict(scale_set(sample).inputs["values"])
    metrics = values.pop("listenerMetrics")
    same_as_golden(GOLDEN, "listener-metrics.yaml", yaml.safe_dump(metrics, sort_keys=True))  # the same for all
    same_as_golden(GOLDEN, f"scale-set-{sample}.yaml", yaml.safe_dump(values, sort_keys=True))


def test_pod_template_of_the_container_hook() -> None:
    maps = graph("job-pods").of_type("kubernetes:core/v1:ConfigMap")
    (template,) = [r for r in maps if r.name.endswith("-pod-template")]
    same_as_golden(GOLDEN, "job-pod-template.yaml", template.inputs["data"]["pod.yaml"])


@pytest.mark.parametrize("sample", ["smallest", "time-slicing", "mps", "mig"])
def test_configuration_of_the_device_plugin(sample: str) -> None:
    (pool,) = named(sample).fleet.pools.values()
    text = device_plugin.sharing_config(pool)
    config: dict[str, Any] = yaml.safe_load(text)

    same_as_golden(GOLDEN, f"device-plugin-{sample}.yaml", text)
    assert config["version"] == "v1"
    assert config["flags"]["migStrategy"] == ("single" if sample == "mig" else "none")
    assert len(config.get("sharing", {})) == (sample in ("time-slicing", "mps"))


@pytest.mark.parametrize("sample", ["time-slicing", "mps", "mig"])
def test_nodes_choose_a_configuration_that_is_there(sample: str) -> None:
    (release,) = [r for r in graph(sample).of_type(RELEASE) if r.name == "device-plugin"]
    groups = [r for r in graph(sample).of_type("aws:eks/nodeGroup:NodeGroup") if "taints" in r.inputs]

    for group in groups:
        assert group.inputs["labels"]["nvidia.com/device-plugin.config"] in release.inputs["values"]["config"]["map"]


def test_kubeconfig_asks_aws_for_a_token() -> None:
    text = graph("dev").outputs["kubeconfig"]

    same_as_golden(GOLDEN, "kubeconfig.json", json.dumps(json.loads(text), indent=2) + "\n")
    assert "token:" not in text
