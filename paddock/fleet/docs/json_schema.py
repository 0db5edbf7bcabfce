"""The stack file as JSON Schema, so that an editor completes and checks it while it is written.

The schema knows shapes, names and bounds. What holds between the parts (two runners with the same labels, subnets that
overlap) only `inv plan` checks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddock import catalog
from paddock.fleet.model.fleet import Fleet, Layers
from paddock.fleet.model.quantity import format_cpu, format_delay, format_memory
from paddock.fleet.model.runner import SCALE_SET_NAME_MAX
from paddock.fleet.stackfile.configuration import CREDENTIALS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
PATH = "docs/fleet.schema.json"
"""Where the schema of a whole stack file is, for editors."""

_OTHER_KEYS: dict[str, Any] = json.loads(Path(__file__).with_name("other_keys.json").read_bytes())
"""Schemas of the keys next to the fleet."""


def schema() -> dict[str, Any]:
    """Schema of the value of `paddock:fleet`."""
    document = Fleet.model_json_schema(by_alias=True)
    # Both have their default outside the fleet: PROJECT-STACK and aws:region.
    document["required"] = [name for name in document["required"] if name not in {"name", "region"}]
    _clean(document)
    gpu = [name for name, instance in catalog.instances().items() if instance.gpu]
    plain = [name for name, instance in catalog.instances().items() if not instance.gpu]
    for model, names in (("GpuPool", gpu), ("AmiBuild", gpu), ("SystemNodes", plain)):
        document["$defs"][model]["properties"]["instances"]["items"]["enum"] = names
    document["$defs"]["GitHub"]["oneOf"] = [{"required": ["app"]}, {"required": ["token"]}]
    document["$defs"]["Runner"]["properties"]["name"]["anyOf"][0]["maxLength"] = SCALE_SET_NAME_MAX
    document["$defs"]["Endpoint"]["properties"]["allow"]["oneOf"][1]["items"]["not"] = {"pattern": "/0$"}
    return {"$schema": DRAFT, "title": "paddock:fleet", **document}


def stack_schema() -> dict[str, Any]:
    """Schema of a whole stack file, `Pulumi.<stack>.yaml`. Keys of other namespaces are left to their owners."""
    fleet = schema()
    definitions = fleet.pop("$defs")
    fleet.pop("$schema")
    layers = Layers.model_json_schema(by_alias=True)
    _clean(layers)
    return {
        "$schema": DRAFT,
        "title": "A Paddock stack: Pulumi.<stack>.yaml",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": {
                    "aws:region": {**_property("region"), "description": "AWS region of the fleet."},
                    "paddock:fleet": {"$ref": "#/$defs/Fleet"},
                    "paddock:layers": {"$ref": "#/$defs/Layers"},
                    "paddock:suppressions": _OTHER_KEYS["suppressions"],
                    **dict.fromkeys(CREDENTIALS, _OTHER_KEYS["secret"]),
                },
                "patternProperties": {"^(?!paddock:)": {}},
                "additionalProperties": False,
                "required": ["paddock:fleet"],
            }
        },
        "required": ["config"],
        "$defs": {**definitions, "Fleet": fleet, "Layers": layers},
    }


def text() -> str:
    """The contents of `docs/fleet.schema.json`."""
    return json.dumps(stack_schema(), indent=2, ensure_ascii=False) + "\n"


def _property(name: str) -> dict[str, Any]:
    definition: dict[str, Any] = schema()["properties"][name]
    return definition


def _as_written(shape: Mapping[str, Any], default: int) -> int | str:
    """Return a default as a stack file has it: an amount or a delay with its unit."""
    if "exclusiveMinimum" in json.dumps(shape):
        return format_cpu(default)
    if shape.get("type") != "string":
        return default
    return format_delay(default) if "10m" in shape.get("examples", ()) else format_memory(default)


def _clean(node: Any) -> None:
    """Takes out what only repeats the key, and lets a map of patterns allow nothing else."""
    if isinstance(node, list):
        for item in node:
            _clean(item)
    if not isinstance(node, dict):
        return
    if isinstance(node.get("title"), str):
        del node["title"]
    if node.get("default", ...) is None:
        del node["default"]
    elif type(node.get("default")) is int:
        node["default"] = _as_written(node, node["default"])
    if "patternProperties" in node:
        node.setdefault("additionalProperties", False)
    for key, item in node.items():
        if key == "properties":
            for inner in item.values():
                _clean(inner)
        elif key not in {"default", "enum", "const", "required"}:
            _clean(item)
