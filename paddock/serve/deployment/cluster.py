"""Connection of a command to the cluster, and the first services on a new head."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from paddock.ray_labels import AGENT, HEAD
from paddock.serve.admission.limits import Limits
from paddock.serve.agents.home import Home, Member
from paddock.serve.agents.ray_process import environment
from paddock.serve.deployment.saved import FILE
from paddock.serve.deployment.scheduler import NAME, NAMESPACE, Scheduler
from paddock.serve.errors import ServeError

_CONNECT_S = 30


@contextlib.contextmanager
def connected(head: Member, token: str) -> Iterator[Any]:
    """Yield Ray, connected to the head. Raises ServeError where it cannot be reached."""
    os.environ |= environment(token)  # Ray reads it when it is imported
    import ray

    try:
        ray.init(address=head.address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        why = str(error).strip().splitlines()[-1]
        raise ServeError(
            f"the head at {head.address} cannot be reached: {why}\n    fix: serve.down, then serve.up"
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def start_services(ray: Any, http_port: int, keys: frozenset[str], limits: Limits) -> None:
    """Start the scheduler and the gateway on a new head, and return when HTTP answers."""
    import logging

    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    from paddock.serve.deployment.ingress import APPLICATION, application

    ray.remote(Scheduler).options(
        name=NAME, namespace=NAMESPACE, lifetime="detached", num_cpus=0, max_concurrency=16,
        label_selector={AGENT: HEAD}, max_restarts=-1,
    ).remote(limits.queue, Home.of().folder / FILE)  # fmt: skip
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": http_port})
    serve.run(application(keys, limits), name=APPLICATION, route_prefix="/")


def scheduler(ray: Any) -> Any:
    """Return the scheduler's handle. Raises ServeError where the head has none."""
    try:
        return ray.get_actor(NAME, namespace=NAMESPACE)
    except ValueError:
        raise ServeError("the head has no scheduler\n    fix: serve.down, then serve.up") from None


class Lazy:
    """The scheduler's handle, looked up at its first call: a new head has none yet."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def __getattr__(self, name: str) -> Any:
        return getattr(scheduler(self._ray), name)
