"""Parts that the commands share: the connection to the head that runs here, and the report of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paddock.console.output import work_begins
from paddock.console.progress import Progress
from paddock.serve.agents.home import Home
from paddock.serve.agents.this_machine import AgentReport, rehearsal, this_report


@contextmanager
def connected() -> Iterator[tuple[Any, Any]]:
    """Yield Ray and the scheduler's calls. Raises ServeError where no head runs here, or it cannot be reached."""
    home = Home.of()
    head, token = home.head(), home.token()
    work_begins()
    from paddock.serve.deployment import cluster

    with cluster.connected(head, token) as ray:
        yield ray, cluster.SchedulerClient(ray)


def call(method: str, *arguments: Any) -> Any:
    """Return what a method of the scheduler returns. Raises ServeError."""
    with connected() as (_, scheduler):
        return scheduler(method, *arguments)


def own_report(devices: Path | None, name: str, shown: Progress) -> AgentReport:
    """Return what this machine reports as an agent, and say what it cannot use. Raises ServeInputError."""
    rehearsed = rehearsal(devices.resolve(), name) if devices is not None else None
    work_begins()
    if rehearsed is not None:
        return rehearsed
    shown.now("looking at this machine's devices and llama.cpp")
    report = this_report()
    for backend, why in report.broken.items():
        shown.say(f"{backend} is without llama.cpp here: {why}")
    return report
