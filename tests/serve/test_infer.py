"""`serve.infer` before a stand-in of the gateway's HTTP."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.process import start_time
from paddock.ray_labels import HEAD
from paddock.serve.agents.home import Home, Member
from paddock.tasks.program import main
from tests.support.http_server import Handler, serving

KEY = "a-key-of-enough-letters"


class _Gateway(Handler):
    def do_POST(self) -> None:
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self.send(401, {"error": {"message": "the API key is missing or wrong"}})
            return
        rows = [{"choices": [{"text": text, "finish_reason": "length" if text == "b" else None}]} for text in "ab"]
        last = {"choices": [], "usage": {"completion_tokens": 2}}
        self.send(200, "".join(f"data: {json.dumps(row)}\n\n" for row in [*rows, last]) + "data: [DONE]\n\n")


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PADDOCK_SERVE_KEYS", KEY)
    with serving(_Gateway) as url:
        started, port = start_time(os.getpid()) or "", int(url.rpartition(":")[2])
        Home.of().save(Member(HEAD, "127.0.0.1:6379", os.getpid(), started, "", port))
        yield


def test_an_answer_is_printed_as_it_comes(head: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inv", "serve.infer", "tiny", "x"]) == 0
    assert capsys.readouterr().out == "ab\n"


def test_prompt_and_key_go_to_no_proxy(head: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nothing answers
    assert main(["inv", "serve.infer", "tiny", "x", "--json"]) == 0


def test_a_refusal_is_said_in_the_gateways_words(
    head: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_SERVE_KEYS", KEY[::-1])
    assert main(["inv", "serve.infer", "tiny", "x"]) == 1
    assert "the API key is missing or wrong" in capsys.readouterr().err
