"""A saved plan read back: what is wrong with it is said, whatever it holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from paddock.plan.diff.compare import compare
from paddock.plan.document import json_file
from paddock.plan.document.json_file import PlanFileError
from paddock.plan.document.model import SCHEMA, PlanDocument
from paddock.plan.document.saved import read
from tests.support.explore import examples

RESOURCE: dict[str, Any] = {
    "urn": "urn:pulumi:dev::paddock::aws:kms/key:Key::a",
    "type": "aws:kms/key:Key",
    "name": "a",
    "parent": "",
    "custom": True,
    "inputs": {},
    "dependencies": [],
    "propertyDependencies": {},
    "provider": "",
    "protect": False,
    "ignoreChanges": [],
    "deleteBeforeReplace": False,
    "expanded": False,
}
PLAN: dict[str, Any] = {
    "schema": SCHEMA,
    "stack": "dev",
    "project": "paddock",
    "fleet": {},
    "resources": [RESOURCE],
    "outputs": {},
    "lookups": [],
    "fit": [{"runner": "gpu", "pool": "t4", "instance": "g4dn.xlarge", "per_node": 1, "limiting": "gpu"}],
    "findings": [{"id": "FIT001", "severity": "error", "subject": "a", "message": "b", "fix": ""}],
}


def _file(folder: Path, content: object) -> Path:
    path = folder / "old.json"
    match content:
        case bytes():
            path.write_bytes(content)
        case str():
            path.write_text(content, encoding="utf-8")
        case _:
            path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _refusal(folder: Path, content: object) -> str:
    path = _file(folder, content)
    with pytest.raises(PlanFileError) as caught:
        read(path, "dev", "paddock")
    message = str(caught.value)
    assert caught.value.exit_code == 2
    assert str(path) in message
    assert "expected: " in message
    assert "fix: " in message
    assert "--stack dev" in message
    return message


@pytest.mark.parametrize("more", [{}, {"quota": [], "github": {"url": "u", "new": 1}, "new": 1}])
def test_a_plan_comes_back_as_it_is(tmp_path: Path, more: dict[str, Any]) -> None:
    assert read(_file(tmp_path, PLAN | more), "dev", "paddock") == PlanDocument.model_validate(PLAN | more)


def test_a_plan_of_an_older_version_is_compared(tmp_path: Path) -> None:
    document = read(_file(tmp_path, PLAN), "dev", "paddock")
    assert document.cost is None
    assert compare(document, document).empty


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    assert read(_file(tmp_path, b"\xef\xbb\xbf" + json.dumps(PLAN).encode()), "dev").stack == "dev"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        (json.dumps(PLAN, indent=2)[:-40], "it ends too early: line "),
        ('{\n  "schema": "paddo', "it ends too early: line 2, column 13"),
        ('{"schema": nope}', "it is not JSON: line 1, column 12"),
        ("resources:\n- a\n", "it is not JSON: line 1, column 1"),
        (b"\xff\xfe{\x00", "byte 0 is not UTF-8"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ('{"a": ' + "9" * 5000 + "}", "it is not JSON"),
        ("[" * 100_000, "it is nested too deeply"),
        ([], "not a plan: a list"),
        ("null", "not a plan: nothing"),
        ("3.5", "not a plan: a number"),
        ({}, "it has no `schema`"),
        ({"version": 4, "terraform_version": "1.9"}, "it has no `schema`"),
        ({**PLAN, "schema": "paddock.plan/2"}, 'schema "paddock.plan/2", written by another version'),
        ({**PLAN, "stack": "prod"}, 'a plan of stack "prod"'),
        ({**PLAN, "stack": None}, "a plan of stack null"),
        ({**PLAN, "project": "other"}, 'a plan of project "other"'),
        ({**PLAN, "resources": {}}, "`resources` has an unexpected form"),
        ({**PLAN, "resources": [3]}, "`resources[0]` has an unexpected form"),
        ({**PLAN, "resources": [{**RESOURCE, "inputs": []}]}, "`resources[0].inputs` has"),
        ({**PLAN, "resources": [{**RESOURCE, "dependencies": [1]}]}, "`resources[0].dependencies[0]` has"),
        ({**PLAN, "resources": [{**RESOURCE, "propertyDependencies": {"a": "b"}}]}, "propertyDependencies.a` has"),
        ({**PLAN, "resources": [RESOURCE, RESOURCE]}, "`resources[1].urn` has"),
        ({**PLAN, "fit": [{**PLAN["fit"][0], "per_node": True}]}, "`fit[0].per_node` has"),
        ({**PLAN, "cost": {"month": 3}}, "it has no `cost.fixed`"),
        ({**PLAN, "compatibility": None}, "`compatibility` has"),
        ({**PLAN, "findings": [{"id": "A"}]}, "it has no `findings[0].severity`"),
        ({key: value for key, value in PLAN.items() if key != "outputs"}, "it has no `outputs`"),
        ({**PLAN, "outputs": json.loads('{"a":' * 300 + "1" + "}" * 300)}, "nested too deeply"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, content: object, words: str) -> None:
    assert words in _refusal(tmp_path, content)


@pytest.mark.parametrize(
    ("name", "words"),
    [("none.json", "no such file"), ("", "it cannot be read: Is a directory"), ("a\0b", "it cannot be read")],
    ids=["absent", "folder", "impossible"],
)
def test_a_path_that_is_no_file_is_said(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(PlanFileError, match=words):
        read(tmp_path / name, "dev")


def test_a_file_that_no_plan_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "LARGEST", 10)
    assert "more than 64 MiB" in _refusal(tmp_path, PLAN)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


noise = examples(50, 300, suppress_health_check=[HealthCheck.function_scoped_fixture])


@noise
@given(st.one_of(_json, st.fixed_dictionaries({key: st.just(value) | _json for key, value in PLAN.items()})))
def test_no_json_makes_it_crash(tmp_path: Path, content: object) -> None:
    _compared(_file(tmp_path, content))


@noise
@given(st.sampled_from(list(RESOURCE)), _json)
def test_no_resource_makes_it_crash(tmp_path: Path, key: str, value: object) -> None:
    _compared(_file(tmp_path, {**PLAN, "resources": [{**RESOURCE, key: value}]}))


@noise
@given(st.binary(max_size=40), st.integers(0, 900))
def test_no_bytes_make_it_crash(tmp_path: Path, noise: bytes, at: int) -> None:
    text = json.dumps(PLAN).encode()
    _compared(_file(tmp_path, text[:at] + noise + text[at + len(noise) :]))


def _compared(path: Path) -> None:
    """Refused with words, or good enough to be compared."""
    try:
        document = read(path, "dev")
    except PlanFileError:
        return
    plan = PlanDocument.model_validate(PLAN)
    compare(document, plan)
    compare(plan, document)
