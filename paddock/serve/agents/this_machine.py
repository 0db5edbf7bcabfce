"""This machine as an agent: its GPUs with their leases, its processor, and its torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from paddock.gpu.health.check import logged_events
from paddock.gpu.host.resources import available_bytes, memory_bytes, processor
from paddock.gpu.leases.manager import Leases
from paddock.gpu.model import Inventory
from paddock.serve.agents import torch_probe
from paddock.serve.agents.diagnosis import TorchFacts
from paddock.serve.agents.inventory_devices import inventory_devices
from paddock.serve.placement.device import Device

BROKEN = "PADDOCK_SERVE_BROKEN"
"""Variable of an agent: a JSON object of the backends on which torch computes nothing there, each with the reason."""
_PROBE_S = 120.0
_MIB = 2**20


def this_machine(inventory: Inventory, environ: Mapping[str, str]) -> tuple[Device, ...]:
    """Return the devices of this machine, from an inventory with its processes. Raises GpuError.

    Those that others lease or use are busy; macOS leases none. Those of a backend that BROKEN names are unavailable.
    """
    leasing = inventory.gpus and sys.platform != "darwin"
    context = Leases(environ=environ).context(inventory, logged_events()) if leasing else None
    devices = (*inventory_devices(inventory, context), *_processor(inventory.machine.name))
    broken: dict[str, str] = json.loads(environ.get(BROKEN) or "{}")
    return tuple(
        replace(device, unavailable=device.unavailable or broken.get(device.backend, "")) for device in devices
    )


def _processor(agent: str) -> tuple[Device, ...]:
    total = memory_bytes()
    if total is None:
        return ()
    free = min(available_bytes() or total, total)
    return (Device(agent, "cpu", 0, total // _MIB, free // _MIB, processor()),)


def torch_facts(python: str = sys.executable) -> TorchFacts:
    """Return what torch says in another process, whose import of it costs this one nothing."""
    probe = [python, str(Path(torch_probe.__file__))]
    try:
        finished = subprocess.run(probe, capture_output=True, text=True, check=True, timeout=_PROBE_S)
        return TorchFacts(**json.loads(finished.stdout.strip().rpartition("\n")[2]))
    except subprocess.TimeoutExpired:
        return TorchFacts(error=f"torch did not load within {_PROBE_S:g} s")
    except (OSError, subprocess.CalledProcessError, ValueError, TypeError) as error:
        return TorchFacts(error=f"torch did not answer: {error}")
