"""Slurm's words for a job's state and for why it waits, in plain ones."""

from __future__ import annotations

import re

from paddock.slurm.messages import tables

FINAL = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"),
        *("TIMEOUT", "REVOKED"),
    }
)
"""States that a job does not leave."""
_SIGNALLED = 128
_NOT_WRITTEN = 53
"""Signal that slurmd reports where it could not open a job's log. Slurm's reason, JobLaunchFailure, does not show it: a
job whose shell was killed has it too."""


def waiting_for(reason: str) -> str:
    """Return what a pending job waits for; Slurm's own word where there is no plainer one."""
    word = re.split(r"[,;: ]", reason, maxsplit=1)[0]
    return tables()["waiting"].get(word) or (f"a limit of its account or QOS ({reason})" if _is_limit(word) else reason)


def ending(state: str, code: int | None, signal: int | None) -> str:
    """Return how a job ended."""
    if known := tables()["ends"].get(state):
        return str(known)
    if signal == _NOT_WRITTEN and not code:
        return "did not start: its folder or log cannot be written on the node"
    if signal:
        return f"failed: ended by signal {signal}"
    if code and code > _SIGNALLED:
        return f"failed with exit code {code}, a shell's for signal {code - _SIGNALLED}"
    return f"failed with exit code {code}" if code else "failed"


def _is_limit(word: str) -> bool:
    return word.startswith(("Assoc", "QOS", "Max"))
