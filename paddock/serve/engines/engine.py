"""Engine: what Paddock must know of a server that others keep."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from paddock.errors import one_line
from paddock.serve.errors import ServeError
from paddock.serve.placement.device import Backend

_MOST_LETTERS = 300


@dataclass(frozen=True, slots=True)
class EngineJob:
    """Task of a server: to serve a local file or folder under the name `id`, on devices of one backend.

    `context` are the tokens of one request, `slots` the requests side by side, `memory_part` the part of each device's
    memory that it may take, `threads` those of the CPU (0: the engine's own choice).
    """

    id: str
    path: str
    backend: Backend
    degree: int = 1
    context: int = 4096
    slots: int = 4
    memory_part: float = 0.95
    threads: int = 0
    dtype: str = ""
    quantization: str = ""
    across_machines: bool = False


class Engine(Protocol):
    """A server's command line and ways. The key is in the variable: everybody can read a command line.

    `metrics` are the names of ours by those of its /metrics.
    """

    name: str
    key_variable: str
    environment: Mapping[str, str]
    metrics: Mapping[str, str]

    def version(self) -> str:
        """Return the version that would run here. Raises ServeError where it cannot run."""

    def command(self, job: EngineJob, port: int) -> list[str]:
        """Return the program and its arguments, for a server on 127.0.0.1 at that port."""

    def cause(self, log: str) -> str:
        """Return the first cause that a log names, in one line; empty where it names none."""

    def unfit(self, job: EngineJob, log: str) -> str:
        """Return why a server that answers does not do what the job says, by its log; empty where it does."""


def first_match(log: str, *patterns: re.Pattern[str]) -> str:
    """Return the first group of the first pattern that a log has, in one line; empty for none."""
    found = next((match for pattern in patterns if (match := pattern.search(log))), None)
    return one_line(found[1])[:_MOST_LETTERS] if found else ""


def readings(engine: Engine, exposition: str) -> dict[str, float]:
    """Return the engine's metrics by our names, each the sum of its series, from Prometheus' text form."""
    sums: dict[str, float] = {}
    for line in exposition.splitlines():
        name, _, rest = line.partition("{") if "{" in line else line.partition(" ")
        if ours := engine.metrics.get(name):
            try:
                sums[ours] = sums.get(ours, 0.0) + float(rest.rpartition("}")[2].split()[0])
            except (ValueError, IndexError):
                continue
    return sums


def missing(flag: str, program: str, host: str) -> ServeError:
    """Return the error for a program that is not on this machine, or may not be executed."""
    if os.path.isfile(program):
        return ServeError(f"{flag}: {program} may not be executed on {host}; fix: chmod +x {program}, as its owner")
    return ServeError(
        f"{flag}: {program} is not a program on {host}; fix: name one that is on each machine that may get the model"
    )
