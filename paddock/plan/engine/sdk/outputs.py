"""Outputs: those that are there already are worked on at once, and what a resource has is taken apart when read."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Generator, Mapping
from typing import Any

import pulumi
from pulumi import _types, output
from pulumi.output import _OutputData
from pulumi.runtime import rpc

from paddock.plan.engine.pulumi_serialization import encode_struct

SCALARS = {str, bool, int, float, type(None)}
_COLLECTIONS = {list, dict}
_output_is_prompt = output._is_prompt
_output_all = pulumi.Output.all
_output_from_input = pulumi.Output.from_input
_output_track = pulumi.Output._track
_resolve_all = rpc.resolve_outputs


def data(output: Any) -> _OutputData[Any] | None:
    """Return what an output holds, if that is there already. None for what is not an output, or has failed."""
    if not isinstance(output, pulumi.Output):
        return None
    future: Any = output._data
    if isinstance(future, _Later):
        future = future.ready()
    return future.result() if future.done() and not future.cancelled() and future.exception() is None else None


def done(
    value: Any, resources: set[pulumi.Resource] | None = None, known: bool = True, secret: bool = False
) -> pulumi.Output[Any]:
    """Return an output that is there already."""
    future: asyncio.Future[_OutputData[Any]] = asyncio.Future()
    future.set_result(_OutputData(resources or set(), value, known, secret))
    return _output(future)


def _output(data: Any) -> pulumi.Output[Any]:
    output: pulumi.Output[Any] = object.__new__(pulumi.Output)
    output._data = data
    return output


def _track(output: pulumi.Output[Any]) -> None:
    """Have the program wait for an output, unless it is there already."""
    if data(output) is None:
        _output_track(output)


def _from_input(value: Any) -> pulumi.Output[Any]:
    return done(value) if type(value) in SCALARS else _output_from_input(value)


def _is_prompt(value: Any) -> bool:
    return type(value) in _COLLECTIONS or _output_is_prompt(value)


def _all(*values: Any, **named: Any) -> pulumi.Output[Any]:
    """Return an output of many: at once where all of them are there. The SDK's own way takes a turn of the loop."""
    if values and named:
        return _output_all(*values, **named)  # raises
    outputs = [pulumi.Output.from_input(value) for value in (*values, *named.values())]
    parts = [part for output in outputs if (part := data(output)) is not None]
    if len(parts) < len(outputs):
        return _output_all(**dict(zip(named, outputs, strict=True))) if named else _output_all(*outputs)
    inner = [part.value for part in parts]
    return done(
        dict(zip(named, inner, strict=True)) if named else inner,
        set[pulumi.Resource]().union(*(part.resources for part in parts)),
        all(part.is_known for part in parts),
        any(part.is_secret for part in parts),
    )


class _Outputs(dict[str, Callable[..., None]]):
    """Resolvers of a resource's outputs by name, and the function that runs one once the resource is registered."""

    def __init__(self) -> None:
        super().__init__()
        self.resolve: asyncio.Future[Callable[[str], None]] = asyncio.Future()


class _Later:
    """Data of an output. Most outputs are read by nobody: each is taken out of what the resource has when it is."""

    def __init__(self, outputs: _Outputs, name: str) -> None:
        self.outputs, self.name = outputs, name
        self.data: asyncio.Future[_OutputData[Any]] = asyncio.Future()

    def ready(self) -> asyncio.Future[_OutputData[Any]]:
        """Return the data: done if the resource is registered."""
        if self.outputs.resolve.done() and not self.data.done():
            self.outputs.resolve.result()(self.name)
        return self.data

    def __await__(self) -> Generator[Any, None, _OutputData[Any]]:
        yield from self.outputs.resolve.__await__()
        return self.ready().result()


def _transfer_properties(resource: pulumi.Resource, properties: Mapping[str, Any], custom: bool) -> _Outputs:
    """Give a resource an output for each property.

    The SDK's list of outputs to wait for does not have them: they are resolved with the resource, which it waits for.
    """
    outputs = _Outputs()
    for name in properties:
        if name != "urn" and not (name == "id" and custom):
            later = _Later(outputs, name)
            resource.__dict__[name] = _output(later)
            outputs[name] = functools.partial(_resolve, resource, later)
    return outputs


def _resolve_outputs(
    resource: pulumi.Resource,
    sent: Any,
    received: Any,
    dependencies: Any,
    outputs: Any,
    *arguments: Any,
    **options: Any,
) -> None:
    def resolve(resolvers: Any, sent: Any, received: Any) -> None:
        _resolve_all(resource, _message(sent), _message(received), dependencies, resolvers, *arguments, **options)

    def resolve_output(name: str) -> None:
        if isinstance(sent, dict) and isinstance(received, dict):
            resolve({name: outputs[name]}, _of_output(name, sent, resource), _of_output(name, received, resource))
        else:
            resolve(outputs, sent, received)

    if isinstance(outputs, _Outputs):
        outputs.resolve.set_result(resolve_output)
    else:  # a component without outputs
        resolve(outputs, sent, received)


def _of_output(name: str, properties: Mapping[str, Any], resource: pulumi.Resource) -> dict[str, Any]:
    """Return the properties that the SDK may translate to an output's name."""
    names = _types.resource_pulumi_to_py_names(type(resource))
    return {
        key: value
        for key, value in properties.items()
        if name in (key, names.get(key), resource.translate_output_property(key))
    }


def _message(properties: Any) -> Any:
    return encode_struct(properties) if isinstance(properties, dict) else properties


def _resolve(
    resource: pulumi.Resource,
    later: _Later,
    value: Any,
    known: bool,
    secret: bool,
    dependencies: set[pulumi.Resource] | None,
    failed: Exception | None,
) -> None:
    if failed is None:
        later.data.set_result(_OutputData({resource, *(dependencies or ())}, value, known, secret))
        return
    later.data.set_exception(failed)
    if not later.outputs.resolve.done():
        later.outputs.resolve.set_result(lambda _: None)


REPLACEMENTS: tuple[tuple[Any, str, Any], ...] = (
    (pulumi.Output, "all", staticmethod(_all)),
    (pulumi.Output, "from_input", staticmethod(_from_input)),
    (pulumi.Output, "_track", _track),
    (output, "_is_prompt", _is_prompt),
    (rpc, "transfer_properties", _transfer_properties),
    (_types, "resource_types", functools.cache(_types.resource_types)),
    (_types, "resource_pulumi_to_py_names", functools.cache(_types.resource_pulumi_to_py_names)),
    (rpc, "resolve_outputs", _resolve_outputs),
)
