"""Parameters of a node's start."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from paddock.console.parameters import Parameters, parameter
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.start.layout import Role

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class StartRequest(Parameters):
    """Parameters of `slurm.start`."""

    role: Role = parameter("all", "all: the whole cluster in one container; controller or node: a part of it")
    name: str = parameter("", "name of the node, by default the container's host name")
    cluster: str = parameter("paddock", "name of the cluster; the queue belongs to it")
    controller: str = parameter("", "host name of the controller, with --role node")
    controller_port: int = parameter(6817, "port of slurmctld", ge=1, le=65535)
    daemon_port: int = parameter(6818, "port of slurmd, the same on every node", ge=1, le=65535)
    shards: int = parameter(0, "jobs that may share a GPU (--gres=shard:1), 0 for none", ge=0)
    nodes: int = parameter(64, "most nodes that may join a controller", ge=1)
    munge_key: Path | None = parameter(None, "file with the cluster's munge key, such as a secret; by default the"
                                             " volume at /etc/munge has it")  # fmt: skip

    @property
    def dynamic(self) -> bool:
        """True where nodes join by themselves, and slurm.conf lists none."""
        return self.role != "all"


def checked(request: StartRequest) -> StartRequest:
    """Return the request with the node's name. Raises SlurmInputError for values that do not go together."""
    name = request.name or socket.gethostname().partition(".")[0]
    _matching("--name", name, _NAME, "at most 63 letters, digits and dashes", "--name, or docker run --hostname")
    _matching("--cluster", request.cluster, _NAME, "letters, digits and dashes", "--cluster paddock")
    if request.controller:
        expected = "the host name of the controller's container"
        _matching("--controller", request.controller, _HOST, expected, "its --hostname")
    if request.role == "node" and not request.controller:
        raise SlurmInputError(
            "--role node has no controller\n    expected: the host name of the controller's container"
            "\n    fix: --controller paddock-controller"
        )
    if request.role != "node" and request.controller:
        raise SlurmInputError(
            f"--controller with --role {request.role}\n    expected: --role node\n    fix: leave --controller out"
        )
    for flag, port in (("--controller-port", request.controller_port), ("--daemon-port", request.daemon_port)):
        if port > 65535:
            raise SlurmInputError(f"{flag} {port}\n    expected: 1 to 65535")
    if request.controller_port == request.daemon_port:
        raise SlurmInputError(
            f"--controller-port and --daemon-port are both {request.daemon_port}\n    expected: two ports"
            "\n    fix: leave one of them out"
        )
    if request.shards == 1:
        raise SlurmInputError("--shards 1\n    expected: 2 or more, or 0: one shard is the whole GPU")
    return replace(request, name=name)


def _matching(flag: str, value: str, pattern: re.Pattern[str], expected: str, fix: str) -> None:
    if not pattern.fullmatch(value):
        raise SlurmInputError(f"{flag} {value!r}\n    expected: {expected}\n    fix: {fix}")
