"""Name of a node's container, and its folder of jobs."""

from __future__ import annotations

import re

from paddock.slurm.errors import SlurmInputError

PREFIX = "paddock"
JOBS = "/jobs"
"""Folder in the container where jobs run; on the host `jobs/` next to the Compose file."""
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")


def container_name(prefix: str) -> str:
    """Return the container's name. Raises SlurmInputError for a prefix that cannot be part of a host name."""
    if not _PREFIX.fullmatch(prefix):
        raise SlurmInputError(
            f"--prefix {prefix!r}\n    expected: at most 42 lower-case letters, digits, dashes, such as dshpc-imaging"
        )
    return f"{prefix}-slurm"
