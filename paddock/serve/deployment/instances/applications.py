"""Applications of Ray Serve, one an instance: deployed, observed and deleted, each call within a time limit.

Ray Serve's own calls wait for its controller without one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paddock.serve.deployment.application import application
from paddock.serve.deployment.bounded import Bounded
from paddock.serve.deployment.instances.instance import Application, Instance, application_name
from paddock.serve.placement.plan import Plan

_ANSWER_S = 30.0
_UNLOAD_S = 5.0
_HEALTH_PERIOD_S = 2.0
_SHUTDOWN_S = 5.0
_OTHERS = 1
"""Calls beside the answers of a replica: the one for its statistics."""
REPLICA = "replica"
"""Name of the one deployment in each application."""
_PREFIX = application_name("")


class Applications:
    """Ray Serve as the scheduler needs it. `queue` are the requests that may wait at an instance."""

    def __init__(self, queue: int) -> None:
        self._queue = queue
        self._bounded = Bounded("Ray Serve's controller", _ANSWER_S)

    def all(self) -> dict[str, Application]:
        """Return the applications of instances by their names. Raises ServeError."""
        return self._bounded(_applications)

    def deploy(self, instance: Instance, plan: Plan) -> None:
        """Start an instance's replica, and return before it serves. Raises ServeError."""
        # What runs is made in the same turn: Ray Serve marks modules of this process while it writes a class down, and
        # a call beside it finds the mark gone.
        self._bounded(lambda: _run(instance.application, _application(instance, plan, self._queue)))

    def delete(self, name: str) -> None:
        """Let an application end; that takes seconds. Raises ServeError."""

        def delete() -> None:
            from ray import serve

            serve.delete(name, _blocking=False)

        self._bounded(delete)

    def end_requests(self, name: str) -> None:
        """Let the replica end its requests with the reason, and wait for that a short time."""
        from ray.serve.handle import DeploymentHandle

        try:
            DeploymentHandle(REPLICA, name).unload.remote().result(timeout_s=_UNLOAD_S)
        except Exception as error:  # it has not started, or does not answer: deleting it ends them, too
            print(f"{name}: {type(error).__name__}: {error}", flush=True)  # noqa: T201 - goes to the actor's log


def reason(messages: Iterable[str]) -> str:
    """Return why a replica did not start, from what Ray Serve says of it: its error without the traceback."""
    lines = [line for message in messages if message for line in message.strip().splitlines() if line.strip()]
    if not lines:
        return "Ray Serve does not say why"
    # An error of ours goes on with what was expected and the fix, on lines of their own.
    start = max((number for number, line in enumerate(lines) if not line.startswith(" ")), default=0)
    return "; ".join(line.strip() for line in lines[start:])


def most_ongoing(concurrency: int, queue: int) -> int:
    """Return the calls that a replica takes at once: the gateway limits requests, and its statistics come on top."""
    return concurrency + queue + _OTHERS


def _applications() -> dict[str, Application]:
    from ray import serve

    return {
        name: Application(
            str(overview.status.value),
            reason([overview.message, *(row.message for row in overview.deployments.values())]),
        )
        for name, overview in serve.status().applications.items()
        if name.startswith(_PREFIX)
    }


def _application(instance: Instance, plan: Plan, queue: int) -> Any:
    """Return what Ray Serve runs. Its own queue has no limit: the gateway's is the one that clients see."""
    options: dict[str, Any] = {
        "name": REPLICA,
        "num_replicas": 1,
        "max_ongoing_requests": most_ongoing(plan.request.concurrency, queue),
        "max_queued_requests": -1,
        "graceful_shutdown_timeout_s": _SHUTDOWN_S,
        "health_check_period_s": _HEALTH_PERIOD_S,
    }
    return application(plan, instance.source, instance.seconds, **options)


def _run(name: str, deployed: Any) -> None:
    from ray import serve

    target = serve.RunTarget(deployed, name=name, route_prefix=None)
    serve.run_many([target], wait_for_applications_running=False, wait_for_ingress_deployment_creation=False)
