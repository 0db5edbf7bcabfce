"""States of resources as the engine stores and previews them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulumi.runtime import rpc

from paddock.plan.engine.values import UNKNOWN, Secret


@dataclass(frozen=True, slots=True)
class State:
    """A resource as the engine knows it. Secrets are wrapped and hold ciphertext or nothing; unknown is UNKNOWN."""

    urn: str
    type: str
    id: str
    parent: str
    custom: bool
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    provider: str
    protect: bool
    ignore_changes: tuple[str, ...]
    dependencies: tuple[str, ...]
    property_dependencies: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> State:
        return cls(
            urn=data["urn"],
            type=data["type"],
            id=data.get("id", ""),
            parent=data.get("parent", ""),
            custom=data.get("custom", False),
            inputs=_plain(data.get("inputs") or {}),
            outputs=_plain(data.get("outputs") or {}),
            provider=str(_plain(data.get("provider", ""))).replace(rpc.UNKNOWN, UNKNOWN),
            protect=data.get("protect", False),
            ignore_changes=tuple(data.get("ignoreChanges") or ()),
            dependencies=tuple(sorted(data.get("dependencies") or ())),
            property_dependencies={
                key: tuple(sorted(urns))
                for key, urns in sorted((data.get("propertyDependencies") or {}).items())
                if urns
            },
        )


def _plain(value: Any) -> Any:
    match value:
        case {rpc._special_sig_key: rpc._special_secret_sig}:
            return Secret(value.get("ciphertext", ""))
        case {rpc._special_sig_key: rpc._special_resource_sig}:
            return value["urn"]
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case "[secret]":  # how a preview shows one
            return Secret("")
        case str():
            return UNKNOWN if value == rpc.UNKNOWN else value
        case _:
            return value
