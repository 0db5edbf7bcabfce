"""`slurm.start` and `slurm.health`: the node inside its container."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddock.slurm.cli.parameters import Health, Start
from paddock.slurm.start import health as slurm_health
from paddock.slurm.start import node
from paddock.slurm.start.request import request
from paddock.terminal import JsonOutput


def start(flags: Mapping[str, Any]) -> int:
    """Run a node until it is stopped, and return the exit code. Raises SlurmError."""
    parameters = Start.from_flags(flags)
    return node.run(
        request(
            name=parameters.name or socket.gethostname().partition(".")[0],
            role=parameters.role,
            cluster=parameters.cluster,
            controller=parameters.controller,
            controller_port=parameters.controller_port,
            daemon_port=parameters.daemon_port,
            shards=parameters.shards,
            nodes=parameters.nodes,
            munge_key=Path(parameters.munge_key) if parameters.munge_key else None,
        )
    )


def health(flags: Mapping[str, Any]) -> int:
    """Print the health of the node, and return the exit code."""
    json = JsonOutput.parse(Health.from_flags(flags).json)
    parts = slurm_health.health()
    healthy = all(part.healthy for part in parts)
    json.write(
        {
            "schema": 1,
            "healthy": healthy,
            "parts": [{"part": part.part, "healthy": part.healthy, "evidence": part.evidence} for part in parts],
        }
    )
    if not json.replaces_text:
        lines = (f"{'ok  ' if part.healthy else 'FAIL'} {part.part}: {part.evidence}\n" for part in parts)
        sys.stdout.writelines(lines)
    return 0 if healthy else 1
