"""The gateway as a program before servers that others start: its configuration, and its end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import need

need("prometheus_client", "starlette", "uvicorn")

from paddock.serve.errors import ServeInputError
from paddock.serve.gateway.app import Gateway
from paddock.serve.gateway.program import gateway, read
from tests.support.gateway import HI, Door
from tests.support.openai_server import stand_in
from tests.support.waiting import until

KEY = "a-key-of-enough-letters"
MODEL = "models: [{id: m, url: 'http://127.0.0.1:9'}]"


@contextmanager
def program(folder: Path, url: str) -> Iterator[tuple[Door, subprocess.Popen[str]]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "keys").write_text(KEY)
    config = {"listen": f"127.0.0.1:{port}", "keysFile": str(folder / "keys"), "models": [{"id": "tiny", "url": url}]}
    (folder / "config.json").write_text(json.dumps(config))
    command = [sys.executable, "-m", "paddock.serve.gateway", str(folder / "config.json")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    made = Door(Gateway(lambda: None), [], port, key=KEY)  # type: ignore[arg-type,return-value]

    def up() -> bool:
        with suppress(OSError):
            return bool(made.ask("GET", "/health").json()["models"])
        assert process.poll() is None, process.communicate()[1]
        return False

    try:
        until(up)
        yield made, process
    finally:
        process.kill()
        process.communicate()


def test_it_serves_what_answers_and_lets_open_answers_end(tmp_path: Path) -> None:
    body: dict[str, Any] = {"model": "tiny", "messages": HI}
    with stand_in() as server, program(tmp_path, server.url) as (made, process), ThreadPoolExecutor(1) as pool:
        assert made.post(body).status == 200
        assert made.post(body, Authorization="").status == 401
        server.gate = threading.Event()
        last = pool.submit(made.post, body)
        until(lambda: server.running == 1)
        process.send_signal(signal.SIGTERM)
        until(lambda: _closed(made.port))
        server.gate.set()
        assert last.result().status == 200
        assert process.wait(20) in (0, -signal.SIGTERM)


def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with program(tmp_path, "http://127.0.0.1:9") as (made, _):
        answer = made.post({"model": "tiny", "messages": HI})
    assert (answer.status, answer.code) == (503, "model_not_ready")
    assert "tiny is unreachable: cannot connect to 127.0.0.1:9" in answer.text


def _closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return True
    return False


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "keysFile is missing"),
        ("[", "expected: a configuration"),
        (MODEL, "keysFile is missing"),
        (f"keysFile: none\n{MODEL}", "none: cannot be read"),
        (f"keysFile: keys\nmodel: []\n{MODEL}", "did you mean"),
        (f"keysFile: keys\nlimits: {{queue: -1}}\n{MODEL}", "limits.queue"),
        (f"keysFile: keys\nlisten: here\n{MODEL}", "listen: here is not an address with a port"),
        ("keysFile: keys\nmodels: []", "models: it is empty"),
        ("keysFile: keys\nmodels: [{id: m, url: 'ftp://x'}]", "models[0].url: 'ftp://x' is"),
        (
            "keysFile: keys\nmodels: [{id: m, url: 'http://x'}, {id: m, url: 'http://x'}]",
            "models[1].id: m is there twice",
        ),
        ("keysFile: keys\nmodels: [{id: m, url: 'http://x', mode: agressive}]", 'did you mean "aggressive"?'),
        ("keysFile: keys\nmodels: [{id: m, url: 'http://x', keyFile: none}]", "none: the API key cannot be read"),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("keys").write_text(KEY)
    Path("config.yaml").write_text(text)
    with pytest.raises(ServeInputError) as error:
        gateway(read(Path("config.yaml")), "config.yaml")
    assert words in str(error.value)
