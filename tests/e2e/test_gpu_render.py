"""A real API server takes every pod and every configuration of the device plugin that is rendered for GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from paddock.gpu.leases.request import Request
from paddock.gpu.render import render
from paddock.kubernetes.client import Api
from paddock.kubernetes.errors import ApiError
from tests.support.gpu_machines import machines
from tests.support.kubernetes import lost

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("cluster")]

FIELDS = {
    "Limit": 1,
    "Request": 1,
    "ResourceName": "nvidia.com/gpu.shared",
    "NodeSelector": {"accelerator": "nvidia-tesla-gpu"},
    "Tolerations": [
        {"Key": "team", "Operator": "Equal", "Value": "ml", "Effect": "NoExecute", "TolerationSeconds": 60},
        {"Operator": "Exists"},
    ],
}


def test_every_rendered_object_is_accepted_to_the_last_field(api: Api, tmp_path: Path) -> None:
    inventories = machines(tmp_path)
    rendered = [render("kubernetes", machine) for machine in inventories.values()]
    rendered += [render("kubernetes", machine, {"Enabled": False}) for machine in inventories.values()]
    for sharing in ("time-slicing", "mps"):
        rendered.append(render("kubernetes", inventories["8-h100"], Request(share=0.25), sharing=sharing))
        rendered.append(
            render("kubernetes", inventories["8-h100"], FIELDS, request=Request(share=0.1), sharing=sharing)
        )
    for strategy in ("mixed", "single"):
        rendered.append(render("kubernetes", inventories["mig"], Request(mig="1g.10gb"), mig=strategy))
    environ = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    rendered.append(render("kubernetes", inventories["t4"], environ=environ))
    kinds = set()
    for manifest in (yaml.safe_load(file.text) for output in rendered for file in output.files):
        answer = api.create(manifest, dry_run=True)
        assert not [*lost(manifest, answer)], manifest
        kinds.add(manifest["kind"])
        if manifest["kind"] == "Pod":
            resources = answer["spec"]["containers"][0]["resources"]
            assert resources.get("requests", {}) == resources.get("limits", {}), "the server demands both the same"
    assert kinds == {"Pod", "ConfigMap"}


def test_the_server_refuses_what_is_refused_here(api: Api, tmp_path: Path) -> None:
    """Request and Limit that differ, which a pod's own text would still say."""
    pod = yaml.safe_load(render("kubernetes", machines(tmp_path)["8-h100"]).text("pod.yaml"))
    pod["spec"]["containers"][0]["resources"]["requests"] = {"nvidia.com/gpu": 1}
    with pytest.raises(ApiError, match="must be equal to"):
        api.create(pod, dry_run=True)
