"""The document of a plan: complete, plain JSON, and read back as it was written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddock.plan.document.model import PlanDocument
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
