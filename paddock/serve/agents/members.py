"""Agents of the cluster and their devices, as Ray's nodes report them. Runs inside a Ray driver or actor."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock.ray_labels import AGENT, BACKEND
from paddock.serve.agents.ray_process import DEVICES
from paddock.serve.placement.device import Device

_PROBE_S = 30.0


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent. `problem` says why its devices could not be read."""

    name: str
    backend: str
    host: str
    alive: bool
    devices: tuple[Device, ...] = ()
    problem: str = ""


def own_devices(agent: str) -> tuple[Device, ...]:
    """Return the devices of the machine that this runs on, under the agent's name; those of a file where one is set."""
    if file := os.environ.get(DEVICES):
        from paddock.serve.agents.devices_file import read_devices

        return tuple(device for device in read_devices(Path(file)) if device.agent == agent)
    from paddock.gpu.inventory import inventory
    from paddock.serve.agents.this_machine import this_machine

    return tuple(replace(device, agent=agent) for device in this_machine(inventory(processes=True), os.environ))


def agents() -> tuple[Agent, ...]:
    """Ask every node of the cluster for its devices, all at once."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe = ray.remote(num_cpus=0, max_retries=0)(own_devices)
    pending: dict[str, Any] = {}
    rows = [row for row in ray.nodes() if AGENT in row.get("Labels", {})]
    for row in rows:
        if row["Alive"]:
            strategy = NodeAffinitySchedulingStrategy(row["NodeID"], soft=False)
            pending[row["NodeID"]] = probe.options(scheduling_strategy=strategy).remote(row["Labels"][AGENT])
    ray.wait(list(pending.values()), num_returns=len(pending), timeout=_PROBE_S) if pending else None
    return tuple(_agent(row, pending.get(row["NodeID"])) for row in rows)


def alive() -> frozenset[str]:
    """Return the names of the agents that Ray sees."""
    import ray

    return frozenset(row["Labels"][AGENT] for row in ray.nodes() if row["Alive"] and AGENT in row.get("Labels", {}))


def _agent(row: dict[str, Any], answer: Any) -> Agent:
    import ray

    labels = row["Labels"]
    agent = Agent(labels[AGENT], labels.get(BACKEND, ""), row.get("NodeManagerHostname", ""), bool(row["Alive"]))
    if answer is None:
        return agent
    try:
        return replace(agent, devices=tuple(ray.get(answer, timeout=0)))
    except ray.exceptions.GetTimeoutError:
        return replace(agent, problem=f"no answer within {_PROBE_S:g} s")
    except ray.exceptions.RayError as error:
        return replace(agent, problem=str(error).strip().splitlines()[-1])
