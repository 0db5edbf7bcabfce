"""Actors of the replicas: started on the agent of a plan, asked for their status, and ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from paddock.ray_labels import AGENT, HEAD
from paddock.serve.deployment.instances.instance import PREFIX, Instance
from paddock.serve.errors import last_line
from paddock.serve.placement.plan import ModelPlacement
from paddock.serve.replica.status import Status, Task

_KILLED = "connection error code 2"
_WITHOUT_A_WORD = "it was killed, as the kernel does when memory runs out, or it crashed"
"""Words for those of Ray's, which lists in a paragraph what may have been."""
_END_S = 30.0
"""Seconds that an actor has to end by itself: its engine has fifteen, and it may be loading."""


@dataclass(slots=True)
class _Asked:
    """One actor, with the question that is under way and the last answer. One that ends must have until `deadline`."""

    handle: Any
    question: Any = None
    status: Status | None = None
    gone: str = ""
    deadline: float = 0.0


@dataclass(slots=True)
class Replicas:
    """The replicas' actors by their names. Nothing here waits for one."""

    namespace: str
    _actors: dict[str, _Asked] = field(default_factory=dict)
    _ending: dict[str, _Asked] = field(default_factory=dict)

    def start(self, instance: Instance, plan: ModelPlacement) -> None:
        """Start an instance's replica, and return before it serves."""
        import ray

        agent = plan.groups[0].devices[0].device.agent
        task = Task(instance.id, instance.source, plan, instance.seconds)
        options: dict[str, Any] = {
            "name": instance.actor, "namespace": self.namespace, "lifetime": "detached", "num_cpus": 0,
            "max_concurrency": 4, "label_selector": {AGENT: agent},
        }  # fmt: skip
        handle = ray.remote(Holder).options(**options).remote(task, agent != HEAD)
        self._ending.pop(instance.actor, None)  # of a former model of that id
        self._actors[instance.actor] = _Asked(handle)

    def statuses(self, names: Iterable[str]) -> dict[str, tuple[Status | None, str]]:
        """Return the last status of each actor, None before the first, and how it has ended where it has."""
        import ray

        answers: dict[str, tuple[Status | None, str]] = {}
        for name in names:
            if name not in self._actors and (found := self._found(name)):
                self._actors[name] = found
            asked = self._actors.get(name)
            if asked and not asked.gone:
                if asked.question is None:
                    asked.question = asked.handle.status.remote()
                if ray.wait([asked.question], timeout=0)[0]:
                    self._take(asked)
            answers[name] = (asked.status, asked.gone) if asked else (None, "")
        return answers

    def end(self, name: str) -> None:
        """Let a replica end its server and its process, also one that a former scheduler has started."""
        if name not in self._ending and (asked := self._actors.pop(name, None) or self._found(name)):
            asked.handle.end.remote()
            asked.deadline = time.monotonic() + _END_S
            self._ending[name] = asked

    def sweep(self) -> None:
        """Kill what was to end and has not: it hangs, or waits for a machine that is gone. Its server ends with it."""
        import ray

        for name, asked in list(self._ending.items()):
            if not self.lives(name):
                self._ending.pop(name, None)
            elif time.monotonic() > asked.deadline:
                ray.kill(asked.handle)

    def names(self) -> frozenset[str]:
        """Return the names of all that there are, also of those that former schedulers have started."""
        import ray

        rows = ray.util.list_named_actors(all_namespaces=True)
        own = (row["name"] for row in rows if row["namespace"] == self.namespace)
        return frozenset(name for name in own if name.startswith(PREFIX))

    def lives(self, name: str) -> bool:
        """Return whether there is such an actor."""
        return self._found(name) is not None

    def _found(self, name: str) -> _Asked | None:
        """Return the actor that a scheduler before this one has started; None where there is none, or not yet."""
        import ray

        try:
            return _Asked(ray.get_actor(name, namespace=self.namespace))
        except ValueError:
            return None

    def _take(self, asked: _Asked) -> None:
        import ray

        question, asked.question = asked.question, None
        try:
            asked.status = ray.get(question, timeout=0)
        except ray.exceptions.ActorUnavailableError:
            pass  # asked again
        except ray.exceptions.RayError as error:
            asked.gone = _WITHOUT_A_WORD if _KILLED in str(error) else last_line(error)


class Holder:
    """Actor that holds a replica, on the machine of its devices."""

    def __init__(self, task: Task, listens: bool) -> None:
        import ray

        from paddock.serve.replica.replica import Replica

        # vLLM over several machines joins this cluster: without an address it would begin one of its own.
        os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
        self._replica = Replica(replace(task, listen=ray.util.get_node_ip_address() if listens else ""))

    def status(self) -> Status:
        return self._replica.status()

    def end(self) -> None:
        """End the replica, and this process."""
        import ray

        self._replica.end()
        ray.actor.exit_actor()
