"""The document of a plan: complete, plain JSON, and read back as it was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from paddock.plan.diff.compare import compare
from paddock.plan.document.model import PlanDocument
from paddock.plan.schema import schema, text
from tests.support import fleets
from tests.support.documents import NAMES, of


@pytest.mark.parametrize("name", NAMES)
def test_a_document_survives_json(name: str) -> None:
    text = json.dumps(of(name).data(), allow_nan=False)
    assert json.dumps(PlanDocument.model_validate(json.loads(text)).data()) == text


@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_every_number_names_its_source(name: str) -> None:
    cost = of(name).data()["cost"]
    sources = set(cost["sources"])

    def check(value: Any) -> None:
        if isinstance(value, dict):
            if value.keys() >= {"value", "unit", "sources"}:
                assert set(value["sources"]) <= sources
                assert value["value"] in (None, 0) or value["sources"]
                assert value["value"] is not None or value["missing"]
            for item in value.values():
                check(item)
        elif isinstance(value, list):
            for item in value:
                check(item)

    check(cost)


def test_the_published_schema_is_current(root: Path) -> None:
    assert (root / "docs/plan.schema.json").read_text(encoding="utf-8") == text(), "run: python -m paddock.plan.schema"


@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_what_is_printed_keeps_to_the_schema(name: str) -> None:
    plan = of(name)
    data = plan.data() | {"diff": compare(plan, of("mig")).data()}
    Draft202012Validator.check_schema(schema())
    assert list(Draft202012Validator(schema()).iter_errors(json.loads(json.dumps(data)))) == []


def test_a_new_plan_has_every_part() -> None:
    assert set(schema()["required"]) == set(of("dev").data())
