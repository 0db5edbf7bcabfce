"""Gateway as an application of Ray Serve, and its calls to scheduler and replicas."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from paddock.ray_labels import AGENT, HEAD
from paddock.serve.admission.limits import Limits
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import Generation
from paddock.serve.deployment.external import Connections, external_of
from paddock.serve.deployment.scheduler import NAME, NAMESPACE
from paddock.serve.errors import PromptTooLong, RankLost, first_line
from paddock.serve.gateway.app import Gateway

APPLICATION = "gateway"
ON_HEAD: Mapping[str, Any] = {"num_cpus": 0, "label_selector": {AGENT: HEAD}}
"""Options of an actor that runs on the head, beside everything else."""
_MOST_REQUESTS = 4096
"""Requests that the gateway holds at once; each model's queue is shorter."""
_STATISTICS_S = 2.0


def application(make: Callable[[], Ingress]) -> Any:
    """Return the gateway as what Ray Serve runs, on the head. `make` is called where it runs."""
    from ray import serve

    deployed = serve.ingress(lambda: make().app)(_Deployed)
    return (
        serve.deployment(deployed)
        .options(name=APPLICATION, max_ongoing_requests=_MOST_REQUESTS, ray_actor_options=dict(ON_HEAD))
        .bind()
    )


class _Deployed:
    """Deployment that the ASGI application is put on."""


class Ingress:
    """Gateway with its calls to scheduler and replicas, in a replica of Ray Serve."""

    def __init__(self, keys: frozenset[str], limits: Limits | None = None) -> None:
        import ray

        self._scheduler = ray.get_actor(NAME, namespace=NAMESPACE)
        self._handles: dict[str, Any] = {}
        self._connections = Connections()
        self.app = Gateway(self._models, self._stream, keys, limits, self._statistics).app()

    async def _models(self) -> list[dict[str, Any]]:
        return list(await self._scheduler.models.remote())

    def _handle(self, id: str) -> Any:
        """Return the handle of an instance's replicas. It stays the same for one that is loaded again under its id.

        A handle that is made by its names asks nobody. `serve.get_app_handle` waits for Ray Serve's controller, and the
        event loop with all of its streams would wait, too.
        """
        from ray.serve.handle import DeploymentHandle

        if id not in self._handles:
            self._handles[id] = DeploymentHandle("replica", f"model-{id}")
        return self._handles[id]

    async def _stream(self, instance: Mapping[str, Any], generation: Generation) -> AsyncGenerator[Any, None]:
        """Yield the pieces of the answer of a replica, or of an external engine. Raises RequestError."""
        if external := external_of(instance):
            async with contextlib.aclosing(self._connections.generate(external, generation)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        from ray.exceptions import RayError, RayTaskError
        from ray.serve.exceptions import BackPressureError, RayServeException

        id, response = instance["id"], None
        try:
            response = self._handle(id).options(stream=True).generate.remote(generation)
            async for piece in response:
                yield piece
        except BackPressureError:
            raise RequestError(f"{id} has as many requests as its queue holds", 503, "queue_full") from None
        except RayTaskError as error:
            raise stated(error.cause) from None
        except (RayError, RayServeException) as error:
            raise await self._lost(id, error) from None
        finally:
            if response is not None:
                with contextlib.suppress(Exception):
                    response.cancel()

    async def _lost(self, id: str, error: Exception) -> RequestError:
        """Return why a replica is gone in the middle of a request: somebody unloaded it, or its agent has gone."""
        with contextlib.suppress(Exception):
            rows = await asyncio.wait_for(self._models(), _STATISTICS_S)
            if not any(row["id"] == id and row["state"] != "unloading" for row in rows):
                return RequestError(f"{id} has been unloaded", 502, "model_unloaded")
        return RequestError(f"the agent of {id} has gone: {first_line(error)}", 502, "agent_lost")

    async def _statistics(self, instances: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
        """Return what the replicas count; an instance whose replicas do not answer in time is left out."""
        own = [instance["id"] for instance in instances if external_of(instance) is None]
        answers = await asyncio.gather(*map(self._counts, own), return_exceptions=True)
        return {id: answer for id, answer in zip(own, answers, strict=True) if isinstance(answer, list)}

    async def _counts(self, id: str) -> list[dict[str, Any]]:
        # To all replicas, also those that have as many requests as they take.
        response = self._handle(id).broadcast("statistics")
        rows = await response.results_async(timeout_s=_STATISTICS_S, return_exceptions=True)
        return [row for row in rows if isinstance(row, dict)]


def stated(error: BaseException | None) -> RequestError:
    """Return what a replica raised as an answer: a prompt is the request's fault, all else the replica's."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, RankLost):
        return RequestError(first_line(error), 502, "agent_lost")
    if isinstance(error, PromptTooLong):
        return RequestError(str(error), code="context_length_exceeded", param="prompt")
    return RequestError(f"the model failed: {first_line(error)}", 502, "engine_error")
