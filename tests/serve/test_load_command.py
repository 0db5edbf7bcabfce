"""`serve.load --wait`: how it ends, by what the scheduler says of the model meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddock import cli
from paddock.serve.cli.models import waited
from paddock.serve.cli.parameters import Load
from paddock.serve.deployment.row import InstanceRow, State
from paddock.serve.errors import ServeError, ServeInputError


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.serve.cli.models._LOOK_S", 0.01)


def row(state: State) -> dict[str, Any]:
    return InstanceRow("tiny", "tiny", state, None, None, None, None, None, 1, 0.0).document()


def scheduler(*states: State | None) -> Callable[[str], Any]:
    """Return a scheduler that lists the model in these states one after the other; None is not at all."""
    following = itertools.chain(states, itertools.repeat(states[-1]))

    def models(method: str) -> list[dict[str, Any]]:
        assert method == "models"
        state = next(following)
        return [] if state is None else [row(state)]

    return models


@pytest.mark.parametrize("end", ["serving", "failed"])
def test_a_load_waits_until_the_model_serves_or_has_failed(end: State) -> None:
    assert waited(scheduler("pending", "lost", "loading", end), row("loading"), 60)["state"] == end


@pytest.mark.parametrize("state", [None, "unloading"])
def test_a_model_that_is_unloaded_meanwhile_is_said(state: State | None) -> None:
    with pytest.raises(ServeError, match="tiny has been unloaded meanwhile"):
        waited(scheduler("loading", state), row("loading"), 60)


def test_a_load_that_takes_too_long_does_not_serve() -> None:
    assert waited(scheduler("loading"), row("loading"), 0.1)["state"] == "loading"


def test_a_deadline_of_no_time_is_refused() -> None:
    with pytest.raises(ServeInputError, match="--deadline 0 makes no sense"):
        Load.from_flags({"model_name": "tiny", "deadline": "0"}).check()


def test_an_endpoint_is_taken_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Defaults of the flags that place a model are no flags that were given."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert cli.main(["inv", "serve.load", "m", "--url", "http://127.0.0.1:9"]) == 1
    assert capsys.readouterr().err == "no head runs here\n    fix: serve.up starts one\n"
    assert cli.main(["inv", "serve.load", "m", "--url", "http://127.0.0.1:9", "--deadline", "5"]) == 2
    assert capsys.readouterr().err.startswith("--deadline places a model, and --url places none")
