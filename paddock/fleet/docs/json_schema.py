"""The stack file as JSON Schema, so that an editor completes and checks it while it is written.

The schema knows shapes, names and bounds. What holds between the parts (two runners with the same labels, subnets that
overlap) only `inv plan` checks.
"""

from __future__ import annotations

import json
from typing import Any

from paddock import catalog
from paddock.fleet.model.fleet import Fleet, Layers
from paddock.fleet.model.runner import SCALE_SET_NAME_MAX
from paddock.fleet.stackfile.configuration import CREDENTIALS

DRAFT = "https://json-schema.org/draft/2020-12/schema"
PATH = "docs/fleet.schema.json"
"""Where the schema of a whole stack file lies, for editors."""

_SECRET = {
    "description": "A credential, encrypted: `pulumi config set --secret` writes it.",
    "type": "object",
    "properties": {"secure": {"type": "string"}},
    "required": ["secure"],
    "additionalProperties": False,
}


_TEXT = {"type": "string", "minLength": 1}
_SUPPRESSIONS = {
    "description": "Exceptions from the plan's rules, each with a reason and a last day.",
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "rule": {**_TEXT, "description": "ID of the rule."},
            "resource": {
                **_TEXT,
                "description": "Name or URN of a resource, or path of a file; * stands for anything.",
            },
            "reason": {**_TEXT, "minLength": 10, "description": "Why this is right here."},
            "expires": {**_TEXT, "pattern": r"^\d{4}-\d\d-\d\d$", "description": "Last day it holds, in quotes."},
        },
        "required": ["rule", "resource", "reason", "expires"],
        "additionalProperties": False,
    },
}


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
                    "paddock:suppressions": _SUPPRESSIONS,
                    **dict.fromkeys(CREDENTIALS, _SECRET),
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
    if "patternProperties" in node:
        node.setdefault("additionalProperties", False)
    for key, item in node.items():
        if key == "properties":
            for inner in item.values():
                _clean(inner)
        elif key not in {"default", "enum", "const", "required"}:
            _clean(item)
