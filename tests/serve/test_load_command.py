"""`serve.load --wait`: how it ends, by what the scheduler says of the model meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddock.console.progress import Progress
from paddock.serve.commands import load
from paddock.serve.deployment.row import InstanceRow, State
from paddock.serve.errors import ServeError
from paddock.tasks.program import main


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.serve.commands.load._LOOK_S", 0.01)


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
    assert load.waited(scheduler("pending", "lost", "loading", end), row("loading"), 60, Progress())["state"] == end


@pytest.mark.parametrize("state", [None, "unloading"])
def test_a_model_that_is_unloaded_meanwhile_is_said(state: State | None) -> None:
    with pytest.raises(ServeError, match="tiny has been unloaded meanwhile"):
        load.waited(scheduler("loading", state), row("loading"), 60, Progress())


def test_a_load_that_takes_too_long_does_not_serve() -> None:
    assert load.waited(scheduler("loading"), row("loading"), 0.1, Progress())["state"] == "loading"


def test_a_deadline_of_no_time_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inv", "serve.load", "tiny", "--deadline", "0"]) == 2
    assert "--deadline is 0" in capsys.readouterr().err


def test_an_endpoint_is_taken_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Defaults of the flags that place a model are no flags that were given."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["inv", "serve.load", "m", "--url", "http://127.0.0.1:9"]) == 1
    assert capsys.readouterr().err == "no head runs here\n    fix: serve.up starts one\n"
    assert main(["inv", "serve.load", "m", "--url", "http://127.0.0.1:9", "--deadline", "5"]) == 2
    assert capsys.readouterr().err.startswith("--deadline places a model, and --url places none")
