"""Reference of the document that `./inv plan --json` prints, generated from its JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paddock.plan.schema import schema

_HEAD = """# Plan document

`./inv plan --json FILE` writes a plan as data, and `./inv plan --json` prints it; the pages, the tables and the
comparison of two plans are made of it alone. [plan.schema.json](plan.schema.json) is its JSON Schema, for validators
and editors.

*Generated from `paddock/plan/document/model.py` and `paddock/plan/diff/model.py`; edit the model, not this page.*

- `schema` changes its number when a key goes or changes its meaning; new keys leave it.
- CPU and memory are Kubernetes quantities (`3500m`, `14Gi`), days are `YYYY-MM-DD`; money has its `unit` and sources.
- `null` is not known; it never means 0.

```sh
./inv plan --stack prod --json
```
"""

Shape = Mapping[str, Any]
"""A part of a JSON Schema."""


def page() -> str:
    """Return the text of docs/plan-document.md."""
    whole = schema()
    models = {name: shape for name, shape in whole["$defs"].items() if "properties" in shape}
    top = _table("The document", whole, models)
    return "\n".join([_HEAD, top, *(_table(name, models[name], models) for name in _in_order(whole, models))])


def _in_order(whole: Shape, models: Mapping[str, Shape]) -> Iterator[str]:
    """Yield the models in the order in which a reader meets them."""
    met: dict[str, None] = {}
    waiting = [whole]
    while waiting:
        for name in re.findall(r"#/\$defs/(\w+)", str(waiting.pop(0)["properties"])):
            if name in models and name not in met:
                met[name] = None
                waiting.append(models[name])
    yield from met


def _table(title: str, shape: Shape, models: Mapping[str, Shape]) -> str:
    rows = ["| key | type |", "|---|---|"]
    for key, value in shape["properties"].items():
        optional = "" if key in shape.get("required", ()) or "default" in value else ", where it applies"
        rows.append(f"| `{key}` | {_type(value, models)}{optional} |")
    about = f"{_cell(shape['description'])}\n\n" if title in models and shape.get("description") else ""
    return f"## {title}\n\n{about}" + "\n".join(rows) + "\n"


def _type(shape: Shape, models: Mapping[str, Shape]) -> str:
    match shape:
        case {"$ref": reference}:
            name = reference.rpartition("/")[2]
            return f"[{name}](#{name.lower()})" if name in models else name
        case {"anyOf": options}:
            return " or ".join(_type(option, models) for option in options)
        case {"const": value}:
            return f"`{value}`"
        case {"enum": values}:
            return ", ".join(f"`{value}`" for value in values)
        case {"type": "array", "items": items}:
            return f"list of {_type(items, models)}"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"by name: {_type(values, models)}"
        case {"type": "string", "format": "date"}:
            return "day"
        case {"type": kind}:
            return str(kind)
        case _:
            return "any"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
