"""Gateway as an application of Ray Serve, and its calls to scheduler and replicas."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from paddock.ray_labels import AGENT, HEAD
from paddock.serve.admission.limits import Limits
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import Generation
from paddock.serve.deployment.external import External, external_of
from paddock.serve.deployment.scheduler import NAME, NAMESPACE
from paddock.serve.errors import PromptTooLong, RankLost
from paddock.serve.gateway.app import Gateway

APPLICATION = "gateway"
_MOST_REQUESTS = 4096
"""Requests that the gateway holds at once; each model's queue is shorter."""


def application(keys: frozenset[str], limits: Limits) -> Any:
    """Return the gateway as what `serve.run` takes; it runs on the head."""
    from ray import serve

    deployed = serve.ingress(lambda: Ingress(keys, limits).app)(_Deployed)
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

    def __init__(self, keys: frozenset[str], limits: Limits | None = None) -> None:
        import ray

        self._scheduler = ray.get_actor(NAME, namespace=NAMESPACE)
        self._external: dict[str, External] = {}
        self.app = Gateway(self._models, self._stream, keys, limits).app()

    async def _models(self) -> list[dict[str, Any]]:
        rows = list(await self._scheduler.models.remote())
        self._external = {row["id"]: external for row in rows if (external := external_of(row))}
        return rows

    async def _stream(self, id: str, generation: Generation) -> AsyncGenerator[Any, None]:
        """Yield the pieces of the answer of a replica, or of an external engine. Raises RequestError."""
        if external := self._external.get(id):
            async with contextlib.aclosing(external.generate(generation)) as pieces:
                async for piece in pieces:
                    yield piece
            return
        from ray import serve
        from ray.exceptions import RayError, RayTaskError
        from ray.serve.exceptions import BackPressureError, RayServeException

        response = None
        try:
            handle = serve.get_app_handle(f"model-{id}").options(stream=True)
            response = handle.generate.remote(generation.prompt, generation.messages, generation.max_tokens)
            async for piece in response:
                yield piece
        except BackPressureError:
            raise RequestError(f"{id} has as many requests as its queue holds", 503, "queue_full") from None
        except RayTaskError as error:
            raise stated(error.cause) from None
        except (RayError, RayServeException) as error:
            raise RequestError(f"the agent of {id} has gone: {_first_line(error)}", 502, "agent_lost") from None
        finally:
            if response is not None:
                with contextlib.suppress(Exception):
                    response.cancel()


def stated(error: BaseException | None) -> RequestError:
    """Return what a replica raised as an answer: a prompt is the request's fault, all else the replica's."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, RankLost):
        return RequestError(_first_line(error), 502, "agent_lost")
    if isinstance(error, PromptTooLong):
        return RequestError(str(error), code="context_length_exceeded", param="prompt")
    return RequestError(f"the model failed: {_first_line(error)}", 502, "engine_error")


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().partition("\n")[0] if error else "the replica failed"
