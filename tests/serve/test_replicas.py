"""Actors of replicas by their names, before a stand-in for Ray that has them."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from paddock.models.presets import preset
from paddock.serve.deployment.instances import replicas as module
from paddock.serve.deployment.instances.instance import declared
from paddock.serve.deployment.instances.replicas import Replicas
from paddock.serve.placement.device import Device
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import ModelPlacement
from paddock.serve.placement.request import Request


class Actor:
    """An actor that is asked to end, and does not."""

    def __init__(self) -> None:
        self.asked = 0
        self.end = self

    def remote(self) -> None:
        self.asked += 1


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> dict[str, Actor]:
    """Return the actors of a stand-in for Ray, which `kill` removes."""
    actors: dict[str, Actor] = {}

    def get_actor(name: str, namespace: str) -> Actor:
        if name not in actors:
            raise ValueError(name)
        return actors[name]

    def kill(actor: Actor) -> None:
        del actors[next(name for name, known in actors.items() if known is actor)]

    class Remote:
        def __init__(self, _: type) -> None:
            self.name = ""

        def options(self, name: str, **_: object) -> Remote:
            self.name = name
            return self

        def remote(self, *_: object) -> Actor:
            actors[self.name] = Actor()
            return actors[self.name]

    ray: Any = ModuleType("ray")
    ray.get_actor, ray.kill, ray.remote = get_actor, kill, Remote
    monkeypatch.setitem(sys.modules, "ray", ray)
    return actors


def test_a_former_schedulers_replica_is_asked_to_end_once(actors: dict[str, Actor]) -> None:
    actors["replica-a.1"] = Actor()
    replicas = Replicas("paddock")
    for _ in range(3):
        replicas.end("replica-a.1")
        replicas.end("replica-absent.1")
    replicas.sweep()
    assert actors["replica-a.1"].asked == 1


def test_a_replica_that_does_not_end_is_killed(actors: dict[str, Actor], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_END_S", -1.0)
    actors["replica-a.1"] = Actor()
    replicas = Replicas("paddock")
    replicas.end("replica-a.1")
    replicas.sweep()
    assert not replicas.lives("replica-a.1")


def test_a_later_replica_of_the_same_name_ends_too(actors: dict[str, Actor]) -> None:
    box = Device("box", "cuda", 0, 4096, 4096)
    plan = place(Request(preset("tiny")), [box])
    assert isinstance(plan, ModelPlacement)
    instance = declared("a", plan.request, plan.policy, "tiny", 60, plan, 0.0)
    replicas = Replicas("paddock")
    replicas.start(instance, plan)
    replicas.end(instance.actor)
    del actors[instance.actor]
    replicas.start(instance, plan)
    replicas.end(instance.actor)
    assert actors[instance.actor].asked == 1
