"""What tests with a model on the processor share."""

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


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Let torch compute on one thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
