"""The plan by its door: a stack file in a folder, and the task as a user calls it."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.tasks import program
from tests.support import fleets

Planned = Callable[..., tuple[int, str, str]]


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Planned]:
    """Plan a fleet of the stack `case` from its file; return exit code, output and errors."""
    (tmp_path / "Pulumi.yaml").write_text((fleets.ROOT / "Pulumi.yaml").read_text())
    for folder in ("paddock", "infra", "ami", "runners"):
        (tmp_path / folder).symlink_to(fleets.ROOT / folder)
    monkeypatch.setenv("PADDOCK_ROOT", str(tmp_path))
    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))

    def call(fleet: dict[str, Any], *flags: str, **config: Any) -> tuple[int, str, str]:
        values = {"aws:region": "us-west-2", "paddock:fleet": fleet, **config}
        (tmp_path / "Pulumi.case.yaml").write_text(yaml.safe_dump({"config": values}, sort_keys=False))
        code = program.main(["inv", "plan", "--stack", "case", *flags])
        return code, *capsys.readouterr()

    yield call
    gc.enable()  # a plan switches it off for its own short process


def document(answer: tuple[int, str, str]) -> dict[str, Any]:
    """Return the JSON document of a plan that was printed."""
    data: dict[str, Any] = json.loads(answer[1])
    return data
