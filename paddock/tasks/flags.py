"""Flags that several tasks of a fleet have."""

from __future__ import annotations

from paddock.duration import Seconds
from paddock.terminal import JSON_HELP, BadFlag

LONGEST_JOB = Seconds("6h")
"""GitHub's limit of a job whose workflow sets no timeout-minutes."""
CLUSTER_HELP = {
    "stack": "the stack of the fleet: Pulumi.<stack>.yaml",
    "kubeconfig": "the file with the way to the cluster, by default kubectl's",
    "context": "the context in it, by default the one of the fleet's cluster",
    "json": JSON_HELP,
}
CHANGE_HELP = {**CLUSTER_HELP, "yes": "do it without a question"}


def positive(timeout: Seconds, example: str) -> float:
    """Return the seconds of --timeout. Raises BadFlag."""
    if not 0 < timeout < float("inf"):
        raise BadFlag(f"--timeout {timeout}\n    expected: more than nothing, such as {example}\n    fix: leave it out")
    return float(timeout)
