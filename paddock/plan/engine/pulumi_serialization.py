"""Values as they travel between a Pulumi program, the engine and its providers. Rests on private names of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import struct_pb2
from pulumi.runtime import rpc

from paddock.plan.engine.values import UNKNOWN, Ref, Secret


def decode(value: struct_pb2.Value) -> Any:
    """Return a wire value as plain Python; secrets wrapped, unknown ones UNKNOWN, numbers without a fraction ints.

    Maps are sorted: on the wire they have no order of their own, and a plan must print the same on every run.
    """
    match value.WhichOneof("kind"):
        case "string_value":  # first, as most are
            return UNKNOWN if value.string_value == rpc.UNKNOWN else value.string_value
        case "struct_value":
            fields = value.struct_value.fields
            signature = fields[rpc._special_sig_key].string_value if rpc._special_sig_key in fields else ""
            if signature == rpc._special_secret_sig:
                return Secret(decode(fields["value"]))
            if signature == rpc._special_resource_sig:
                return Ref(fields["urn"].string_value)
            return {key: decode(item) for key, item in sorted(fields.items())}
        case "list_value":
            return [decode(item) for item in value.list_value.values]
        case "number_value":
            return number(value.number_value)
        case "bool_value":
            return value.bool_value
        case _:
            return None


def number(value: float) -> int | float:
    """Return a number of the wire, where all are floats: without a fraction an int."""
    return int(value) if value.is_integer() else value


def decode_struct(struct: struct_pb2.Struct) -> dict[str, Any]:
    return {key: decode(value) for key, value in sorted(struct.fields.items())}


def encode(value: Any) -> struct_pb2.Value:
    match value:
        case Secret(value=inner):
            marked = {
                rpc._special_sig_key: struct_pb2.Value(string_value=rpc._special_secret_sig),
                "value": encode(inner),
            }
            return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=marked))
        case Ref(urn=urn):
            return struct_pb2.Value(string_value=urn)
        case None:
            return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
        case bool():
            return struct_pb2.Value(bool_value=value)
        case int() | float():
            return struct_pb2.Value(number_value=value)
        case str():
            return struct_pb2.Value(string_value=rpc.UNKNOWN if value == UNKNOWN else value)
        case Mapping():
            return struct_pb2.Value(struct_value=encode_struct(value))
        case list() | tuple():
            return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[encode(item) for item in value]))
        case _:
            raise TypeError(f"a {type(value).__name__} cannot be sent to the engine")


def encode_struct(state: Mapping[str, Any]) -> struct_pb2.Struct:
    return struct_pb2.Struct(fields={key: encode(value) for key, value in state.items()})
