"""Shortcuts through Pulumi's SDK: what a plan needs of its functions, without what only a deployment does.

Together they take half the CPU of a large program, and they change no graph: a test runs programs with and without
them. They rest on private names of the SDK, like the monitor.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pulumi
from pulumi.output import _OutputData
from pulumi.runtime import resource as resources
from pulumi.runtime import rpc
from pulumi.runtime.proto.source_pb2 import StackTrace

_create_urn = resources.create_urn
_output_all = pulumi.Output.all
_output_track = pulumi.Output._track
_serialize_property = rpc.serialize_property
_deserialize_property = rpc.deserialize_property
_resolve_all = rpc.resolve_outputs
_translate_output_properties = rpc.translate_output_properties
_SCALARS = {str, bool, int, float, type(None)}


@contextmanager
def shortcuts() -> Iterator[None]:
    """Take the shortcuts while a program runs."""
    replacements: tuple[tuple[Any, str, Any], ...] = (
        (resources, "_get_stack_trace", StackTrace),  # where in the program a resource is made: nothing here says it
        (resources, "create_urn", _urn),
        (pulumi.Output, "all", staticmethod(_all)),
        (pulumi.Output, "_track", _track),
        (rpc, "transfer_properties", _transfer_properties),
        (rpc, "resolve_outputs", _resolve_outputs),
        (rpc, "serialize_property", _serialize),
        (rpc, "deserialize_property", _deserialize),
        (rpc, "translate_output_properties", _translate),
    )
    originals = [(module, name, vars(module)[name]) for module, name, _ in replacements]
    try:
        for module, name, replacement in replacements:
            setattr(module, name, replacement)
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)


def _urn(name: Any, type_: Any, parent: Any = None, project: Any = None, stack: Any = None) -> pulumi.Output[str]:
    """Return the URN of a resource: where all that it is made of is known, without the SDK's five tasks."""
    if not all(isinstance(part, str) for part in (name, type_, parent)) or project or stack:
        return _create_urn(name, type_, parent, project, stack)
    return _done(set(), f"{parent.rpartition('::')[0]}${type_}::{name}", True, False)


def _is_there(output: pulumi.Output[Any]) -> bool:
    data = output._data
    return isinstance(data, asyncio.Future) and data.done() and not data.cancelled() and data.exception() is None


def _track(output: pulumi.Output[Any]) -> None:
    """Have the program wait for an output: for one that is there already, only where it has failed."""
    if not _is_there(output):
        _output_track(output)


def _all(*values: Any, **named: Any) -> pulumi.Output[Any]:
    """Return an output of many: at once where all of them are there, as the SDK's way takes turns of the loop."""
    if values and named:
        return _output_all(*values, **named)
    outputs = [pulumi.Output.from_input(value) for value in (named.values() if named else values)]
    if not all(_is_there(output) for output in outputs):
        return _output_all(**dict(zip(named, outputs, strict=True))) if named else _output_all(*outputs)
    data = [output._data.result() for output in outputs]
    
    value = [item.value for item in data]
    return _done(
        set().union(*(item.resources for item in data)),
        dict(zip(named, value, strict=True)) if named else value,
        all(item.is_known for item in data),
        any(item.is_secret for item in data),
    )


class _Outputs(dict[str, Callable[..., None]]):
    """Resolvers of a resource's outputs by name, and the function that runs them once the resource is registered."""

    def __init__(self) -> None:
        super().__init__()
        self.resolve: asyncio.Future[Callable[[], None]] = asyncio.Future()


class _Later:
    """Data of an output. Most outputs are read by nobody: what the resource has is taken apart for the first reader."""

    def __init__(self, outputs: _Outputs) -> None:
        self.outputs = outputs
        self.data: asyncio.Future[_OutputData[Any]] = asyncio.Future()

    def __await__(self) -> Generator[Any, None, _OutputData[Any]]:
        resolve = yield from self.outputs.resolve.__await__()
        if not self.data.done():
            resolve()
        return self.data.result()


def _transfer_properties(resource: pulumi.Resource, properties: Mapping[str, Any], custom: bool) -> _Outputs:
    """Give a resource an output for each property.

    The SDK's list of outputs to wait for does not have them: they are resolved with the resource, which it waits for.
    """
    outputs = _Outputs()
    for name in properties:
        if name != "urn" and not (name == "id" and custom):
            later = _Later(outputs)
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
    run = functools.partial(_resolve_all, resource, sent, received, dependencies, outputs, *arguments, **options)
    if isinstance(outputs, _Outputs):
        outputs.resolve.set_result(run)
    else:  # a component without outputs
        run()


def _output(data: Any) -> pulumi.Output[Any]:
    output: pulumi.Output[Any] = object.__new__(pulumi.Output)
    output._data = data
    return output


def _done(resources: set[pulumi.Resource], value: Any, known: bool, secret: bool) -> pulumi.Output[Any]:
    """Return an output that is there already."""
    data: asyncio.Future[_OutputData[Any]] = asyncio.Future()
    data.set_result(_OutputData(resources, value, known, secret))
    return _output(data)


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
        later.outputs.resolve.set_result(lambda: None)


async def _serialize(value: Any, *arguments: Any, **options: Any) -> Any:
    """Return a property as it is sent: most are scalars, which are sent as they are."""
    if type(value) in _SCALARS and not options.get("return_protobuf_value"):
        return value
    return await _serialize_property(value, *arguments, **options)


def _deserialize(value: Any, *arguments: Any, **options: Any) -> Any:
    if type(value) in _SCALARS and value != rpc.UNKNOWN:
        return value
    return _deserialize_property(value, *arguments, **options)


def _translate(output: Any, translate: Any, type_: Any = None, *arguments: Any, **options: Any) -> Any:
    if type(output) in _SCALARS and type_ is None:
        return output
    return _translate_output_properties(output, translate, type_, *arguments, **options)
