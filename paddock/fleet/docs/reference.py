"""Writes `docs/configuration.md` from the model: the same descriptions, bounds and defaults that the loader uses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from paddock import catalog
from paddock.console.output import update
from paddock.fleet.docs import json_schema

PATH = "docs/configuration.md"
_HERE = Path(__file__).parent


def write(root: Path) -> list[Path]:
    """Writes the reference and the JSON Schema under `root`, and returns their paths. Raises OutputError."""
    contents = {root / PATH: render(), root / json_schema.PATH: json_schema.text()}
    for path, text in contents.items():
        update(path, text)
    return list(contents)


def render() -> str:
    """The whole of `docs/configuration.md`: `introduction.md`, then the parts that `reference.yaml` lists."""
    introduction = (_HERE / "introduction.md").read_text(encoding="utf-8")
    return "\n".join([introduction, *_sections()]).rstrip() + "\n"


@cache
def _parts() -> Any:
    return yaml.safe_load((_HERE / "reference.yaml").read_text(encoding="utf-8"))


def _sections() -> Iterator[str]:
    described = json_schema.stack_schema()["$defs"]
    for section in _parts():
        yield f"## {section['title']}\n"
        first = next(iter(section["parts"]))
        yield f"`{section['key']}`: {section.get('lead') or described[first]['description']}\n"
        if note := section.get("note"):
            yield note
        for name, said in section["parts"].items():
            if place := said.get("place"):
                yield f"### {place}\n"
                yield f"{described[name]['description']}\n"
            yield _table(described[name]) if len(described[name]["properties"]) > 1 else _line(said, described[name])


def _table(described: Mapping[str, Any]) -> str:
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, shape in described["properties"].items():
        default = "**required**" if key in described.get("required", ()) else _default(shape.get("default"))
        rows.append(f"| `{key}` | {_type(shape)} | {default} | {_cell(shape['description'])} |")
    return "\n".join(rows) + "\n"


def _line(said: Mapping[str, str], described: Mapping[str, Any]) -> str:
    """The one setting of a small form."""
    ((key, shape),) = described["properties"].items()
    return f"`{said.get('form', key)}`: {_cell(shape['description'])}\n"


def _default(value: Any) -> str:
    if value is None or isinstance(value, dict) or value == []:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    quoted = f'"{text}"' if isinstance(value, str) and re.fullmatch(r"[\d.]+", text) else text.replace('"', "")
    return f"`{quoted}`"


def _type(shape: dict[str, Any]) -> str:
    """A JSON Schema as a reader of YAML would say it."""
    if "$ref" in shape:
        return _link(shape["$ref"].rsplit("/", 1)[1])
    if "exclusiveMinimum" in json.dumps(shape):
        return "cores or millicores, `3`, `3500m`"
    for combined in ("anyOf", "oneOf"):
        if combined in shape:
            forms = [_type(form) for form in shape[combined] if form.get("type") != "null"]
            return " or ".join(dict.fromkeys(forms))
    if "const" in shape:
        return f"`{shape['const']}`"
    if "enum" in shape:
        words = shape["enum"]
        if words and words[0] in catalog.instances():
            return "instance type"
        return ", ".join(f"`{word}`" for word in words)
    match shape.get("type"):
        case "array":
            return f"list of {_type(shape['items'])}".replace("range,", "ranges,").replace("type", "types")
        case "object":
            inner = next(iter(shape.get("patternProperties", {}).values()), shape.get("additionalProperties"))
            return f"NAME: {_type(inner)}" if isinstance(inner, dict) else "map"
        case "integer":
            return _bounded(shape)
        case "number":
            return "number"
        case "boolean":
            return "`true`, `false`"
        case _ if "Ki|Mi|Gi" in shape.get("pattern", ""):
            return "amount, `12Gi`"
        case _ if "10m" in shape.get("examples", ()):
            return "time, `10m`, `1h`"
        case _ if "examples" in shape:
            return f"IPv4 range, `{shape['examples'][0]}`"
        case _ if shape.get("pattern") == r"^\d+\.\d+$":
            return "version in quotes"
        case _:
            return "text"


def _bounded(shape: dict[str, Any]) -> str:
    least, most = shape.get("minimum"), shape.get("maximum")
    if least is not None and most is not None:
        return f"{least} to {most}"
    return f"number, {least} or more" if least is not None else "number"


def _link(name: str) -> str:
    section = next(section for section in _parts() if name in section["parts"])
    said = section["parts"][name]
    place = said.get("place", section["title"].lower())
    text = f"`{said['form']}`" if "form" in said else place
    return f"[{text}](#{_anchor(place)})"


def _anchor(heading: str) -> str:
    """GitHub's anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
