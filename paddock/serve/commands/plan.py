"""`serve.plan`: where a model would run: on this machine, a cluster, saved inventories or a file of devices."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock.console.command import command
from paddock.console.output import caller_path
from paddock.console.parameters import parameter
from paddock.console.report import Report
from paddock.gpu import serialization
from paddock.gpu.inventory import inventory as read_inventory
from paddock.gpu.model import Inventory
from paddock.models import sources
from paddock.serve.agents.diagnosis import EngineFacts, Link, diagnose, unusable
from paddock.serve.agents.inventory_devices import inventory_devices
from paddock.serve.agents.this_machine import engine_facts, this_machine
from paddock.serve.commands import text
from paddock.serve.commands.connection import call
from paddock.serve.commands.requests import Placed, load_mode, plan_policy, plan_request
from paddock.serve.errors import ServeInputError
from paddock.serve.placement.device import Backend, Device
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import SCHEMA, Infeasible, ModelPlacement, document

_Sources = tuple[tuple[Device, ...], Mapping[str, tuple[Link, ...]]]
"""Devices of all machines, and the chain of each whose inventory is there, by its name."""


@dataclass(frozen=True, kw_only=True)
class ServePlan(Placed):
    """Parameters of `serve.plan`."""

    reserve: float | None = parameter(
        None, "part of each device's memory left to others, 0 to 0.95; by default 0.05, or what the mode leaves",
        ge=0,
    )  # fmt: skip
    cluster: bool = parameter(False, "plan for the cluster whose head runs here, as it is now")
    devices: Path | None = parameter(None, "plan for the devices of this file instead of this machine's")
    inventories: tuple[str, ...] = parameter(
        (), "plan for saved inventories (gpu.list --json) instead of this machine", flag="from"
    )

    def check(self) -> None:
        """Check that one source of devices is named at most. Raises ServeInputError."""
        named = {
            "--devices": self.devices is not None, "--from": bool(self.inventories), "--cluster": self.cluster,
        }  # fmt: skip
        chosen = [flag for flag, given in named.items() if given]
        if len(chosen) > 1:
            raise ServeInputError(
                f"{' and '.join(chosen)} both say which devices there are\n    expected: one of them"
                "\n    fix: leave one out"
            )


@dataclass(frozen=True, kw_only=True)
class Planned(Report):
    """A plan with the chains of the agents, and the agents whose devices are not known."""

    SCHEMA = SCHEMA
    result: ModelPlacement | Infeasible
    chains: Mapping[str, tuple[Link, ...]]
    unanswered: tuple[str, ...] = ()

    def text(self) -> Iterator[str]:
        yield from text.lines(self.result, self.chains)
        yield from (f"not known: {agent}" for agent in self.unanswered)

    def document(self) -> dict[str, Any]:
        links = {agent: [link.document() for link in chain] for agent, chain in self.chains.items()}
        return {**document(self.result), "agents": links, "unanswered": list(self.unanswered)}

    @property
    def exit_code(self) -> int:
        return 0 if isinstance(self.result, ModelPlacement) else 1


@command(checks_values_first=True)
def plan(parameters: ServePlan) -> Planned:
    """Plan where a model would run; 1 where nothing fits. Raises ServeInputError, ModelError, GpuError."""
    parameters.check()
    model = sources.model(parameters.model_name)
    parameters, reserve, share = _with_mode(parameters)
    request, policy = plan_request(parameters, model), replace(plan_policy(parameters, model, reserve), share=share)
    if parameters.cluster:
        answer = call("plan", request, policy)
        return Planned(result=answer.result, chains={}, unanswered=answer.unanswered)
    devices, chains = _sources(parameters, policy.backend)
    return Planned(result=place(request, devices, policy), chains=chains)


def _with_mode(parameters: ServePlan) -> tuple[ServePlan, float | None, float | None]:
    """Return the parameters with the batch of a mode, its reserve, and the share of a GPU that it leases."""
    if not parameters.mode:
        return parameters, parameters.reserve, None
    if parameters.reserve is not None:
        raise ServeInputError(
            "--mode and --reserve both say what is left to others\n    expected: one of them\n    fix: leave one out"
        )
    mode = load_mode(parameters.mode)
    return replace(parameters, concurrency=mode.concurrency(parameters.concurrency)), mode.reserve, mode.share


def _sources(parameters: ServePlan, backend: Backend | None) -> _Sources:
    if parameters.devices is not None:
        from paddock.serve.agents.devices_file import read_devices

        return read_devices(parameters.devices), {}
    if parameters.inventories:
        return _saved(parameters.inventories, backend)
    inventory = read_inventory(processes=True)
    engine = engine_facts() if inventory.usable or backend == "cpu" else None
    built = engine is not None and engine.version is not None
    without = {of: str(link) for of, link in unusable(inventory, engine).items()} if engine and built else {}
    devices = tuple(
        replace(device, without=(("llama.cpp", without[device.backend]),)) if device.backend in without else device
        for device in this_machine(inventory, os.environ)
    )
    return devices, _chains([inventory], engine, backend)


def _saved(paths: Iterable[str], backend: Backend | None) -> _Sources:
    inventories: dict[str, tuple[str, Inventory]] = {}
    for path in paths:
        inventory = serialization.load(caller_path(path))
        name = inventory.machine.name
        if name in inventories:
            raise ServeInputError(
                f"--from: {inventories[name][0]} and {path} are both of the machine {name}"
                "\n    expected: each machine once, since agents are named after them"
                "\n    fix: leave one out, or change machine.name in one"
            )
        inventories[name] = path, inventory
    machines = [inventory for _, inventory in inventories.values()]
    devices = tuple(device for inventory in machines for device in inventory_devices(inventory))
    return devices, _chains(machines, None, backend)


def _chains(
    machines: Sequence[Inventory], engine: EngineFacts | None, backend: Backend | None
) -> dict[str, tuple[Link, ...]]:
    """Return the chain of each machine. Among several, the requested backend is that of those without GPUs alone."""
    return {
        inventory.machine.name: diagnose(inventory, engine, None if len(machines) > 1 and inventory.usable else backend)
        for inventory in machines
    }
