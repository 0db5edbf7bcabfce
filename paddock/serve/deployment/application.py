"""Application of Ray Serve for a plan: a replica on one device, a gang, or a pipeline."""

from __future__ import annotations

from typing import Any

from paddock.ray_labels import AGENT
from paddock.serve.agents.visibility import device_variables
from paddock.serve.deployment.gang import GangReplica
from paddock.serve.deployment.pipeline import PipelineReplica, stage_specs
from paddock.serve.deployment.replica import Replica
from paddock.serve.deployment.vllm import VllmReplica
from paddock.serve.deployment.workers import seats
from paddock.serve.own.protocol import Spec
from paddock.serve.placement.plan import Group, Plan

_TORCH = {"cuda": "cuda", "rocm": "cuda", "metal": "mps", "cpu": "cpu"}


def application(plan: Plan, source: str, seconds: float, **options: Any) -> Any:
    """Return what Ray Serve runs for a plan, with a checkpoint's folder or file and options of the deployment.

    An engine of its own must answer within `seconds`.
    """
    from ray import serve

    devices = [placed.device for group in plan.groups for placed in group.devices]
    actor: dict[str, Any] = {"num_cpus": 0, "runtime_env": {"env_vars": device_variables(devices[0])}}
    options |= {"ray_actor_options": actor}
    specs = [_spec(plan, group, source) for group in plan.groups]
    mode = plan.policy.mode
    if len(devices) == 1:
        actor["label_selector"] = {AGENT: devices[0].agent}
        if plan.policy.python:
            return serve.deployment(VllmReplica).options(**options).bind(specs[0], mode, plan.policy.python, seconds)
        return serve.deployment(Replica).options(**options).bind(specs[0], mode)
    places = seats(devices)
    options |= {"placement_group_bundles": [dict(seat.bundle) for seat in places]}
    if len(specs) == 1:
        return serve.deployment(GangReplica).options(**options).bind(specs[0], places, mode)
    stages = stage_specs(specs, [group.layers.count for group in plan.groups if group.layers])
    return serve.deployment(PipelineReplica).options(**options).bind(stages, places, mode)


def _spec(plan: Plan, group: Group, source: str) -> Spec:
    request, device = plan.request, group.devices[0].device
    return Spec(
        request.shape, group.dtype, _TORCH[device.backend], request.concurrency, request.context, source
    )  # fmt: skip
