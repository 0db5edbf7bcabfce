"""Report of this machine as an agent, made when it starts: its label, its devices, and what torch cannot use."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from paddock.ray_labels import HEAD
from paddock.serve.agents.devices_file import read_devices
from paddock.serve.agents.diagnosis import unusable
from paddock.serve.agents.inventory_devices import inventory_devices
from paddock.serve.agents.this_machine import BROKEN, torch_facts
from paddock.serve.errors import ServeInputError

DEVICES = "PADDOCK_SERVE_DEVICES"
"""Names a file of devices that an agent reports instead of this machine's."""
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Report:
    """Facts that an agent is started with. `backend` is its label, `broken` says why a backend is of no use."""

    backend: str
    devices: Path | None = None
    broken: Mapping[str, str] = field(default_factory=dict)

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
            f"--name: {text!r} is no name of an agent\n    expected: at most 63 letters, digits, and . _ - inside"
            "\n    fix: --name with another one"
        )
    return text


def rehearsal(file: Path, name: str) -> Report:
    """Return the report of an agent of a file of devices; only the head may be without any. Raises ServeInputError."""
    devices = read_devices(file)
    own = [device for device in devices if device.agent == name]
    if own:
        return Report(own[0].backend, file)
    if name == HEAD:
        return Report("cpu", file)
    names = ", ".join(sorted({device.agent for device in devices}))
    raise ServeInputError(
        f"{file}: it has no device of an agent {name}\n    expected: one of {names}\n    fix: --name with one of them"
    )


def this_report() -> Report:
    """Return the report of this machine: torch is loaded once, in another process, to see what it can use."""
    from paddock.gpu.inventory import inventory

    gpus = inventory()
    links = unusable(gpus, torch_facts())
    usable = [device for device in inventory_devices(gpus) if not device.unavailable and device.backend not in links]
    return Report(usable[0].backend if usable else "cpu", broken={name: str(link) for name, link in links.items()})
