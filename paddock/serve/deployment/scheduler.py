"""Scheduler: one actor that places models on the agents' devices, deploys them, and re-places them when agents go.

A plan comes first and the deployment follows without waiting, since Ray Serve waits for ever for what fits nowhere.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock.serve.agents import members
from paddock.serve.deployment import saved
from paddock.serve.deployment.application import application
from paddock.serve.deployment.external import Endpoint, External, endpoint
from paddock.serve.deployment.instance import Instance
from paddock.serve.placement.device import Device
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import Infeasible, Plan, document
from paddock.serve.placement.request import Policy, Request

NAME, NAMESPACE = "paddock-scheduler", "paddock"
_WATCH_S = 0.5
_DEPLOY_S = 600.0
"""Seconds in which a model must be loaded."""
_RETURN_S = 120.0
"""Seconds that the former agents of a model have to come back to a new head."""
_RETRY_S = 5.0
"""Seconds between two placements of a model while no agent comes or goes."""
_CHECK_S, _CHECK_EVERY_S = 10.0, 5.0
"""Seconds in which an external engine must say that it serves, and between two such questions."""


class Scheduler:
    """State of the cluster's models. Its methods run in threads of the actor, one at a time where they change it."""

    def __init__(self, queue: int, state: Path | None = None) -> None:
        self._queue, self._state = queue, state
        self._instances: dict[str, Instance] = {}
        self._endpoints: dict[str, Endpoint] = {}
        self._lock = threading.RLock()
        self._tried: dict[str, tuple[frozenset[str], float]] = {}
        for model in saved.read(state) if state else ():
            self._declare_again(model)
        for known in saved.read_endpoints(state) if state else ():
            self._endpoints[known.id] = known
            self._begin(known)
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

    def load(self, request: Request, policy: Policy, source: str, pending: bool = False) -> dict[str, Any]:
        """Place and deploy a model, and return at once: the instance, or the document of a plan that is infeasible.

        With `pending`, one that fits nowhere is declared all the same, and placed once devices come that hold it.
        """
        with self._lock:
            plan = place(request, self._free(), policy)
            if isinstance(plan, Infeasible) and not pending:
                return document(plan)
            id, now = self._id(request.shape.name), time.time()
            placed = plan if isinstance(plan, Plan) else None
            instance = Instance(
                id, request.shape.name, request, policy, source, placed, "loading" if placed else "pending", now,
                now + _DEPLOY_S, "" if placed else "no device holds it",
            )  # fmt: skip
            self._instances[id] = instance
            self._save()
            if placed:
                self._deploy(instance, placed)
            return {**instance.document(), "plan": document(plan)}

    def load_url(self, external: External, concurrency: int) -> dict[str, Any]:
        """Declare an external engine and return it, checked. It takes no device."""
        with self._lock:
            declared = endpoint(
                self._id(external.model), concurrency, external.url, external.model, external.key_file
            )  # fmt: skip
            self._endpoints[declared.id] = declared
            self._save()
        declared.check(_CHECK_S)
        self._begin(declared)
        return declared.document()

    def _begin(self, declared: Endpoint) -> None:
        threading.Thread(target=self._watch_endpoint, args=(declared,), daemon=True).start()

    def _watch_endpoint(self, declared: Endpoint) -> None:
        """Ask an endpoint again and again whether it serves, until it is unloaded."""
        while self._endpoints.get(declared.id) is declared:
            try:
                declared.check(_CHECK_S)
            except Exception as error:
                declared.reason = f"it cannot be checked: {type(error).__name__}"
            time.sleep(_CHECK_EVERY_S)

    def models(self) -> list[dict[str, Any]]:
        """Return every instance."""
        placed = [instance.document() for instance in self._instances.values()]
        return placed + [declared.document() for declared in self._endpoints.values()]

    def unload(self, id: str) -> dict[str, Any] | None:
        """End an instance and return what it was; None where there is none of that id."""
        with self._lock:
            if declared := self._endpoints.pop(id, None):
                self._save()
                return declared.document()
            instance = self._instances.pop(id, None)
            if instance is None:
                return None
            self._save()
            self._delete(instance)
            return instance.document()

    def _declare_again(self, model: saved.Saved) -> None:
        """Take a model of the head before this one. Its former agents have some time to come back."""
        now = time.time()
        self._instances[model.id] = Instance(
            model.id, model.request.shape.name, model.request, model.policy, model.source, None, "lost", now, now,
            "the head has started anew", lost_at=now, awaited=frozenset(model.agents), awaited_until=now + _RETURN_S,
        )  # fmt: skip

    def _save(self) -> None:
        if self._state is None:
            return
        rows = [
            saved.Saved(row.id, row.request, row.policy, row.source, tuple(sorted(row.agents or row.awaited)))
            for row in self._instances.values()
        ]
        try:
            saved.write(self._state, rows, [declared.saved() for declared in self._endpoints.values()])
        except OSError as error:
            print(f"{self._state}: {error.strerror}", flush=True)  # noqa: T201 - goes to the actor's log

    def _id(self, model: str) -> str:
        stem = re.sub(r"[^a-z0-9.]+", "-", model.lower().rpartition("/")[2]).strip("-") or "model"
        used = {*self._instances, *self._endpoints}
        if stem not in used:
            return stem
        return next(f"{stem}-{number}" for number in range(2, 10_000) if f"{stem}-{number}" not in used)

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

    def _deploy(self, instance: Instance, plan: Plan) -> None:
        from ray import serve

        deployed = application(
            plan, instance.source, name="replica", num_replicas=1, max_ongoing_requests=self._queue,
            max_queued_requests=self._queue, graceful_shutdown_timeout_s=5,
        )  # fmt: skip
        target = serve.RunTarget(deployed, name=instance.application, route_prefix=None)
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
            if instance.plan is None or not instance.agents <= present:
                self._replace(instance, present)
                continue
            application = status.get(instance.application)
            state = str(application.status.value) if application else "NOT_STARTED"
            if state == "RUNNING":
                if instance.state != "serving" and instance.lost_at is not None:
                    instance.recovered_seconds = round(time.time() - instance.lost_at, 1)
                    instance.lost_at = None
                instance.state, instance.reason = "serving", ""
            elif instance.state == "serving" and state != "RUNNING":
                instance.state, instance.reason = "loading", "its replica has ended, and starts again"
                instance.lost_at, instance.deadline = time.time(), time.time() + _DEPLOY_S
            elif state == "DEPLOY_FAILED" and instance.state == "loading":
                instance.state, instance.reason = "failed", _last_line(application)
            elif instance.state == "loading" and time.time() > instance.deadline:
                instance.state = "failed"
                instance.reason = f"it was not loaded within {_DEPLOY_S:g} s: {_last_line(application)}"

    def _replace(self, instance: Instance, present: frozenset[str]) -> None:
        """Place an instance without its devices, or say that it waits until some come."""
        now = time.time()
        if instance.lost_at is None and instance.state != "pending":
            instance.lost_at = now
            instance.state, instance.reason = "lost", f"agent {', '.join(sorted(instance.agents - present))} has gone"
            self._delete(instance)
        if not instance.awaited <= present and now < instance.awaited_until:
            return
        agents, tried_at = self._tried.get(instance.id, (frozenset[str](), 0.0))
        if agents == present and now - tried_at < _RETRY_S:
            return  # nothing has come, and every try asks all agents
        self._tried[instance.id] = present, now
        policy = instance.policy if instance.state == "pending" else replace(instance.policy, backend=None)
        plan = place(instance.request, self._free(instance), policy)
        if isinstance(plan, Plan):
            if instance.plan is not None:
                instance.moves += 1
            instance.plan, instance.state, instance.reason = plan, "loading", ""
            instance.deadline = now + _DEPLOY_S
            self._save()
            self._deploy(instance, plan)
        elif instance.plan is None:
            instance.reason = "no device holds it"


def reason(messages: Iterable[str]) -> str:
    """Return why a replica did not start, from what Ray Serve says of it: its error without the traceback."""
    lines = [line for message in messages if message for line in message.strip().splitlines() if line.strip()]
    if not lines:
        return "Ray Serve does not say why"
    # An error of ours goes on with what was expected and the fix, on lines of their own.
    start = max((number for number, line in enumerate(lines) if not line.startswith(" ")), default=0)
    return "; ".join(line.strip() for line in lines[start:])


def _last_line(application: Any) -> str:
    if application is None:
        return reason(())
    return reason([application.message, *(row.message for row in application.deployments.values())])
