"""Custom resource definitions of real controllers as strict schemas, from the reference data."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import yaml

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(text: str) -> Any:
    """Parse a large YAML document with libyaml, which is about ten times as fast."""
    return yaml.load(text, Loader=_Loader)


def closed(schema: Any) -> Any:
    """A structural schema as JSON Schema that refuses what the API server would silently drop."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    strict = {key: closed(value) for key, value in schema.items() if key not in ("format", "description", "default")}
    open_ = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not open_:
        strict["additionalProperties"] = False
    return strict


@cache
def validator(path: Path) -> Any:
    """Return the validator of the `spec` of a definition's stored version."""
    definition = read(path.read_text(encoding="utf-8"))
    (version,) = [v for v in definition["spec"]["versions"] if v["storage"]]
    return jsonschema.Draft202012Validator(closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"]))


def mistakes(validator: Any, document: Any) -> list[str]:
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(document)]
