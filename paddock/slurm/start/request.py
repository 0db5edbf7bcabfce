"""Request for a node's start."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from paddock.slurm.errors import SlurmInputError
from paddock.slurm.start.layout import ROLES, Role

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_CONTROLLER_PORT, _DAEMON_PORT = 6817, 6818
_MOST_NODES = 64
"""Nodes that may join a controller of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Checked flags of a start. `controller` is the host of the controller, this one where empty."""

    name: str
    role: Role = "all"
    cluster: str = "paddock"
    controller: str = ""
    controller_port: int = _CONTROLLER_PORT
    daemon_port: int = _DAEMON_PORT
    shards: int = 0
    nodes: int = _MOST_NODES
    munge_key: Path | None = None

    @property
    def dynamic(self) -> bool:
        """True where nodes join by themselves, and slurm.conf lists none."""
        return self.role != "all"


def request(
    *,
    name: str,
    role: str = "all",
    cluster: str = "paddock",
    controller: str = "",
    controller_port: int = _CONTROLLER_PORT,
    daemon_port: int = _DAEMON_PORT,
    shards: int = 0,
    nodes: int = _MOST_NODES,
    munge_key: Path | None = None,
) -> Request:
    """Check the parts and return the request. Raises SlurmInputError."""
    roles = [candidate for candidate in ROLES if candidate == role]
    if not roles:
        raise SlurmInputError(f"--role {role!r}\n    expected: {', '.join(ROLES)}\n    fix: --role all")
    _matching("--name", name, _NAME, "at most 63 letters, digits and dashes", "--name, or docker run --hostname")
    _matching("--cluster", cluster, _NAME, "letters, digits and dashes", "--cluster paddock")
    if controller:
        _matching("--controller", controller, _HOST, "the host name of the controller's container", "its --hostname")
    if role == "node" and not controller:
        raise SlurmInputError(
            "--role node has no controller\n    expected: the host name of the controller's container"
            "\n    fix: --controller paddock-controller"
        )
    if role != "node" and controller:
        raise SlurmInputError(
            f"--controller with --role {role}\n    expected: --role node\n    fix: leave --controller out"
        )
    for flag, port in (("--controller-port", controller_port), ("--daemon-port", daemon_port)):
        if not 1 <= port <= 65535:
            raise SlurmInputError(f"{flag} {port}\n    expected: 1 to 65535")
    if controller_port == daemon_port:
        raise SlurmInputError(
            f"--controller-port and --daemon-port are both {daemon_port}\n    expected: two ports"
            "\n    fix: leave one of them out"
        )
    if shards < 0 or shards == 1:
        raise SlurmInputError(f"--shards {shards}\n    expected: 2 or more, or 0: one shard is the whole GPU")
    if nodes < 1:
        raise SlurmInputError(f"--nodes {nodes}\n    expected: 1 or more")
    return Request(
        name=name, role=roles[0], cluster=cluster, controller=controller, controller_port=controller_port,
        daemon_port=daemon_port, shards=shards, nodes=nodes, munge_key=munge_key,
    )  # fmt: skip


def _matching(flag: str, value: str, pattern: re.Pattern[str], expected: str, fix: str) -> None:
    if not pattern.fullmatch(value):
        raise SlurmInputError(f"{flag} {value!r}\n    expected: {expected}\n    fix: {fix}")
