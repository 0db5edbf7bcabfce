"""Faults that daemons report in their own words, explained."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """Line of a log by its pattern, and what it means."""

    pattern: re.Pattern[str]
    meaning: str
    fix: str

    def text(self) -> str:
        return f"{self.meaning}\n    fix: {self.fix}"


def _fault(pattern: str, meaning: str, fix: str) -> Fault:
    return Fault(re.compile(pattern, re.IGNORECASE), meaning, fix)


KEYS = _fault(
    r"invalid credential",
    "munge keys differ between this container and another one of the cluster",
    "give all of them the same key: one volume at /etc/munge, or --munge-key with one secret",
)
FAULTS = (
    KEYS,
    _fault(
        r"(expired|rewound|replayed) credential|check for out of sync clocks|clock skew",
        "the clocks of two machines of the cluster differ by more than munge accepts (5 minutes)",
        "set both by NTP: chronyc tracking, timedatectl status",
    ),
    _fault(
        r"address already in use|error binding slurm (stream|msg)",
        "the port is taken by another program",
        "--controller-port and --daemon-port choose others; every container of the cluster takes the same",
    ),
    _fault(
        r"cluster name mismatch",
        "the state volume belongs to a cluster of another name",
        "--cluster with its name, or an empty volume",
    ),
    _fault(
        r"address family not supported|getaddrinfo\(\) failed: name or service not known",
        "a name or address of the cluster does not resolve, or this container has no network",
        "docker run --network with a network, not none; the hosts of a cluster on one network",
    ),
    _fault(r"no space left on device|disk quota exceeded", "the disk of a volume is full", "make room on it"),
    _fault(
        r"can't stat gres\.conf file|waiting for gres\.conf file",
        "a GPU's device file is missing",
        "start the container again with its devices, such as --gpus all",
    ),
    _fault(
        r"configured with (nvml|rsmi|oneapi|nvidia) functionality|unknown autodetect",
        "this Slurm has no plugin for that AutoDetect",
        "leave AutoDetect out of gres.conf, and list the device files (File=/dev/nvidia0)",
    ),
    _fault(
        r"duplicate records|duplicate gres",
        "gres.conf lists the same GPUs twice",
        "keep one line for each GPU, or delete the file: the next start writes it",
    ),
)


def explain(line: str) -> Fault | None:
    """Return the fault that a line of a log reports, if it is one of these."""
    return next((fault for fault in FAULTS if fault.pattern.search(line)), None)
