"""Application of Ray Serve for a plan: a replica on one device, a gang, or a pipeline."""

from __future__ import annotations

from typing import Any

from paddock.bench.engine.protocol import Spec
from paddock.serve.agents.ray_process import AGENT
from paddock.serve.deployment.gang import GangReplica
from paddock.serve.deployment.pipeline import PipelineReplica, stage_specs
from paddock.serve.deployment.replica import Replica
from paddock.serve.deployment.workers import seats, visible
from paddock.serve.placement.plan import Group, Plan

_TORCH = {"cuda": "cuda", "rocm": "cuda", "metal": "mps", "cpu": "cpu"}
_HEALTH_S = 2
"""Seconds between two looks at a replica of several processes, which ends itself where one of them has."""


def application(plan: Plan, source: str, **options: Any) -> Any:
    """Return what Ray Serve runs for a plan, with a checkpoint's folder and options of the deployment."""
    from ray import serve

    devices = [placed.device for group in plan.groups for placed in group.devices]
    actor: dict[str, Any] = {"num_cpus": 0, "runtime_env": {"env_vars": visible(devices[0])}}
    options |= {"ray_actor_options": actor}
    specs = [_spec(plan, group, source) for group in plan.groups]
    mode = plan.policy.mode
    if len(devices) == 1:
        actor["label_selector"] = {AGENT: devices[0].agent}
        return serve.deployment(Replica).options(**options).bind(specs[0], mode)
    places = seats(devices)
    options |= {"placement_group_bundles": [dict(seat.bundle) for seat in places], "health_check_period_s": _HEALTH_S}
    if len(specs) == 1:
        return serve.deployment(GangReplica).options(**options).bind(specs[0], places, mode)
    stages = stage_specs(specs, [group.layers.count for group in plan.groups if group.layers])
    return serve.deployment(PipelineReplica).options(**options).bind(stages, places, mode)


def _spec(plan: Plan, group: Group, source: str) -> Spec:
    request, device = plan.request, group.devices[0].device
    return Spec(
        request.shape, group.dtype, _TORCH[device.backend], request.concurrency, request.context, source,
        compiled=False,
    )  # fmt: skip
