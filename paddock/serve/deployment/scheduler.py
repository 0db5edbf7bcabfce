"""Scheduler: one actor that places models on the agents' devices, deploys them, and re-places them when agents go.

A plan comes first and the deployment follows without waiting, since Ray Serve waits for ever for what fits nowhere.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import replace
from typing import Any

from paddock.bench.engine.protocol import Spec
from paddock.serve.agents import members
from paddock.serve.agents.ray_process import AGENT
from paddock.serve.deployment.instance import Instance
from paddock.serve.deployment.replica import Replica
from paddock.serve.placement.device import Device
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import Infeasible, Plan, document
from paddock.serve.placement.request import Policy, Request

NAME, NAMESPACE = "paddock-scheduler", "paddock"
_WATCH_S = 0.5
_DEPLOY_S = 600.0
"""Seconds in which a model must be loaded."""
_TORCH = {"cuda": "cuda", "rocm": "cuda", "metal": "mps", "cpu": "cpu"}


class Scheduler:
    """State of the cluster's models. Its methods run in threads of the actor, one at a time where they change it."""

    def __init__(self, queue: int) -> None:
        self._queue = queue
        self._instances: dict[str, Instance] = {}
        self._lock = threading.RLock()
        self._sources: dict[str, str] = {}
        threading.Thread(target=self._watch, daemon=True).start()

    def nodes(self) -> list[dict[str, Any]]:
        """Return the agents with their devices, and which instance has each."""
        used = {label: instance.id for instance in self._instances.values() for label in instance.devices}
        return [
            {
                "agent": agent.name, "backend": agent.backend, "host": agent.host, "alive": agent.alive,
                "problem": agent.problem or None,
                "devices": [
                    {
                        "device": device.label, "name": device.name, "memory_mib": device.memory_mib,
                        "free_mib": device.free_mib, "instance": used.get(device.label),
                    }
                    for device in agent.devices
                ],
            }
            for agent in members.agents()
        ]  # fmt: skip

    def plan(self, request: Request, policy: Policy) -> dict[str, Any]:
        """Return the plan for the cluster as it is, as JSON types."""
        return document(place(request, self._free(), policy))

    def load(self, request: Request, policy: Policy, source: str) -> dict[str, Any]:
        """Place and deploy a model, and return at once: the instance, or the document of a plan that is infeasible."""
        with self._lock:
            plan = place(request, self._free(), policy)
            if isinstance(plan, Infeasible):
                return document(plan)
            instance = Instance(
                self._id(request.shape.name), request.shape.name, plan, "loading", time.time(), time.time() + _DEPLOY_S
            )
            self._sources[instance.id] = source
            self._instances[instance.id] = instance
            self._deploy(instance)
            return {**instance.document(), "plan": document(plan)}

    def models(self) -> list[dict[str, Any]]:
        """Return every instance."""
        return [instance.document() for instance in self._instances.values()]

    def unload(self, id: str) -> dict[str, Any] | None:
        """End an instance and return what it was; None where there is none of that id."""
        with self._lock:
            instance = self._instances.pop(id, None)
            if instance is None:
                return None
            self._delete(instance)
            return instance.document()

    def _id(self, model: str) -> str:
        stem = re.sub(r"[^a-z0-9.]+", "-", model.lower().rpartition("/")[2]).strip("-") or "model"
        if stem not in self._instances:
            return stem
        return next(f"{stem}-{number}" for number in range(2, 10_000) if f"{stem}-{number}" not in self._instances)

    def _free(self, without: Instance | None = None) -> tuple[Device, ...]:
        """Return the devices of live agents; those of another instance as unavailable."""
        used = {
            label: instance.id
            for instance in self._instances.values()
            if instance is not without and instance.state in ("loading", "serving")
            for label in instance.devices
        }
        return tuple(
            replace(device, unavailable=f"it serves {used[device.label]}") if device.label in used else device
            for agent in members.agents()
            if agent.alive
            for device in agent.devices
        )

    def _deploy(self, instance: Instance) -> None:
        from ray import serve

        group = instance.plan.groups[0]
        device = group.devices[0].device
        request = instance.plan.request
        spec = Spec(
            request.shape, group.dtype, _TORCH[device.backend], 1, request.context, self._sources[instance.id],
            compiled=False,
        )  # fmt: skip
        hidden = {} if device.backend != "cuda" else {"CUDA_VISIBLE_DEVICES": str(device.index)}
        application = (
            serve.deployment(Replica)
            .options(
                name="replica",
                num_replicas=1,
                max_ongoing_requests=self._queue,
                max_queued_requests=self._queue,
                graceful_shutdown_timeout_s=5,
                ray_actor_options={
                    "num_cpus": 0,
                    "label_selector": {AGENT: device.agent},
                    "runtime_env": {"env_vars": hidden},
                },
            )
            .bind(spec)
        )
        target = serve.RunTarget(application, name=instance.application, route_prefix=None)
        serve.run_many([target], wait_for_applications_running=False, wait_for_ingress_deployment_creation=False)

    def _delete(self, instance: Instance) -> None:
        from ray import serve

        serve.delete(instance.application, _blocking=False)

    def _watch(self) -> None:
        while True:
            time.sleep(_WATCH_S)
            try:
                with self._lock:
                    self._check()
            except Exception as error:
                print(f"watch: {type(error).__name__}: {error}", flush=True)  # noqa: T201 - goes to the actor's log

    def _check(self) -> None:
        if not self._instances:
            return
        from ray import serve

        present, status = members.alive(), serve.status().applications
        for instance in list(self._instances.values()):
            if not instance.agents <= present:
                self._replace(instance)
                continue
            application = status.get(instance.application)
            state = str(application.status.value) if application else "NOT_STARTED"
            if state == "RUNNING":
                if instance.state != "serving" and instance.lost_at is not None:
                    instance.recovered_seconds = round(time.time() - instance.lost_at, 1)
                    instance.lost_at = None
                instance.state = "serving"
            elif state in ("DEPLOY_FAILED", "UNHEALTHY") and instance.state == "loading":
                instance.state, instance.reason = "failed", _last_line(application)
            elif instance.state == "loading" and time.time() > instance.deadline:
                instance.state = "failed"
                instance.reason = f"it was not loaded within {_DEPLOY_S:g} s: {_last_line(application)}"

    def _replace(self, instance: Instance) -> None:
        """Place an instance anew whose agent has gone, or say that it is lost until a device comes."""
        if instance.lost_at is None:
            instance.lost_at = time.time()
            instance.state, instance.reason = "lost", f"agent {', '.join(sorted(instance.agents))} has gone"
            self._delete(instance)
        plan = place(instance.plan.request, self._free(instance), replace(instance.plan.policy, backend=None))
        if isinstance(plan, Plan):
            instance.plan, instance.state, instance.moves = plan, "loading", instance.moves + 1
            instance.reason = ""
            instance.deadline = time.time() + _DEPLOY_S
            self._deploy(instance)


def _last_line(application: Any) -> str:
    messages = [application.message, *(row.message for row in application.deployments.values())] if application else []
    lines = [line for message in messages if message for line in message.strip().splitlines()]
    return lines[-1] if lines else "Ray Serve does not say why"
