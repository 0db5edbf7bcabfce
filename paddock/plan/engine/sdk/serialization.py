"""Inputs of a resource as plain data, without the coroutine for each of their parts and the message that is sent."""

from __future__ import annotations

import functools
import typing
from collections import abc
from collections.abc import Callable, Mapping
from typing import Any

from pulumi import _types, output
from pulumi.runtime import rpc

from paddock.plan.engine.pulumi_serialization import number
from paddock.plan.engine.sdk import outputs
from paddock.plan.engine.values import UNKNOWN

_contains_unknowns = rpc.contains_unknowns
_deserialize_property = rpc.deserialize_property
_serialize_properties = rpc.serialize_properties
_translate_output_properties = rpc.translate_output_properties
_MAPPINGS = (dict, abc.Mapping)


class _NotPlain(Exception):
    """A value that only the SDK serializes: a secret, an asset, a resource, or what is not there yet."""


async def _properties(
    inputs: Mapping[str, Any],
    property_deps: dict[str, Any],
    resource_obj: Any = None,
    input_transformer: Callable[[str], str] | None = None,
    typ: Any = None,
    keep_output_values: bool = False,
    **options: Any,
) -> Any:
    """Return the inputs of a resource as `decode_struct` does those that are sent; others as the SDK's message."""
    if resource_obj is not None and not keep_output_values:
        try:
            properties, dependencies = _plain_properties(inputs, input_transformer, typ)
        except _NotPlain:
            pass
        else:
            property_deps |= dependencies
            return properties
    return await _serialize_properties(
        inputs, property_deps, resource_obj, input_transformer, typ, keep_output_values, **options
    )


def _plain_properties(
    inputs: Mapping[str, Any], transform: Callable[[str], str] | None, typ: Any
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    names, types = (_types.input_type_py_to_pulumi_names(typ), _types.input_type_types(typ)) if typ else ({}, {})
    properties, dependencies = {}, {}
    for key in inputs:
        name = names.get(key) or key if typ else transform(key) if transform else key
        behind: list[Any] = []
        value = _plain(inputs[key], behind, transform, types.get(name))
        if value is not None:
            properties[name], dependencies[name] = value, behind
    return dict(sorted(properties.items())), dependencies


def _plain(value: Any, behind: list[Any], transform: Callable[[str], str] | None, typ: Any) -> Any:
    """Return a value as `decode` does what the SDK sends; `behind` gets the resources that it comes from.

    Follows `serialize_property` of pulumi 3.272, rpc.py.
    """
    kind = type(value)
    if kind is str:
        return UNKNOWN if value == rpc.UNKNOWN else value
    if kind is bool or value is None:
        return value
    if kind is int or kind is float:
        return number(float(value))
    typ = _types.unwrap_type(typ) if typ else None
    if typ is Any:
        typ = None
    if kind is list or kind is tuple:
        element = rpc._get_list_element_type(typ)
        return [_plain(item, behind, transform, element) for item in value]
    if kind is dict:
        return _plain_mapping(value, behind, transform, typ) if transform or typ else _plain_data(value, behind)
    if (data := outputs.data(value)) is not None and not data.is_secret:
        behind.extend(data.resources)
        plain = _plain(None if rpc.contains_unknowns(data.value) else data.value, behind, transform, typ)
        return plain if data.is_known else UNKNOWN
    if _types.is_input_type(kind):
        types = _types.input_type_types(kind)
        parts = _types.input_type_to_dict(value)
        return {name: _plain(parts[name], behind, transform, types.get(name)) for name in sorted(parts)}
    raise _NotPlain


def _plain_mapping(value: dict[str, Any], behind: list[Any], transform: Callable[[str], str] | None, typ: Any) -> Any:
    translate, types, every = transform, {}, None
    if typ is not None:
        typ = _types.reduce_discriminated_union(typ, value, _types._py_name_for) or typ
        if _types.is_input_type(typ):
            names = _types.input_type_py_to_pulumi_names(typ)
            types = _types.input_type_types(typ)
            translate = functools.partial(_translated, names)
        elif typ in _MAPPINGS or typing.get_origin(typ) in _MAPPINGS:
            arguments = typing.get_args(typ)
            if len(arguments) == 2 and arguments[0] is str:
                translate, every = None, arguments[1]
        else:
            translate = None
    plain = {}
    for key, item in value.items():
        name = translate(key) if translate else key
        plain[name] = _plain(item, behind, transform, every or types.get(name))
    if rpc._special_sig_key in plain:
        raise _NotPlain
    return dict(sorted(plain.items()))


def _plain_data(value: Any, behind: list[Any]) -> Any:
    """Return what `_plain` does, of a value whose keys stay as they are: a chart's, or a Kubernetes manifest's."""
    kind = type(value)
    if kind is str:  # most are
        return UNKNOWN if value == rpc.UNKNOWN else value
    if kind is dict:
        if rpc._special_sig_key in value:
            raise _NotPlain
        return {key: _plain_data(value[key], behind) for key in sorted(value)}
    if kind is list:
        return [_plain_data(item, behind) for item in value]
    return _plain(value, behind, None, None)


def _translated(names: Mapping[str, str], key: str) -> str:
    return names.get(key) or key


def _has_unknowns(value: Any) -> bool:
    kind = type(value)
    if kind in outputs.SCALARS:
        return False
    if kind is dict:
        return any(map(_has_unknowns, value.values()))
    if kind is list:
        return any(map(_has_unknowns, value))
    return _contains_unknowns(value)


def _deserialize(value: Any, *arguments: Any, **options: Any) -> Any:
    if type(value) in outputs.SCALARS and value != rpc.UNKNOWN:
        return value
    return _deserialize_property(value, *arguments, **options)


def _translate(output: Any, translate: Any, type_: Any = None, *arguments: Any, **options: Any) -> Any:
    if type(output) in outputs.SCALARS and type_ is None:
        return output
    return _translate_output_properties(output, translate, type_, *arguments, **options)


REPLACEMENTS: tuple[tuple[Any, str, Any], ...] = (
    (rpc, "contains_unknowns", _has_unknowns),
    (output, "contains_unknowns", _has_unknowns),
    (_types, "unwrap_type", functools.cache(_types.unwrap_type)),
    (rpc, "serialize_properties", _properties),
    (rpc, "deserialize_property", _deserialize),
    (rpc, "translate_output_properties", _translate),
)
