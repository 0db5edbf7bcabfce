"""A plan's shortcuts through Pulumi's SDK lead to the same graph as the SDK's own way."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from paddock.plan.engine import recorder
from paddock.plan.engine.program import plan_graph
from tests.support import fleets


@pytest.mark.parametrize("preview", [False, True])
@pytest.mark.parametrize("stack", fleets.EXAMPLES)
def test_shortcuts_change_no_graph(stack: str, preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    short = plan_graph(fleets.example(stack), preview=preview)
    monkeypatch.setattr(recorder, "shortcuts", nullcontext)
    assert plan_graph(fleets.example(stack), preview=preview) == short
