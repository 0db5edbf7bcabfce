"""This machine as an agent: its GPUs with their leases, its CPU, its llama.cpp, and what it reports of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from paddock.gpu.health.check import logged_events
from paddock.gpu.host.resources import available_bytes, memory_bytes, processor
from paddock.gpu.leases.manager import Leases
from paddock.gpu.model import Inventory
from paddock.ray_labels import HEAD
from paddock.serve.agents import engine_probe
from paddock.serve.agents.devices_file import read_devices
from paddock.serve.agents.diagnosis import EngineFacts, unusable
from paddock.serve.agents.inventory_devices import inventory_devices
from paddock.serve.errors import ServeInputError
from paddock.serve.placement.device import Device

BROKEN = "PADDOCK_SERVE_BROKEN"
"""Variable of an agent: a JSON object of the backends on which llama.cpp computes nothing there, with the reasons."""
_PROBE_S = 60.0
_MIB = 2**20


def this_machine(inventory: Inventory, environ: Mapping[str, str]) -> tuple[Device, ...]:
    """Return the devices of this machine, from an inventory with its processes. Raises GpuError.

    Those that others lease or use are busy; macOS leases none. Those of a backend that BROKEN names are
    without llama.cpp.
    """
    leasing = inventory.gpus and sys.platform != "darwin"
    context = Leases(environ=environ).context(inventory, logged_events()) if leasing else None
    devices = (*inventory_devices(inventory, context), *_processor(inventory.machine.name))
    broken: dict[str, str] = json.loads(environ.get(BROKEN) or "{}")
    return tuple(
        replace(device, without=(("llama.cpp", why),)) if (why := broken.get(device.backend)) else device
        for device in devices
    )


def _processor(agent: str) -> tuple[Device, ...]:
    total = memory_bytes()
    if total is None:
        return ()
    free = min(available_bytes() or total, total)
    return (Device(agent, "cpu", 0, total // _MIB, free // _MIB, processor()),)


def engine_facts(python: str = sys.executable) -> EngineFacts:
    """Return what llama.cpp says in another process: a driver that hangs, or one that crashes, is not this one's."""
    probe = [python, str(Path(engine_probe.__file__))]
    try:
        finished = subprocess.run(probe, capture_output=True, text=True, check=True, timeout=_PROBE_S)
        facts = json.loads(finished.stdout.strip().rpartition("\n")[2])
        return EngineFacts(facts.get("version"), tuple(facts.get("gpus", ())), facts.get("error", ""))
    except subprocess.TimeoutExpired:
        return EngineFacts(error=f"llama.cpp did not load within {_PROBE_S:g} s")
    except (OSError, subprocess.CalledProcessError, ValueError, TypeError) as error:
        return EngineFacts(error=f"llama.cpp did not answer: {error}")


DEVICES = "PADDOCK_SERVE_DEVICES"
"""Names a file of devices that an agent reports instead of this machine's."""
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class AgentReport:
    """Facts that an agent is started with. `backend` is its label, `broken` says why a backend cannot be used."""

    backend: str
    devices: Path | None = None
    broken: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    """GPUs in Ray's books, which only vLLM over several machines takes from there."""

    def environment(self) -> dict[str, str]:
        """Return the variables by which its processes know it."""
        variables = {DEVICES: str(self.devices)} if self.devices else {}
        return {**variables, **({BROKEN: json.dumps(dict(self.broken))} if self.broken else {})}


def agent_name(text: str) -> str:
    """Return the name of an agent that joins. Raises ServeInputError for one that cannot be."""
    if text == HEAD:
        raise ServeInputError(f"--name {HEAD} is the name of the head's own devices\n    fix: another name")
    if not _NAME.fullmatch(text):
        raise ServeInputError(
            f"--name: {text!r} is not an agent name\n    expected: at most 63 letters, digits, and . _ - inside"
            "\n    fix: --name with another one"
        )
    return text


def rehearsal(file: Path, name: str) -> AgentReport:
    """Return the report of an agent of a file of devices; only the head may be without any. Raises ServeInputError."""
    devices = read_devices(file)
    own = [device for device in devices if device.agent == name]
    if own:
        return AgentReport(own[0].backend, file)
    if name == HEAD:
        return AgentReport("cpu", file)
    names = ", ".join(sorted({device.agent for device in devices}))
    raise ServeInputError(
        f"{file}: it has no device of an agent {name}\n    expected: one of {names}\n    fix: --name with one of them"
    )


def this_report() -> AgentReport:
    """Return the report of this machine: llama.cpp is asked once, in another process, what it can use."""
    from paddock.gpu.inventory import inventory

    gpus = inventory()
    links = unusable(gpus, engine_facts())
    usable = [device for device in inventory_devices(gpus) if not device.unavailable]
    own = sum(device.backend in ("cuda", "rocm") and device.part is None for device in usable)
    return AgentReport(
        usable[0].backend if usable else "cpu", gpus=own, broken={name: str(link) for name, link in links.items()}
    )
