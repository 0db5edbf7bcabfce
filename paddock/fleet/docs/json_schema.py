"""The stack file as JSON Schema, so that an editor completes and checks it while it is written.

The schema knows shapes, names and bounds. What holds between the parts (two runners with the same labels, subnets that
overlap) only `inv plan` checks.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from paddock import catalog
from paddock.fleet.model.base import Model
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
    document = _of(Fleet)
    # Both have their default outside the fleet: PROJECT-STACK and aws:region.
    document["required"] = [name for name in document["required"] if name not in {"name", "region"}]
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
    layers = _of(Layers)
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


def _of(model: type[Model]) -> dict[str, Any]:
    """Return the schema of a model, in which each key has the text below it in its class as its description.

    pydantic would read these texts at each import of the model, and take a quarter of the import's time for them.
    """
    document = model.model_json_schema(by_alias=True)
    models = {kind.__name__: kind for kind in _below(Model)}
    for name, shape in {model.__name__: document, **document.get("$defs", {})}.items():
        properties = shape.get("properties", {})
        for owner in reversed(models[name].__mro__) if name in models else ():
            for field, text in _texts(owner) if issubclass(owner, Model) else ():
                key = models[name].model_fields[field].alias or field
                properties[key] = dict(sorted({**properties[key], "description": text}.items()))
    _clean(document)
    return document


def _below(model: type[Model]) -> Iterator[type[Model]]:
    for kind in model.__subclasses__():
        yield kind
        yield from _below(kind)


def _texts(model: type[Model]) -> Iterator[tuple[str, str]]:
    """Yield the fields of a class that have a text below them, each with its text."""
    (kind,) = ast.parse(inspect.getsource(model)).body
    for field, below in pairwise(kind.body if isinstance(kind, ast.ClassDef) else ()):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield field.target.id, inspect.cleandoc(text)


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
