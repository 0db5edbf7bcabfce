"""Request and policy from the flags of a command."""

from __future__ import annotations

from typing import get_args

from paddock.errors import did_you_mean
from paddock.models.model import Model
from paddock.models.shapes import stored_dtype
from paddock.serve.cli.parameters import ServePlan
from paddock.serve.errors import ServeInputError
from paddock.serve.own.protocol import DTYPES
from paddock.serve.own.refusals import packing_refusal
from paddock.serve.placement.device import Backend
from paddock.serve.placement.request import MOST_DEVICES, Policy, Request

_CONTEXT = 4096
_REQUESTS, _MOST_REQUESTS = 4, 65536
_RESERVE, _MOST_RESERVE = 0.05, 0.95
_OTHER_NAMES = {"nvidia": "cuda", "amd": "rocm", "hip": "rocm", "apple": "metal", "mps": "metal", "mlx": "metal"}


def plan_request(parameters: ServePlan, model: Model) -> Request:
    """Return the checked request. Weights that a file has in a format stay in it. Raises ServeInputError."""
    if parameters.dtype and parameters.dtype not in DTYPES:
        hint = did_you_mean(parameters.dtype, DTYPES, f"one of {', '.join(DTYPES)}")
        raise ServeInputError(f"--dtype: there is no format {parameters.dtype!r}\n    expected: {hint}")
    dtype = stored_dtype(model)
    if parameters.dtype and (model.quantised or dtype) and parameters.dtype != dtype:
        computes = "" if dtype else " (serve.load --engine vllm computes in theirs)"
        raise ServeInputError(
            f"--dtype: {parameters.dtype}, and the weights of {model.name} are {model.format} in the file: packed "
            "anew they would lose more, and gain nothing\n    expected: no --dtype"
            f"\n    fix: leave --dtype out{computes}, or take the model in another format"
        )
    if parameters.dtype and (unfit := packing_refusal(model, parameters.dtype)):
        raise ServeInputError(str(unfit))
    context = min(_CONTEXT, model.context) if parameters.context is None else parameters.context
    _within("context", context, 1, model.context, _places(model))
    concurrency = _REQUESTS if parameters.concurrency is None else parameters.concurrency
    _within("concurrency", concurrency, 1, _MOST_REQUESTS)
    return Request(model, parameters.dtype or dtype, context, concurrency, stored=model.quantised or dtype is not None)


def _places(model: Model) -> str:
    rope = model.rope
    stretched = f", stretched from {rope.original} ({rope.type})" if rope.original and rope.factor > 1 else ""
    return f"{model.name} has places for {model.context} tokens{stretched}"


def plan_policy(parameters: ServePlan) -> Policy:
    """Return the checked policy. Raises ServeInputError."""
    reserve = _RESERVE if parameters.reserve is None else parameters.reserve
    _within("reserve", reserve, 0, _MOST_RESERVE)
    if parameters.tp is not None:
        _within("tp", parameters.tp, 1, MOST_DEVICES)
    backend = backend_of(parameters.backend)
    if backend and parameters.pipeline:
        raise ServeInputError(
            f"--pipeline splits a model over two backends, and --backend {backend} allows one"
            "\n    expected: one of the two flags\n    fix: leave --backend or --pipeline out"
        )
    return Policy(backend, reserve, parameters.tp or MOST_DEVICES, parameters.across_agents, parameters.pipeline)


def backend_of(name: str) -> Backend | None:
    """Return the backend of that name, None for an empty one. Raises ServeInputError."""
    for backend in get_args(Backend):
        if name == backend:
            return backend  # type: ignore[no-any-return]  # get_args does not say of what
    if not name:
        return None
    backends = get_args(Backend)
    other = _OTHER_NAMES.get(name.lower())
    hint = f"did you mean {other}?" if other else did_you_mean(name, backends, f"one of {', '.join(backends)}")
    raise ServeInputError(f"--backend: there is no backend {name!r}\n    expected: {hint}")


def _within(flag: str, value: float, least: float, most: float, why: str = "") -> None:
    if not least <= value <= most:
        reason = f": {why}" if why else ""
        raise ServeInputError(f"--{flag}: {value:g} makes no sense\n    expected: {least:g} to {most:g}{reason}")
