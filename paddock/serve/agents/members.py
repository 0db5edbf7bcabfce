"""Agents of the cluster and their devices, as Ray's nodes report them. Runs inside a Ray driver or actor."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock.ray_labels import AGENT, BACKEND
from paddock.serve.agents.this_machine import DEVICES
from paddock.serve.placement.device import Backend, Device

_PROBE_S = 30.0
_DIAGNOSIS_S = 150.0
"""A driver may take two minutes to answer."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent. `problem` says why its devices could not be read."""

    name: str
    backend: str
    host: str
    alive: bool
    devices: tuple[Device, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Probe:
    answer: Any
    began: float


class Members:
    """The agents, each asked for its devices by a process of its own there, which stays for the next question.

    One that hangs is asked once, and keeps nobody waiting twice.
    """

    def __init__(self, seconds: float = _PROBE_S) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._processes: dict[str, Any] = {}
        self._probes: dict[str, _Probe] = {}

    def alive(self) -> frozenset[str]:
        """Return the names of the agents that Ray sees."""
        return frozenset(row["Labels"][AGENT] for row in _labelled() if row["Alive"])

    def agents(self) -> tuple[Agent, ...]:
        """Ask every agent for its devices, all at once."""
        import ray

        rows = _labelled()
        names = Counter(row["Labels"][AGENT] for row in rows if row["Alive"])
        probes = self._begin([row for row in rows if row["Alive"]])
        deadline = time.monotonic() + self._seconds
        pending = [probe.answer for probe in probes.values() if not self._overdue(probe)]
        if pending:
            ray.wait(pending, num_returns=len(pending), timeout=max(0.0, deadline - time.monotonic()))
        return tuple(self._agent(row, probes.get(row["NodeID"]), names) for row in rows)

    def diagnosis(self, agent: str, backend: Backend, own_engine: bool) -> str:
        """Return the broken link of a backend on an agent, as it is now; empty where none is, or none is known.

        Without `own_engine` the model runs on another one than Paddock's llama.cpp, which then is not looked at.
        """
        import ray

        nodes = [row["NodeID"] for row in _labelled() if row["Alive"] and row["Labels"][AGENT] == agent]
        try:
            with self._lock:
                pending = [self._process(node).diagnosis.remote(backend, own_engine) for node in nodes]
            return next(iter(ray.get(pending, timeout=_DIAGNOSIS_S)), "")
        except ray.exceptions.RayError:
            return ""

    def _begin(self, rows: list[Mapping[str, Any]]) -> dict[str, _Probe]:
        """Return a probe of each node: the one under way, else a new one."""
        import ray

        with self._lock:
            there = {row["NodeID"] for row in rows}
            self._probes = {node: probe for node, probe in self._probes.items() if node in there}
            self._processes = {node: process for node, process in self._processes.items() if node in there}
            for row in rows:
                earlier = self._probes.get(row["NodeID"])
                if earlier is None or ray.wait([earlier.answer], timeout=0)[0]:
                    answer = self._process(row["NodeID"]).devices.remote(row["Labels"][AGENT])
                    self._probes[row["NodeID"]] = _Probe(answer, time.monotonic())
            return dict(self._probes)

    def _process(self, node: str) -> Any:
        """Return the process that is asked on a node, started at the first question."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if node not in self._processes:
            strategy = NodeAffinitySchedulingStrategy(node, soft=False)
            options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 2, "scheduling_strategy": strategy}
            self._processes[node] = ray.remote(OwnDevices).options(**options).remote()
        return self._processes[node]

    def _overdue(self, probe: _Probe) -> bool:
        return time.monotonic() - probe.began > self._seconds

    def _agent(self, row: Mapping[str, Any], probe: _Probe | None, names: Mapping[str, int]) -> Agent:
        import ray

        labels = row["Labels"]
        agent = Agent(labels[AGENT], labels.get(BACKEND, ""), row.get("NodeManagerHostname", ""), bool(row["Alive"]))
        if probe is None:
            return agent
        if names[agent.name] > 1:
            return replace(agent, problem="another machine has this name: join one of them under another (--name)")
        try:
            return replace(agent, devices=tuple(ray.get(probe.answer, timeout=0)))
        except ray.exceptions.GetTimeoutError:
            return replace(agent, problem=f"no answer within {self._seconds:g} s")
        except ray.exceptions.RayError as error:
            return replace(agent, problem=str(error).strip().splitlines()[-1])


class OwnDevices:
    """Actor on an agent, which says what devices are there."""

    def devices(self, agent: str) -> tuple[Device, ...]:
        return own_devices(agent)

    def diagnosis(self, backend: Backend, own_engine: bool) -> str:
        return own_diagnosis(backend, own_engine)


def own_devices(agent: str) -> tuple[Device, ...]:
    """Return the devices of the machine that this runs on, under the agent's name; those of a file where one is set."""
    if file := os.environ.get(DEVICES):
        from paddock.serve.agents.devices_file import read_devices

        return tuple(device for device in read_devices(Path(file)) if device.agent == agent)
    from paddock.gpu.inventory import inventory
    from paddock.serve.agents.this_machine import this_machine

    return tuple(replace(device, agent=agent) for device in this_machine(inventory(processes=True), os.environ))


def own_diagnosis(backend: Backend, own_engine: bool) -> str:
    """Return the broken link of a backend on the machine that this runs on; a rehearsal has none."""
    if os.environ.get(DEVICES):
        return ""
    from paddock.gpu.inventory import inventory
    from paddock.serve.agents.diagnosis import broken, diagnose
    from paddock.serve.agents.this_machine import engine_facts

    link = broken(diagnose(inventory(), engine_facts() if own_engine else None, backend))
    return str(link) if link else ""


def _labelled() -> list[Mapping[str, Any]]:
    import ray

    return [row for row in ray.nodes() if AGENT in row.get("Labels", {})]
