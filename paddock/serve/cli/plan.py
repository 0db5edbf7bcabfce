"""`serve.plan`: where a model would run: on this machine, a cluster, saved inventories or a file of devices."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paddock.gpu import serialization
from paddock.gpu.inventory import inventory as read_inventory
from paddock.gpu.model import Inventory
from paddock.models import sources
from paddock.serve.agents.diagnosis import Link, TorchFacts, diagnose
from paddock.serve.agents.inventory_devices import inventory_devices
from paddock.serve.agents.this_machine import this_machine, torch_facts
from paddock.serve.cli.connection import call
from paddock.serve.cli.modes import load_mode
from paddock.serve.cli.output import say
from paddock.serve.cli.parameters import ServePlan
from paddock.serve.cli.requests import plan_policy, plan_request
from paddock.serve.cli.text import lines
from paddock.serve.errors import ServeInputError
from paddock.serve.placement.device import Backend, Device
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import Plan, document
from paddock.terminal import JsonOutput, caller_path


@dataclass(frozen=True, slots=True)
class _Sources:
    """Devices of all machines, and the chain of each whose inventory is there, by its name."""

    devices: tuple[Device, ...]
    chains: Mapping[str, tuple[Link, ...]]


def plan(flags: Mapping[str, Any]) -> int:
    """Print the plan and return the exit code: 1 where nothing fits. Raises ServeInputError, ModelError, GpuError."""
    parameters = ServePlan.from_flags(flags)
    json = JsonOutput.parse(parameters.json)
    _check_sources(parameters)
    model = sources.model(parameters.model_name)
    parameters, share = _with_mode(parameters)
    request, policy = plan_request(parameters, model), replace(plan_policy(parameters), share=share)
    chains: Mapping[str, tuple[Link, ...]] = {}
    unanswered: tuple[str, ...] = ()
    if parameters.cluster:
        answer = call("plan", request, policy)
        result, unanswered = answer.result, answer.unanswered
    else:
        found = _sources(parameters, policy.backend)
        result, chains = place(request, found.devices, policy), found.chains
    links = {agent: [link.document() for link in chain] for agent, chain in chains.items()}
    json.write({**document(result), "agents": links, "unanswered": list(unanswered)})
    say(json, *lines(result, chains), *(f"not known: {agent}" for agent in unanswered))
    return 0 if isinstance(result, Plan) else 1


def _with_mode(parameters: ServePlan) -> tuple[ServePlan, float | None]:
    """Return the parameters with the reserve and the batch of a mode, and the share of a GPU that it leases."""
    if not parameters.mode:
        return parameters, None
    if parameters.reserve is not None:
        raise ServeInputError(
            "--mode and --reserve both say what stays to others\n    expected: one of them\n    fix: leave one out"
        )
    mode = load_mode(parameters.mode)
    concurrency = mode.concurrency(parameters.concurrency)
    return replace(parameters, reserve=mode.reserve, concurrency=concurrency), mode.share


def _check_sources(parameters: ServePlan) -> None:
    named = {
        "--devices": parameters.devices is not None, "--from": bool(parameters.inventories),
        "--cluster": parameters.cluster,
    }  # fmt: skip
    chosen = [flag for flag, given in named.items() if given]
    if len(chosen) > 1:
        raise ServeInputError(
            f"{' and '.join(chosen)} both say which devices there are\n    expected: one of them"
            "\n    fix: leave one out"
        )


def _sources(parameters: ServePlan, backend: Backend | None) -> _Sources:
    if parameters.devices is not None:
        from paddock.serve.agents.devices_file import read_devices

        return _Sources(read_devices(caller_path(str(parameters.devices))), {})
    if parameters.inventories:
        return _saved(parameters.inventories, backend)
    inventory = read_inventory(processes=True)
    torch = torch_facts() if inventory.usable or backend == "cpu" else None
    return _Sources(this_machine(inventory, os.environ), _chains([inventory], torch, backend))


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
    return _Sources(devices, _chains(machines, None, backend))


def _chains(
    machines: Sequence[Inventory], torch: TorchFacts | None, backend: Backend | None
) -> dict[str, tuple[Link, ...]]:
    """Return the chain of each machine. Among several, the requested backend is that of those without GPUs alone."""
    return {
        inventory.machine.name: diagnose(inventory, torch, None if len(machines) > 1 and inventory.usable else backend)
        for inventory in machines
    }
