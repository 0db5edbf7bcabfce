"""Applications of Ray Serve for plans: one device, a gang, a pipeline."""

from __future__ import annotations

from typing import Any

from tests.support.packages import need

need("ray", "torch")

from paddock.models.presets import preset
from paddock.serve.deployment.application import application
from paddock.serve.placement.device import Device
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import Plan
from paddock.serve.placement.request import Policy, Request

REQUEST = Request(preset("tiny"), "fp32", 256, 2)


def device(agent: str, backend: Any, index: int = 0, mib: int = 4096) -> Device:
    return Device(agent, backend, index, mib, mib, "a model", uuid=f"GPU-{index}")


def deployment(*devices: Device, policy: Policy | None = None) -> Any:
    plan = place(REQUEST, devices, policy)
    assert isinstance(plan, Plan), plan
    return application(plan, "/models/tiny", 60.0, name="replica")._bound_deployment


def test_one_device_is_a_replica_on_its_agent() -> None:
    built = deployment(device("box", "cuda", 3))
    assert built.func_or_class.__name__ == "Replica"
    assert built.ray_actor_options["label_selector"] == {"paddock.agent": "box"}
    assert built.ray_actor_options["runtime_env"]["env_vars"]["CUDA_VISIBLE_DEVICES"] == "GPU-3"
    (spec, mode) = built.init_args
    assert (spec.device, spec.source, spec.layers, mode) == ("cuda", "/models/tiny", None, "")


def test_another_environments_vllm_is_a_replica_of_its_own() -> None:
    built = deployment(device("box", "cuda"), policy=Policy(python="/opt/vllm/bin/python"))
    assert built.func_or_class.__name__ == "VllmReplica"
    assert built.ray_actor_options["label_selector"] == {"paddock.agent": "box"}
    assert built.init_args[2:] == ("/opt/vllm/bin/python", 60.0)


def test_equal_devices_are_a_gang_in_one_placement_group() -> None:
    built = deployment(device("box", "cuda", 0), device("box", "cuda", 1))
    assert built.func_or_class.__name__ == "GangReplica"
    assert built._replica_config.placement_group_bundles == [{"agent:box": 1}] * 2
    assert [seat.variables["CUDA_VISIBLE_DEVICES"] for seat in built.init_args[1]] == ["GPU-0", "GPU-1"]


def test_two_backends_are_a_pipeline_with_the_layers_of_the_plan() -> None:
    built = deployment(device("box", "cuda", mib=17), device("mac", "metal", mib=17), policy=Policy(pipeline=True))
    assert built.func_or_class.__name__ == "PipelineReplica"
    assert built._replica_config.placement_group_bundles == [{"agent:box": 1}, {"agent:mac": 1}]
    specs, seats, _ = built.init_args
    assert [(spec.device, spec.layers) for spec in specs] == [("cuda", (0, 3)), ("mps", (3, 4))]
    assert [seat.device for seat in seats] == ["box/cuda:0", "mac/metal:0"]
