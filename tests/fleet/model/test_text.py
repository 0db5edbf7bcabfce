"""Every text of a fleet, and every name: bounded in length, of characters that can be seen, each entry once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from paddock.fleet import FleetError, parse
from paddock.fleet.docs import json_schema
from tests.support.fleets import SAMPLES as FLEETS
from tests.support.fleets import fleet_data
from tests.support.strategies import UNSEEN

SAMPLES = FLEETS | {
    "mirror": fleet_data(
        mirror={
            "charts": {"dcgm-exporter": "oci://registry.example.com/charts/dcgm-exporter"},
            "images": {"docker.io": "registry.example.com/docker"},
        }
    )
}
Path = tuple[str | int, ...]
NAMED = {"access", "pools", "runners", "labels", "environment", "volumes", "tags"}
"""Keys with names of the user's below them."""


def texts(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of the texts in a value."""
    if isinstance(value, str):
        yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from texts(item, (*path, key))


def names(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of the names that the user chose in a value."""
    for key, item in value.items() if isinstance(value, dict) else ():
        if path and path[-1] in NAMED:
            yield (*path, key)
        yield from names(item, (*path, key))


def places(find: Any) -> list[Any]:
    """Each path once, with a sample that has it."""
    samples = {path: name for name, data in SAMPLES.items() for path in find(data)}
    return [pytest.param(name, path, id=".".join(map(str, path))) for path, name in samples.items()]


def refusal(data: dict[str, Any]) -> str:
    with pytest.raises(FleetError) as caught:
        parse({"paddock:fleet": json.dumps(data), "aws:region": "us-west-2"}, "acme", "dev")
    text = str(caught.value)
    assert all(len(line) < 700 and line.isprintable() for line in text.splitlines())
    return text


def with_text(sample: str, path: Path, text: str) -> dict[str, Any]:
    data: Any = deepcopy(SAMPLES[sample])
    node = data
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = text
    return data


def with_name(sample: str, path: Path, name: str) -> dict[str, Any]:
    data: Any = deepcopy(SAMPLES[sample])
    node = data
    for key in path[:-1]:
        node = node[key]
    node[name] = node.pop(path[-1])
    return data


@pytest.mark.parametrize(("sample", "path"), places(texts))
def test_a_text_is_bounded_and_can_be_seen(sample: str, path: Path) -> None:
    """Only values of environments have several lines."""
    char = UNSEEN[len(repr(path)) % len(UNSEEN)]
    assert f"U+{ord(char[0]):04X}" in refusal(with_text(sample, path, f"a{char}b"))
    refusal(with_text(sample, path, "a" * 33_000))
    data = with_text(sample, path, "a\nb")
    if "environment" in path:
        parse({"paddock:fleet": json.dumps(data), "aws:region": "us-west-2"}, "acme", "dev")
    else:
        refusal(data)


@pytest.mark.parametrize(("sample", "path"), places(names))
def test_a_name_is_bounded_and_can_be_seen(sample: str, path: Path) -> None:
    for char in UNSEEN:
        assert f"U+{ord(char[0]):04X}" in refusal(with_name(sample, path, f"a{char}b"))
    refusal(with_name(sample, path, "a" * 300))


def test_every_list_of_texts_refuses_an_entry_twice() -> None:
    free = [f"{name}.{key}" for name, key, field in lists() if not field.get("uniqueItems")]
    assert free == ["Runner.warm"]


def lists() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(definition, key, schema) of every list in the fleet's schema."""

    def inside(schema: Any) -> Iterator[dict[str, Any]]:
        if isinstance(schema, dict):
            if schema.get("type") == "array":
                yield schema
            for key, value in schema.items():
                if key not in ("default", "properties", "$defs"):
                    yield from inside(value)
        elif isinstance(schema, list):
            for item in schema:
                yield from inside(item)

    for name, definition in json_schema.stack_schema()["$defs"].items():
        for key, field in definition["properties"].items():
            yield from ((name, key, array) for array in inside(field))
