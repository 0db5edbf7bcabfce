"""Gateway as an application of Ray Serve, and its calls to scheduler and replicas."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from paddock.serve.admission.requests import Generation, RequestError
from paddock.serve.agents.home import HEAD
from paddock.serve.agents.ray_process import AGENT
from paddock.serve.deployment.scheduler import NAME, NAMESPACE
from paddock.serve.gateway.app import Gateway

APPLICATION = "gateway"
_MOST_REQUESTS = 4096
"""Requests that the gateway holds at once; each model's queue is shorter."""


def application(keys: frozenset[str]) -> Any:
    """Return the gateway as what `serve.run` takes; it runs on the head."""
    from ray import serve

    deployed = serve.ingress(lambda: Ingress(keys).app)(_Deployed)
    options = {"num_cpus": 0, "label_selector": {AGENT: HEAD}}
    return (
        serve.deployment(deployed)
        .options(name=APPLICATION, max_ongoing_requests=_MOST_REQUESTS, ray_actor_options=options)
        .bind()
    )


class _Deployed:
    """Deployment that the ASGI application is put on."""


class Ingress:
    """Gateway with its calls to scheduler and replicas, in a replica of Ray Serve."""

    def __init__(self, keys: frozenset[str]) -> None:
        import ray

        self._scheduler = ray.get_actor(NAME, namespace=NAMESPACE)
        self.app = Gateway(self._models, self._stream, keys).app()

    async def _models(self) -> list[dict[str, Any]]:
        return list(await self._scheduler.models.remote())

    async def _stream(self, id: str, generation: Generation) -> AsyncIterator[Any]:
        """Yield the pieces of a replica's answer. Raises RequestError."""
        from ray import serve
        from ray.exceptions import RayActorError, RayTaskError
        from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

        handle = serve.get_app_handle(f"model-{id}").options(stream=True)
        response = handle.generate.remote(generation.prompt, generation.messages, generation.max_tokens)
        try:
            async for piece in response:
                yield piece
        except BackPressureError:
            raise RequestError(f"{id} has as many requests as its queue holds", 503, "queue_full") from None
        except (RayActorError, DeploymentUnavailableError) as error:
            raise RequestError(f"the agent of {id} has gone: {_first_line(error)}", 502, "agent_lost") from None
        except RayTaskError as error:
            raise RequestError(_first_line(error.cause), code="invalid_request_error") from None
        finally:
            with contextlib.suppress(Exception):
                response.cancel()


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().partition("\n")[0] if error else "the replica failed"
