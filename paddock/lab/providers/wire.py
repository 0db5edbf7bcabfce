"""Values as they travel between the engine and a provider."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import struct_pb2
from pulumi.runtime import rpc

from paddock.plan.engine.pulumi_serialization import decode_struct, encode_struct
from paddock.plan.engine.values import UNKNOWN, Secret

__all__ = ["decode_struct", "encode_struct", "holds_unknown", "reference", "unwrap_secrets"]


def reference(urn: str, id_: str) -> struct_pb2.Value:
    """Return a resource passed whole. Its id is unknown while a preview has none."""
    fields = {
        rpc._special_sig_key: rpc._special_resource_sig,
        "urn": urn,
        "id": id_ or rpc.UNKNOWN,
        "packageVersion": "",
    }
    return struct_pb2.Value(
        struct_value=struct_pb2.Struct(fields={k: struct_pb2.Value(string_value=v) for k, v in fields.items()})
    )


def unwrap_secrets(value: Any) -> Any:
    """Return the value without secret markers: for comparison, never for storage."""
    match value:
        case Secret(value=inner):
            return unwrap_secrets(inner)
        case Mapping():
            return {key: unwrap_secrets(item) for key, item in value.items()}
        case list() | tuple():
            return [unwrap_secrets(item) for item in value]
        case _:
            return value


def holds_unknown(value: Any) -> bool:
    match value:
        case Secret(value=inner):
            return holds_unknown(inner)
        case Mapping():
            return any(map(holds_unknown, value.values()))
        case list() | tuple():
            return any(map(holds_unknown, value))
        case _:
            return bool(value == UNKNOWN)
