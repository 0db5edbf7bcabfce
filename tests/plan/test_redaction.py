"""Credentials in a runner's environment are in no form of the plan."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from paddock.plan.diff.compare import compare
from paddock.plan.document.builder import build_document
from paddock.plan.document.model import PlanDocument
from paddock.plan.engine.values import SECRET, redact
from paddock.plan.output import pull_request
from paddock.plan.plan import build_plan
from tests.support import documents, fleets

VALUE = "hunter2-of-the-build-farm"
VISIBLE = "plain-value-of-no-secret"


def plan(container: str, secret: str) -> PlanDocument:
    data = fleets.fleet_data(
        runners={
            "gpu": {
                "pool": "t4",
                "container": container,
                "environment": {"HF_TOKEN": secret, "WANDB_API_KEY": f"two\n {secret}: lines'\"", "HF_HOME": VISIBLE},
            }
        }
    )
    return build_document(build_plan(fleets.stack(data), date(2026, 8, 1)))


@pytest.mark.parametrize("container", ["none", "dind", "kubernetes-novolume"])
def test_no_form_of_a_plan_has_credentials_of_an_environment(container: str) -> None:
    document = plan(container, VALUE)
    changed = compare(plan(container, f"{VALUE}-before"), document)
    forms = documents.forms(document, changed) | {"comment": pull_request.markdown(changed, document)}
    assert [form for form, text in forms.items() if VALUE in text] == []
    assert VISIBLE in forms["json"]
    assert "HF_TOKEN" in forms["json"]
    assert "PAD031" in forms["json"]


@pytest.mark.parametrize(("value", "shown"), [
    ({"name": "HF_TOKEN", "value": "x"}, {"name": "HF_TOKEN", "value": SECRET}),
    ({"name": "PGPASSWORD", "value": "x"}, {"name": "PGPASSWORD", "value": SECRET}),
    ({"name": "HTTPS_PROXY", "value": "http://ci:x@proxy:3128"}, {"name": "HTTPS_PROXY", "value": SECRET}),
    ({"name": "PROXY", "value": "http://proxy:3128/@x"}, {"name": "PROXY", "value": "http://proxy:3128/@x"}),
    ({"name": "HOME", "value": "x"}, {"name": "HOME", "value": "x"}),
    ('{"env": [{"name": "DB_PASSWORD", "value": "x"}]}', f"env:\n- name: DB_PASSWORD\n  value: {SECRET}\n"),
    ("name: DB_PASSWORD\n- {", SECRET),
    ("name: HOME\n- {", "name: HOME\n- {"),
])  # fmt: skip
def test_a_credential_is_hidden_in_objects_and_in_yaml(value: Any, shown: Any) -> None:
    assert redact(value) == shown
