"""Scheduler: one actor that places models on the agents' devices, starts their replicas, and follows both."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock.serve.agents.members import Agent, Members
from paddock.serve.deployment.instances.instance import Instance, declared
from paddock.serve.deployment.instances.reconcile import Reconciler
from paddock.serve.deployment.instances.registry import Registry
from paddock.serve.deployment.instances.replicas import Replicas
from paddock.serve.deployment.row import Endpoint
from paddock.serve.errors import ServeError
from paddock.serve.gateway.external import External
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import Infeasible, ModelPlacement
from paddock.serve.placement.request import Policy, Request

NAME, NAMESPACE = "paddock-scheduler", "paddock"
DEPLOY_S = 600.0
"""Seconds in which a model must be loaded, where its user does not say."""
_WATCH_S = 0.2
_CHECK_S, _CHECK_EVERY_S = 10.0, 5.0
"""Seconds in which an external engine must say that it serves, and between two such questions."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer to a request to plan or load: the row of the instance, if any, and the plan or what is lacking.

    `unanswered` are the agents whose devices are not known, each with the reason.
    """

    row: dict[str, Any] | None
    result: ModelPlacement | Infeasible
    unanswered: tuple[str, ...]


class Scheduler:
    """State of the cluster's models. Its methods run in threads of the actor."""

    def __init__(
        self, state: Path | None = None, members: Members | None = None, replicas: Replicas | None = None
    ) -> None:
        self._members, self._replicas = members or Members(), replicas or Replicas(NAMESPACE)
        self._registry = Registry(state)
        self._reconciler = Reconciler(self._registry, self._members, self._replicas)
        self._closed = threading.Event()
        for known in self._registry.endpoints():
            self._watch_endpoint(known)
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        """End its threads. An actor's end with their process."""
        self._closed.set()

    def nodes(self) -> list[dict[str, Any]]:
        """Return the agents with their devices, and which instance has each."""
        agents, used = self._members.agents(), self._registry.used()
        return [_node(agent, used) for agent in agents]

    def plan(self, request: Request, policy: Policy) -> Answer:
        """Return the plan for the cluster as it is; nothing is loaded."""
        agents = self._members.agents()
        return Answer(None, place(request, self._registry.free(agents), policy), _unanswered(agents))

    def load(
        self, request: Request, policy: Policy, source: str, pending: bool = False, seconds: float = DEPLOY_S
    ) -> Answer:
        """Place and deploy a model, and return before it serves. Without a place there is no row.

        With `pending`, one that fits nowhere is declared all the same, and placed once devices come that hold it. It
        must be loaded within `seconds`. Raises ServeError where it cannot be deployed; it is not declared then.
        """
        agents = self._members.agents()
        with self._registry.lock:
            result = place(request, self._registry.free(agents), policy)
            if isinstance(result, Infeasible) and not pending:
                return Answer(None, result, _unanswered(agents))
            id = self._registry.new_id(request.model.name)
            instance = declared(id, request, policy, source, seconds, result, time.time())
            self._registry.add(instance)
        if isinstance(result, ModelPlacement):
            try:
                self._replicas.start(instance, result)
            except Exception as error:
                self._registry.remove(id)
                raise ServeError(f"{id} cannot be deployed: {error}") from None
        return Answer(instance.document(), result, _unanswered(agents))

    def load_url(self, external: External, concurrency: int) -> dict[str, Any]:
        """Declare an external engine and return it, checked. It takes no device."""
        with self._registry.lock:
            id = self._registry.new_id(external.model)
            known = Endpoint(id, concurrency, external)
            self._registry.add(known)
        known.check(_CHECK_S)
        self._watch_endpoint(known)
        return known.document()

    def models(self) -> list[dict[str, Any]]:
        """Return every instance."""
        return self._registry.rows()

    def routes(self) -> list[dict[str, Any]]:
        """Return every instance with the way to its server, for the gateway."""
        return self._registry.routes()

    def unload(self, id: str) -> dict[str, Any] | None:
        """Let an instance end, and return it; None where there is none. It is listed until its replica has ended."""
        with self._registry.lock:
            entry = self._registry.get(id)
            if not isinstance(entry, Instance):
                self._registry.remove(id)
                return entry.document() if entry else None
            ending = replace(entry, state="unloading", reason="")
            self._registry.change(entry, ending)
        if entry.state != "unloading":
            self._replicas.end(entry.actor)
        return ending.document()

    def _watch_endpoint(self, known: Endpoint) -> None:
        """Ask an endpoint again and again whether it serves, until it is unloaded."""

        def watch() -> None:
            while self._registry.get(known.id) is known:
                try:
                    known.check(_CHECK_S)
                except Exception as error:
                    known.reason = f"it cannot be checked: {type(error).__name__}"
                if self._closed.wait(_CHECK_EVERY_S):
                    return

        threading.Thread(target=watch, daemon=True).start()

    def _watch(self) -> None:
        printed = ""
        while not self._closed.wait(_WATCH_S):
            try:
                self._reconciler.check()
                printed = ""
            except Exception as error:
                if (words := f"watch: {type(error).__name__}: {error}") != printed:
                    print(printed := words, flush=True)  # noqa: T201 - goes to the actor's log


def _unanswered(agents: Iterable[Agent]) -> tuple[str, ...]:
    return tuple(f"{agent.name}: {agent.problem}" for agent in agents if agent.alive and agent.problem)


def _node(agent: Agent, used: Mapping[str, str]) -> dict[str, Any]:
    return {
        "agent": agent.name,
        "backend": agent.backend,
        "host": agent.host,
        "alive": agent.alive,
        "problem": agent.problem or None,
        "devices": [
            {
                "device": device.label,
                "name": device.name,
                "memory_mib": device.memory_mib,
                "free_mib": device.free_mib,
                "instance": used.get(device.label),
                "unavailable": device.unavailable or (device.busy if device.label not in used else "") or None,
            }
            for device in agent.devices
        ],
    }
