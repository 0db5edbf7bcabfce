"""`serve.nodes`: the machines of the cluster, their devices and what those serve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.console.command import command
from paddock.console.parameters import NoParameters
from paddock.console.report import Report
from paddock.serve.commands.connection import call


@dataclass(frozen=True, kw_only=True)
class Nodes(Report):
    """The agents, as the scheduler lists them."""

    SCHEMA = 1
    agents: list[dict[str, Any]]

    def text(self) -> Iterator[str]:
        for agent in self.agents:
            state = "" if agent["alive"] else ", lost"
            problem = f": {agent['problem']}" if agent["problem"] else ""
            yield f"{agent['agent']} on {agent['host']}{state}{problem}"
            yield from map(_device, agent["devices"])


@command(checks_values_first=True)
def nodes(parameters: NoParameters) -> Nodes:
    """Show the agents, their devices and what those hold. Raises ServeError."""
    return Nodes(agents=call("nodes"))


def _device(device: Mapping[str, Any]) -> str:
    memory = f"{device['free_mib']} of {device['memory_mib']} MiB free" if device["memory_mib"] else "unknown"
    use = f"  serves {device['instance']}" if device["instance"] else ""
    unavailable = f"  not available: {device['unavailable']}" if device["unavailable"] else ""
    return f"  {device['device']:<16} {device['name'] or 'unknown model'}, {memory}{use}{unavailable}"
