"""What tests of serving share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from paddock.serve.deployment.scheduler import Scheduler


@pytest.fixture(autouse=True)
def schedulers_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close each scheduler with its test: its threads would go on asking its endpoints and Ray."""
    made: list[Scheduler] = []
    init = Scheduler.__init__

    def noted(self: Scheduler, *args: Any) -> None:
        made.append(self)
        init(self, *args)

    monkeypatch.setattr(Scheduler, "__init__", noted)
    yield
    for scheduler in made:
        scheduler.close()


@pytest.fixture(autouse=True)
def nothing_is_noticed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a gateway wait only a moment for what tests say of an instance beforehand."""
    monkeypatch.setattr("paddock.serve.gateway.passing._NOTICED_S", 0.2)
