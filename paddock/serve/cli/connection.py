"""Connection of a command to the cluster whose head runs here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paddock.serve.agents.home import Home
from paddock.terminal import work_begins


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
