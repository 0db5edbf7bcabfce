"""`serve.infer` before a stand-in of the gateway's HTTP."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from paddock.process import start_time
from paddock.ray_labels import HEAD
from paddock.serve.agents.home import Home, Member
from paddock.serve.cli.infer import infer
from paddock.serve.errors import ServeError

KEY = "a-key-of-enough-letters"


class _Gateway(BaseHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_POST(self) -> None:
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self._answer(401, json.dumps({"error": {"message": "the API key is missing or wrong"}}))
            return
        rows = [{"choices": [{"text": text}], "usage": None} for text in ("a", "b")]
        last = {"choices": [], "usage": {"completion_tokens": 2}}
        self._answer(200, "".join(f"data: {json.dumps(row)}\n\n" for row in [*rows, last]) + "data: [DONE]\n\n")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PADDOCK_SERVE_KEYS", KEY)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Gateway) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        started = start_time(os.getpid()) or ""
        Home.of().save(Member(HEAD, "127.0.0.1:6379", os.getpid(), started, "", server.server_address[1]))
        yield
        server.shutdown()
        thread.join()


def test_an_answer_is_printed_as_it_comes(head: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert infer({"id": "tiny", "prompt": "x"}) == 0
    assert capsys.readouterr().out == "ab\n"


def test_prompt_and_key_go_to_no_proxy(head: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nothing answers
    assert infer({"id": "tiny", "prompt": "x", "json": "-"}) == 0


def test_a_refusal_is_said_in_the_gateways_words(head: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_SERVE_KEYS", KEY[::-1])
    with pytest.raises(ServeError, match="the API key is missing or wrong"):
        infer({"id": "tiny", "prompt": "x"})
