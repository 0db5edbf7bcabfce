"""Saved inventories: written ones are read back, and mistakes are reported with their key."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.gpu import inventory as detect
from paddock.gpu import model, serialization
from paddock.gpu.errors import GpuInputError
from paddock.gpu.model import Inventory
from tests.support.explore import examples
from tests.support.nvml import Driver


@cache
def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type that the model uses."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return st.builds(kind, **{field.name: any_of(hints[field.name]) for field in fields(kind)})
    if get_origin(kind) is tuple:
        return st.lists(any_of(get_args(kind)[0]), max_size=3).map(tuple)
    if isinstance(kind, UnionType):
        return st.one_of(*map(any_of, get_args(kind)))
    if kind is float:
        return st.floats(-1e300, 1e300)
    return st.from_type(kind)


def distinct(inventory: Inventory) -> bool:
    uuids = [gpu.uuid for gpu in inventory.gpus if gpu.uuid]
    return len(uuids) == len(set(uuids))


@examples(30, 500)
@given(any_of(Inventory).map(lambda inventory: replace(inventory, schema=model.SCHEMA)).filter(distinct))
def test_every_inventory_is_read_back_as_it_was_written(inventory: Inventory) -> None:
    assert serialization.loads(serialization.dumps(inventory)) == inventory


@pytest.fixture
def saved(driver: Callable[[str], Driver]) -> dict[str, Any]:
    driver("mig")
    document: dict[str, Any] = json.loads(serialization.dumps(detect.inventory(processes=True, topology=True)))
    return document


def test_schema_comes_first_and_keys_follow_the_model(saved: dict[str, Any]) -> None:
    assert list(saved)[:3] == ["schema", "taken_at", "machine"]
    assert list(saved["gpus"][0]) == [field.name for field in fields(model.Gpu)]


def change(place: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(document: Any) -> None:
        *above, last = [int(key) if key.isdigit() else key for key in place.split(".")]
        for key in above:
            document = document[key]
        document[last] = value

    return apply


@pytest.mark.parametrize(("place", "value", "problem", "expected"), [
    ("gpus.0.memroy", 1, 'gpus[0].memroy: unknown key "memroy"', "memory"),
    ("gpus.0.mig.devices.0.profle", "1g", 'gpus[0].mig.devices[0].profle: unknown key "profle"', "profile"),
    ("machine.zzz", 1, 'machine.zzz: unknown key "zzz"', "one of name, system, architecture"),
    ("gpus.0.memory.used", 1.5, "gpus[0].memory.used: 1.5 is", "a whole number"),
    ("gpus.0.memory.used", "7", 'gpus[0].memory.used: "7" is', "a whole number"),
    ("gpus.0.power.draw", float("nan"), "gpus[0].power.draw: nan is", "a number"),
    ("gpus.0.vendor", "intel", 'gpus[0].vendor: "intel" is', "one of nvidia, amd, apple"),
    ("gpus", {}, "gpus: this is", "a list"),
    ("gpus.0", 7, "gpus[0]: 7 is", "an object"),
    ("schema", 2, "written by a newer Paddock (schema 2)", "schema 1"),
    ("schema", "1", "has no `schema` number", 'an object with "schema": 1'),
])  # fmt: skip
def test_a_wrong_file_is_refused_with_its_key(
    saved: dict[str, Any], tmp_path: Path, place: str, value: Any, problem: str, expected: str
) -> None:
    change(place, value)(saved)
    file = tmp_path / "box.json"
    file.write_text(json.dumps(saved))
    with pytest.raises(GpuInputError) as refused:
        serialization.load(file)
    message = str(refused.value)
    assert message.startswith(f"{file}: ")
    assert problem in message
    assert "\n    expected: " in message
    assert expected in message
    assert "\n    fix: " in message
    assert refused.value.exit_code == 2


def test_a_gpu_is_in_an_inventory_once(saved: dict[str, Any]) -> None:
    with pytest.raises(GpuInputError, match="two GPUs have the UUID GPU-00000000"):
        serialization.loads(json.dumps(saved | {"gpus": saved["gpus"] * 2}))


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", "[" * 100_000, "\0", '{"schema": 1}', '{"a": "\\ud800"}'])
def test_what_is_no_inventory_is_refused(text: str) -> None:
    with pytest.raises(GpuInputError):
        serialization.loads(text)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "box.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(GpuInputError, match=r"box\.json"):
        serialization.load(file)


def test_writing_one_loads_neither_pydantic_nor_rich_nor_the_driver_library() -> None:
    script = (
        "import sys; from paddock.gpu import inventory as detect, serialization as document;"
        "document.dumps(detect.inventory());"
        "print(*{'pydantic', 'rich', 'yaml', 'platform'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={})
    assert result.stdout.strip() == ""
