"""Slurm's words for a job's state and for why it waits, in plain ones."""

from __future__ import annotations

import re

WAITING = {
    "None": "queued",
    "Priority": "jobs before it in the queue",
    "Resources": "processors, memory or GPUs that other jobs use",
    "BadConstraints": "held: no node has what it asks for. `scontrol release` has Slurm look again",
    "PartitionConfig": "no node of the partition has what it asks for",
    "PartitionNodeLimit": "no node of the partition has what it asks for",
    "PartitionTimeLimit": "its time limit is more than the partition allows",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "ReqNodeNotAvail": "the nodes that could run it are down, drained or reserved",
    "NodeDown": "its node went down",
    "BeginTime": "its start time; a job that lost its node starts again two minutes later",
    "Dependency": "another job's end",
    "DependencyNeverSatisfied": "another job, which ended otherwise than this one demands",
    "JobArrayTaskLimit": "the array's own limit of tasks at once",
    "JobHeldUser": "held by its user",
    "JobHeldAdmin": "held by an administrator",
    "JobHoldMaxRequeue": "held: it was requeued too often",
    "launch_failed_requeued_held": "held: slurmd could not start it. slurmd.log says why",
    "Licenses": "a licence",
    "Reservation": "its reservation",
    "AssocGrpGRES": "a limit on the GPUs of its account",
    "QOSMaxGRESPerUser": "a limit on the GPUs of its user",
    "Cleaning": "the end of its earlier run",
    "Prolog": "the prolog",
}
FINAL = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
        *("TIMEOUT", "REVOKED"),
    }
)
"""States that a job does not leave."""
_ENDS = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "TIMEOUT": "ended at its time limit",
    "OUT_OF_MEMORY": "ended: it used more memory than it asked for",
    "NODE_FAIL": "ended: its node failed",
    "BOOT_FAIL": "ended: its node did not start",
    "DEADLINE": "ended at its deadline",
    "PREEMPTED": "ended for a job of higher priority",
}

_SIGNALLED = 128
_NOT_WRITTEN = 53
"""Signal that slurmd reports where it could not open a job's log. Slurm's reason, JobLaunchFailure, is no sign of it:
a job whose shell was killed has it too."""


def waiting_for(reason: str) -> str:
    """Return what a pending job waits for; Slurm's own word where there is no plainer one."""
    word = re.split(r"[,;: ]", reason, maxsplit=1)[0]
    return WAITING.get(word) or (f"a limit of its account or QOS ({reason})" if _is_limit(word) else reason)


def ending(state: str, code: int | None, signal: int | None) -> str:
    """Return how a job ended."""
    if state in _ENDS:
        return _ENDS[state]
    if signal == _NOT_WRITTEN and not code:
        return "did not start: its folder or log cannot be written on the node"
    if signal:
        return f"failed: ended by signal {signal}"
    if code and code > _SIGNALLED:
        return f"failed with exit code {code}, a shell's for signal {code - _SIGNALLED}"
    return f"failed with exit code {code}" if code else "failed"


def _is_limit(word: str) -> bool:
    return word.startswith(("Assoc", "QOS", "Max"))
