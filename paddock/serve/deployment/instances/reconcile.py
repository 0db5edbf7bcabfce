"""Reconciliation of the declared instances with agents and applications: what has gone is placed anew."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from paddock.serve.agents.members import Members
from paddock.serve.deployment.instances.applications import Applications
from paddock.serve.deployment.instances.instance import (
    DELETING,
    RUNNING,
    Application,
    Instance,
    adopted,
    lost,
    observed,
    placed,
    waiting,
)
from paddock.serve.deployment.instances.registry import Registry
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import Plan

_RETRY_S = 5.0
"""Seconds between two questions to the agents about an instance while none of them comes or goes."""


class Reconciler:
    """One thread's view of the cluster. Agents and Ray Serve are asked without the registry's lock."""

    def __init__(self, registry: Registry, members: Members, applications: Applications) -> None:
        self._registry, self._members, self._applications = registry, members, applications
        self._asked: dict[tuple[str, str], tuple[frozenset[str], float]] = {}
        """Questions about an instance, each with the agents that there were and the moment."""
        self._deleted: set[str] = set()
        """Applications that were asked to end, until they have."""

    def check(self) -> None:
        """Compare everything once, and act where it differs. Raises ServeError where Ray Serve does not answer."""
        present, applications = self._members.alive(), self._applications.all()
        self._deleted &= set(applications)
        instances = self._registry.instances()
        ids = {instance.id for instance in instances}
        self._asked = {question: asked for question, asked in self._asked.items() if question[1] in ids}
        for name in set(applications) - {instance.application for instance in instances}:
            if applications[name].status != DELETING:
                self.delete(name)  # of a scheduler that ended between two steps
        for instance in instances:
            self._step(instance, present, applications.get(instance.application), time.time())

    def delete(self, name: str) -> None:
        """Let an application end. Where Ray Serve does not answer, the next check tells it again."""
        self._deleted.add(name)
        try:
            self._applications.delete(name)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)  # noqa: T201 - goes to the actor's log

    def _step(self, instance: Instance, present: frozenset[str], application: Application | None, now: float) -> None:
        if instance.state in ("loading", "serving"):
            self._follow(instance, present, application, now)
        elif application is None:
            if instance.state == "unloading":
                self._registry.remove(instance.id)
            elif instance.state != "failed":
                self._place(instance, present, now)
        elif application.status == RUNNING and self._may_adopt(instance, present):
            self._registry.change(instance, adopted(instance, now))
        elif application.status != DELETING and (instance.state != "unloading" or self._reported(instance)):
            self.delete(instance.application)

    def _reported(self, instance: Instance) -> bool:
        return instance.application in self._deleted

    def _may_adopt(self, instance: Instance, present: frozenset[str]) -> bool:
        known = instance.state == "lost" and instance.plan is not None and instance.agents <= present
        return known and not self._reported(instance)

    def _follow(self, instance: Instance, present: frozenset[str], application: Application | None, now: float) -> None:
        """Follow an instance that has its devices, until they or its replica are gone."""
        if gone := instance.agents - present:
            after = lost(instance, f"agent {', '.join(sorted(gone))} has gone", now)
        else:
            after = observed(instance, application, now)
            starts_again = after.state == "loading" and after.lost_at is not None
            if starts_again and self._due(("devices", instance.id), present, now):
                after = self._without_failed_devices(after, now)
        if after is instance or not self._registry.change(instance, after):
            return
        if after.state in ("failed", "lost"):
            self.delete(instance.application)
        if after.state == "failed":
            threading.Thread(target=self._diagnose, args=(after,), daemon=True).start()

    def _without_failed_devices(self, instance: Instance, now: float) -> Instance:
        """Return an instance whose replica has ended: it leaves its devices where one of them has failed."""
        agents = [agent for agent in self._members.agents() if agent.alive and not agent.problem]
        devices = {device.label: device for agent in agents for device in agent.devices}
        for group in instance.plan.groups if instance.plan else ():
            for used in group.devices:
                current = devices.get(used.device.label)
                answered = any(agent.name == used.device.agent for agent in agents)
                if answered and (why := current.unavailable if current else "it is no longer there"):
                    return lost(instance, f"{used.device.label}: {why}", now)
        return instance

    def _diagnose(self, instance: Instance) -> None:
        """Add to the reason of a failed instance what is broken on its agents."""
        for agent in sorted(instance.agents):
            backend = instance.plan.backend if instance.plan else "cpu"
            if broken := self._members.diagnosis(agent, backend):
                reason = f"{instance.reason}; on {agent}, {broken}"
                self._registry.change(instance, replace(instance, reason=reason))
                return

    def _due(self, question: tuple[str, str], present: frozenset[str], now: float) -> bool:
        """Return whether agents may be asked that again: some have come or gone, or some time has passed."""
        agents, asked_at = self._asked.get(question, (frozenset[str](), 0.0))
        if agents == present and now - asked_at < _RETRY_S:
            return False
        self._asked[question] = present, now
        return True

    def _place(self, instance: Instance, present: frozenset[str], now: float) -> None:
        """Place an instance anew, or say what is lacking until devices come that hold it."""
        if not instance.awaited <= present and now < instance.awaited_until:
            return
        if not self._due(("place", instance.id), present, now):
            return
        agents = self._members.agents()
        with self._registry.lock:
            result = place(instance.request, self._registry.free(agents, instance.id), instance.policy)
            after = placed(instance, result, now) if isinstance(result, Plan) else waiting(instance, result)
            if not self._registry.change(instance, after):
                return
        if isinstance(result, Plan):
            try:
                self._applications.deploy(after, result)
            except Exception as error:
                self._registry.change(after, lost(after, f"it cannot be deployed: {error}", now))
