"""Privileged runners: jobs that can become root on their node are named in every form of the plan."""

from __future__ import annotations

import json

import pytest

from tests.support import documents


@pytest.mark.parametrize(("name", "privileged"), [("docker", True), ("job-pods", False)])
def test_every_form_names_a_privileged_runner_and_no_other(name: str, privileged: bool) -> None:
    document = documents.of(name)
    data, *shown = documents.forms(document).values()
    assert [runner["privileged"] for runner in json.loads(data)["runners"]] == [privileged]
    assert ["privileged: root on its node" in form for form in shown] == [privileged] * 3
