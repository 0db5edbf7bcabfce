"""A real API server takes every pod and every configuration of the device plugin that is rendered for GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from paddock.gpu.leases.request import Request
from paddock.gpu.render import render
from paddock.lab.kube.client import Api, ApiError
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
    known = machines(tmp_path)
    made = [render("kubernetes", machine) for machine in known.values()]
    made += [render("kubernetes", machine, {"Enabled": False}) for machine in known.values()]
    for sharing in ("time-slicing", "mps"):
        made.append(render("kubernetes", known["8-h100"], Request(share=0.25), sharing=sharing))
        made.append(render("kubernetes", known["8-h100"], FIELDS, request=Request(share=0.1), sharing=sharing))
    for strategy in ("mixed", "single"):
        made.append(render("kubernetes", known["mig"], Request(mig="1g.10gb"), mig=strategy))
    environ = {"NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
    made.append(render("kubernetes", known["t4"], environ=environ))
    kinds = set()
    for each in (yaml.safe_load(file.text) for one in made for file in one.files):
        answer = api.create(each, dry_run=True)
        assert not [*lost(each, answer)], each
        kinds.add(each["kind"])
        if each["kind"] == "Pod":
            resources = answer["spec"]["containers"][0]["resources"]
            assert resources.get("requests", {}) == resources.get("limits", {}), "the server demands both the same"
    assert kinds == {"Pod", "ConfigMap"}


def test_the_server_refuses_what_is_refused_here(api: Api, tmp_path: Path) -> None:
    """Request and Limit that differ, which a pod's own text would still say."""
    pod = yaml.safe_load(render("kubernetes", machines(tmp_path)["8-h100"]).text("pod.yaml"))
    pod["spec"]["containers"][0]["resources"]["requests"] = {"nvidia.com/gpu": 1}
    with pytest.raises(ApiError, match="must be equal to"):
        api.create(pod, dry_run=True)
