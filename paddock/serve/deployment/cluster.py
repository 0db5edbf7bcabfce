"""Connection of a command to the cluster, its calls of the scheduler, and the first services on a new head."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from paddock.ray_labels import AGENT, HEAD
from paddock.serve.admission.limits import Limits
from paddock.serve.agents.home import Home, Member
from paddock.serve.agents.ray_process import environment
from paddock.serve.deployment.instances.registry import FILE
from paddock.serve.deployment.scheduler import NAME, NAMESPACE, Scheduler
from paddock.serve.errors import ServeError, first_line, last_line

GATEWAY = "paddock-gateway"
"""Name of the actor."""


class Ingress:
    """Actor of the gateway. Its HTTP has a thread and an event loop of its own."""

    def __init__(self, host: str, port: int, keys: frozenset[str], limits: Limits) -> None:
        import ray

        from paddock.serve.gateway.app import Gateway
        from paddock.serve.gateway.server import start

        self._scheduler = ray.get_actor(NAME, namespace=NAMESPACE)
        self._gateway = Gateway(self._routes, keys, limits)
        self._server = start(self._gateway, host, port)

    async def _routes(self) -> list[dict[str, Any]]:
        return list(await self._scheduler.routes.remote())

    def ready(self) -> None:
        """Return once HTTP answers."""

    def statistics(self) -> dict[str, dict[str, Any]]:
        """Return what is counted of each instance."""
        return self._gateway.statistics()


_START_S = 180.0
_ANSWER_S = 120.0
"""Seconds of one answer: the agents have 30 to name their devices."""
_STATISTICS_S = 5.0
_AGAIN = "fix: serve.down, then serve.up"
_QUESTIONS = ("models", "nodes", "plan")
"""Methods of the scheduler that change nothing."""


@contextlib.contextmanager
def connected(head: Member, token: str) -> Iterator[Any]:
    """Yield Ray, connected to the head. Raises ServeError where it cannot be reached.

    Ray prints news of the cluster on standard output; inside, that goes to standard error.
    """
    os.environ |= environment(token)  # Ray reads it when it is imported
    import ray

    with contextlib.redirect_stdout(sys.stderr):
        try:
            ray.init(address=head.address, namespace=NAMESPACE, logging_level="ERROR", log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as error:
            why = str(error).strip().splitlines()[-1]
            raise ServeError(f"the head at {head.address} cannot be reached: {why}\n    {_AGAIN}") from None
        try:
            yield ray
        finally:
            ray.shutdown()


def start_services(ray: Any, http_host: str, http_port: int, keys: frozenset[str], limits: Limits) -> None:
    """Start the scheduler and the gateway on a new head, and return when HTTP answers. Raises ServeError."""
    on_head = {
        "namespace": NAMESPACE, "lifetime": "detached", "num_cpus": 0, "label_selector": {AGENT: HEAD},
        "max_restarts": -1,
    }  # fmt: skip
    ray.remote(Scheduler).options(name=NAME, max_concurrency=16, **on_head).remote(Home.of().folder / FILE)
    gateway = ray.remote(Ingress).options(name=GATEWAY, max_concurrency=4, **on_head)
    actor = gateway.remote(http_host, http_port, keys, limits)
    try:
        ray.get(actor.ready.remote(), timeout=_START_S)
    except ray.exceptions.GetTimeoutError:
        raise ServeError(f"the gateway has not started within {_START_S:g} s\n    {_AGAIN}") from None
    except ray.exceptions.RayError as error:
        raise ServeError(f"the gateway cannot start: {last_line(error)}\n    {_AGAIN}") from None


def gateway_statistics(ray: Any) -> dict[str, dict[str, Any]]:
    """Return what the gateway counts of each instance; nothing where it does not answer."""
    try:
        actor = ray.get_actor(GATEWAY, namespace=NAMESPACE)
        return dict(ray.get(actor.statistics.remote(), timeout=_STATISTICS_S))
    except (ValueError, ray.exceptions.RayError):
        return {}


class SchedulerClient:
    """Calls of the scheduler, each within a time limit. A new head may have none yet when this is made."""

    def __init__(self, ray: Any, seconds: float = _ANSWER_S) -> None:
        self._ray, self._seconds = ray, seconds

    def __call__(self, method: str, *arguments: Any) -> Any:
        """Return what a method of the scheduler returns. Raises ServeError, also where it does not answer in time.

        The scheduler starts again where its process has ended. A question waits for that, a change does not: it may
        have been made.
        """
        errors, deadline = self._ray.exceptions, time.monotonic() + self._seconds
        while True:
            left = deadline - time.monotonic()
            try:
                return self._ray.get(getattr(self._actor(), method).remote(*arguments), timeout=max(0.0, left))
            except errors.GetTimeoutError:
                raise ServeError(f"the scheduler does not answer within {self._seconds:g} s\n    {_AGAIN}") from None
            except (errors.ActorUnavailableError, errors.ActorDiedError) as error:
                if method not in _QUESTIONS or left < 0:
                    raise ServeError(
                        f"the scheduler has ended: {first_line(error)}\n    fix: see serve.models"
                    ) from None
                time.sleep(0.5)
            except errors.RayTaskError as error:
                raise _stated(error.cause) from None
            except errors.RayError as error:
                raise ServeError(f"the scheduler does not answer: {first_line(error)}\n    {_AGAIN}") from None

    def _actor(self) -> Any:
        try:
            return self._ray.get_actor(NAME, namespace=NAMESPACE)
        except ValueError:
            raise ServeError(f"the head has no scheduler\n    {_AGAIN}") from None


def _stated(error: BaseException | None) -> ServeError:
    if isinstance(error, ServeError):
        return error
    return ServeError(f"the scheduler failed: {type(error).__name__}: {first_line(error)}")
