"""Connection of a command to the cluster, its calls of the scheduler, and the first services on a new head."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

from paddock.ray_labels import AGENT, HEAD
from paddock.serve.admission.limits import Limits
from paddock.serve.agents.home import Home, Member
from paddock.serve.agents.ray_process import environment
from paddock.serve.deployment.bounded import Bounded
from paddock.serve.deployment.instances.saved import FILE
from paddock.serve.deployment.scheduler import NAME, NAMESPACE, Scheduler
from paddock.serve.errors import ServeError, first_line

_START_S = 180.0
_ANSWER_S = 120.0
"""Seconds of one answer: the agents have 30 to name their devices, and Ray Serve 60 to take a deployment."""
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
            # A call of Ray Serve that is under way finds Ray gone, and would print a traceback about it.
            logging.getLogger("ray.serve").setLevel(logging.CRITICAL)
            ray.shutdown()


def start_services(ray: Any, http_host: str, http_port: int, keys: frozenset[str], limits: Limits) -> None:
    """Start the scheduler and the gateway on a new head, and return when HTTP answers. Raises ServeError."""
    ray.remote(Scheduler).options(
        name=NAME, namespace=NAMESPACE, lifetime="detached", num_cpus=0, max_concurrency=16,
        label_selector={AGENT: HEAD}, max_restarts=-1,
    ).remote(limits.queue, Home.of().folder / FILE)  # fmt: skip
    Bounded("Ray Serve", _START_S)(lambda: _start_gateway(http_host, http_port, keys, limits))


def _start_gateway(http_host: str, http_port: int, keys: frozenset[str], limits: Limits) -> None:
    from ray import serve

    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    from paddock.serve.deployment.ingress import APPLICATION, Ingress, application

    serve.start(proxy_location="HeadOnly", http_options={"host": http_host, "port": http_port})
    serve.run(application(lambda: Ingress(keys, limits)), name=APPLICATION, route_prefix="/")


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
