"""Access to GPUs: what every node, daemon and pod of a stack says about it."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from infra.gpu import access as gpu_access
from infra.gpu.user_data import gpu_access_script
from infra.monitoring import job_logs
from paddock.fleet import FleetError
from paddock.fleet.model.runner import RUNTIME_VARIABLES
from paddock.plan import fields
from paddock.plan.rules import check_context
from paddock.plan.rules.base import Context
from paddock.plan.rules.inputs.pods import pods
from tests.infra.test_golden import parts, user_data
from tests.support import fleets
from tests.support.fleets import fleet_data, graph, named, stack

AL2023 = [("smallest", "t4"), ("mig", "a100"), ("custom-image", "t4"), ("adopted-own-image", "t4")]


@pytest.mark.parametrize(("sample", "pool"), AL2023)
def test_the_setting_is_written_before_anything_else_runs(sample: str, pool: str) -> None:
    scripts = [body for kind, body in parts(user_data(sample, pool)) if kind == "text/x-shellscript"]
    assert gpu_access.NVIDIA_CTK in scripts[0]


def test_an_own_image_has_the_setting_that_user_data_writes() -> None:
    script = (fleets.ROOT / "ami" / "scripts" / "container-toolkit.sh").read_text(encoding="utf-8")
    assert f"\n{gpu_access.NVIDIA_CTK}\n" in script


def test_bottlerocket_states_strategy_and_setting() -> None:
    settings = tomllib.loads(user_data("bottlerocket", "t4"))["settings"]
    assert settings["kubelet-device-plugins"]["nvidia"]["device-list-strategy"] == gpu_access.STRATEGY
    assert settings["nvidia-container-runtime"] == {
        "visible-devices-as-volume-mounts": True,
        "visible-devices-envvar-when-unprivileged": False,
    }


@pytest.mark.parametrize("status", [0, 1])
def test_a_node_without_the_setting_does_not_join(tmp_path: Path, status: int) -> None:
    for program, code in (("nvidia-ctk", status), ("systemctl", 0)):
        (tmp_path / program).write_text(f'#!/bin/bash\necho "{program} $*" >> "{tmp_path}/calls"\nexit {code}\n')
        (tmp_path / program).chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}/usr/bin:/bin"}
    ran = subprocess.run(["bash", "-c", gpu_access_script()], env=environment, check=False, timeout=30)

    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[0] == gpu_access.NVIDIA_CTK
    assert calls[1:] == (["systemctl disable --now nodeadm-run.service"] if status else [])
    assert ran.returncode == status


@pytest.mark.parametrize("sample", fleets.ALL)
def test_no_pod_asks_the_runtime_for_gpus_by_itself(sample: str) -> None:
    for pod in pods(Context(graph(sample))):
        for container in pod.containers:
            variables = {fields.text(variable, "name") for variable in fields.items(container, "env")}
            assert not variables & set(RUNTIME_VARIABLES), pod.where
            if "nvidia.com/gpu" in fields.mapping(container, "resources", "limits"):
                security = fields.mapping(container, "securityContext")
                assert not security.get("privileged"), pod.where
                assert not fields.items(security, "capabilities", "add"), pod.where
        mounted = {fields.text(volume, "hostPath", "path") for volume in fields.items(pod.spec, "volumes")}
        assert mounted <= {"", job_logs.FILES}, pod.where


def test_nodes_of_another_owner_are_said_to_be_unknown() -> None:
    context = Context(graph("any-cluster"), fleet=named("any-cluster").fleet)
    (violation,) = check_context(context, only={"PAD038"}).violations
    assert violation.severity == "info"
    assert f"not known whether they ran {gpu_access.NVIDIA_CTK}" in violation.detail.message


@pytest.mark.parametrize("name", [*RUNTIME_VARIABLES, "nvidia_visible_devices"])
def test_the_model_refuses_a_runner_that_names_its_gpus(name: str) -> None:
    with pytest.raises(FleetError, match=f"{name} would ask the container runtime for GPUs"):
        stack(fleet_data(runners={"gpu": {"pool": "t4", "environment": {name: "all"}}}))
