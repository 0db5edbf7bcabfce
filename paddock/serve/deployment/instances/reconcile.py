"""Reconciliation of the declared instances with agents and replicas: what is gone is placed again."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from paddock.serve.agents.members import Members
from paddock.serve.deployment.instances.instance import Instance, adopted, lost, observed, placed, waiting
from paddock.serve.deployment.instances.registry import Registry
from paddock.serve.deployment.instances.replicas import Replicas
from paddock.serve.placement.engines import engine_of
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import ModelPlacement
from paddock.serve.replica.status import Status

_RETRY_S = 5.0
"""Seconds between two questions to the agents about an instance while none of them comes or goes."""


class Reconciler:
    """One thread's view of the cluster. Agents and replicas are asked without the registry's lock."""

    def __init__(self, registry: Registry, members: Members, replicas: Replicas) -> None:
        self._registry, self._members, self._replicas = registry, members, replicas
        self._asked: dict[tuple[str, str], tuple[frozenset[str], float]] = {}
        """Questions about an instance, each with the agents that there were and the moment."""
        self._known = False
        """Whether the replicas of the scheduler before this one have been looked at."""

    def check(self) -> None:
        """Compare everything once, and act where it differs."""
        present = self._members.alive()
        actors = frozenset[str]() if self._known else self._replicas.names()
        instances = self._registry.instances()  # after the actors, which are started after they are declared
        ids = {instance.id for instance in instances}
        self._asked = {question: asked for question, asked in self._asked.items() if question[1] in ids}
        for orphan in actors - {instance.actor for instance in instances}:
            self._replicas.end(orphan)  # of a scheduler that ended between two steps
        self._known = True
        self._replicas.sweep()
        statuses = self._replicas.statuses([i.actor for i in instances if i.state in ("loading", "serving")])
        for instance in instances:
            self._step(instance, present, statuses.get(instance.actor), time.time())

    def _step(
        self, instance: Instance, present: frozenset[str], answer: tuple[Status | None, str] | None, now: float
    ) -> None:
        if instance.state in ("loading", "serving"):
            self._follow(instance, present, answer or (None, ""), now)
        elif instance.state == "unloading":
            if not self._replicas.lives(instance.actor):
                self._registry.remove(instance.id)
            else:  # also where it was started after it was unloaded, as these are two steps
                self._replicas.end(instance.actor)
        elif instance.state in ("pending", "lost"):
            if self._may_adopt(instance, present) and self._replicas.lives(instance.actor):
                self._registry.change(instance, adopted(instance, now))
            else:
                self._place(instance, present, now)

    def _may_adopt(self, instance: Instance, present: frozenset[str]) -> bool:
        """Return whether the replica of the scheduler before this one may still serve."""
        return instance.plan is not None and bool(instance.awaited) and instance.awaited <= present

    def _follow(
        self, instance: Instance, present: frozenset[str], answer: tuple[Status | None, str], now: float
    ) -> None:
        """Follow an instance that has its devices, until they or its replica are gone."""
        if gone := instance.agents - present:
            after = lost(instance, f"agent {', '.join(sorted(gone))} is gone", now)
        else:
            after = observed(instance, *answer, now)
            starts_again = after.state == "loading" and after.lost_at is not None
            if starts_again and self._due(("devices", instance.id), present, now):
                after = self._without_failed_devices(after, now)
        if after == instance or not self._registry.change(instance, after):
            return
        if after.state in ("failed", "lost") or after.generation != instance.generation:
            self._replicas.end(instance.actor)
        if after.generation != instance.generation and after.plan:
            self._replicas.start(after, after.plan)
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
        own = engine_of(instance.request.model, instance.policy) == "llama.cpp" and not instance.policy.server
        for agent in sorted(instance.agents):
            backend = instance.plan.backend if instance.plan else "cpu"
            if broken := self._members.diagnosis(agent, backend, own):
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
        """Place an instance again, or say what is lacking until devices come that hold it."""
        if not instance.awaited <= present and now < instance.awaited_until:
            return
        if not self._due(("place", instance.id), present, now):
            return
        agents = self._members.agents()
        with self._registry.lock:
            result = place(instance.request, self._registry.free(agents, instance.id), instance.policy)
            after = placed(instance, result, now) if isinstance(result, ModelPlacement) else waiting(instance, result)
            if not self._registry.change(instance, after):
                return
        if isinstance(result, ModelPlacement):
            try:
                self._replicas.start(after, result)
            except Exception as error:
                self._registry.change(after, lost(after, f"it cannot be deployed: {error}", now))
