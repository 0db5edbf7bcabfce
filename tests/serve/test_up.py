"""Flags of `serve.up`: who may ask, and how much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paddock.serve.admission.limits import MOST_TOKENS
from paddock.serve.agents.home import Home, http_url
from paddock.serve.agents.ray_process import start_head
from paddock.serve.agents.this_machine import AgentReport
from paddock.serve.commands.up import Up
from paddock.serve.errors import ServeInputError
from paddock.tasks.program import main
from tests.support.serving import free_port


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--http-host 0.0.0.0", "--http-host 0.0.0.0: other machines reach it, and there are no API keys"),
        ("--http-host 192.0.2.7", "--http-host 192.0.2.7: other machines reach it"),
        ("--http-host box", "--http-host: 'box' is not an IP address"),
        ("--max-tokens 0", "--max-tokens is 0"),
    ],
)
def test_flags_that_open_too_much_or_are_out_of_bounds_are_refused(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PADDOCK_SERVE_KEYS", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert main(["inv", "serve.up", *words.split()]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_with_keys_other_machines_may_ask() -> None:
    Up(http_host="0.0.0.0").check_host({"sum"})
    Up(http_host="::1").check_host(set())


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000/v1"),
        ("0.0.0.0", "http://192.0.2.7:8000/v1"),
        ("::", "http://192.0.2.7:8000/v1"),
        ("2001:db8::1", "http://[2001:db8::1]:8000/v1"),
    ],
)
def test_the_address_of_the_interface_can_be_asked(host: str, url: str) -> None:
    assert http_url(host, 8000, "192.0.2.7") == url


@pytest.mark.parametrize(("flags", "tokens"), [({}, MOST_TOKENS), ({"max_tokens": 64}, 64)])
def test_answers_have_the_operators_limit(flags: dict[str, Any], tokens: int) -> None:
    assert Up(**flags).limits().tokens == tokens


def test_a_port_that_the_dashboard_cannot_have_is_refused(tmp_path: Path) -> None:
    for port in (0, 70000):
        with pytest.raises(ServeInputError, match=f"--dashboard {port} cannot be used"):
            start_head(
                Home(tmp_path), port=free_port(), http_port=free_port(), report=AgentReport("cpu"), dashboard=port
            )
