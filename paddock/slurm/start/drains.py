"""Nodes that Slurm itself took out of service, which a start puts back."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OWN = re.compile(
    r"gres/(gpu|shard) (count|GRES)|gres/gpu|Low (RealMemory|CPUs|TmpDisk|socket)|Not responding|"
    r"Node unexpectedly rebooted|Kill task failed|batch job complete failure|Duplicate jobid|"
    r"slurmd (startup|register)|Invalid Reg|Node (not )?registered"
)
"""Beginnings of reasons that Slurm writes."""
_TAIL = re.compile(r"\s*\[(?P<user>[^@\]]*)@[^\]]*\]\s*$")
_OUT = ("DRAIN", "DOWN", "FAIL", "INVAL")


@dataclass(frozen=True, slots=True)
class NodeState:
    """State of a node as `scontrol show node -o` prints it."""

    flags: tuple[str, ...] = ()
    reason: str = ""
    by: str = ""

    @property
    def invalid(self) -> bool:
        """True where Slurm refuses what the node registered with."""
        return "INVAL" in self.flags or "INVALID_REG" in self.flags

    @property
    def down(self) -> bool:
        """True where Slurm takes the node for lost, until it registers."""
        return "DOWN" in self.flags

    @property
    def drained(self) -> bool:
        """True where the node takes no new jobs."""
        return any(flag.startswith("DRAIN") for flag in self.flags)

    @property
    def out(self) -> bool:
        """True where the node takes no jobs."""
        return any(flag.startswith(_OUT) for flag in self.flags)

    @property
    def answers(self) -> bool:
        """True where the node registered and answers the controller."""
        return bool(self.flags) and not ({"NOT_RESPONDING", "UNKNOWN"} & set(self.flags))

    @property
    def drained_by_slurm(self) -> bool:
        """True where a start may put the node back; never for one that a person took out."""
        return self.out and not self.invalid and (not self.reason or bool(_OWN.match(self.reason)))

    def __str__(self) -> str:
        state = "+".join(self.flags).lower() or "unknown"
        return f"{state} ({self.reason})" if self.reason else state


def parse(line: str) -> NodeState:
    """Read one line of `scontrol show node -o`."""
    state = re.search(r"\bState=(\S+)", line)
    if state is None:
        return NodeState()
    text = line.partition(" Reason=")[2].strip()
    tail = _TAIL.search(text)
    reason = text[: tail.start()] if tail else text
    flags = tuple(state[1].replace("*", "+NOT_RESPONDING").split("+"))
    return NodeState(flags, reason.strip(), tail["user"] if tail else "")
