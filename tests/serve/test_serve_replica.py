"""Replica on the real llama.cpp (xllamacpp) with a small random model: it serves, ends, hangs and starts again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from paddock.models import sources
from paddock.process import session_members
from paddock.serve.placement.device import Backend, Device
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import ModelPlacement
from paddock.serve.placement.request import Policy, Request
from paddock.serve.replica import replica as module
from paddock.serve.replica.replica import Replica
from paddock.serve.replica.status import Status, Task
from tests.conftest import ROOT
from tests.support.packages import need
from tests.support.small_gguf import small_gguf
from tests.support.waiting import until

need("xllamacpp", "numpy", "psutil")

SECONDS = 60
Start = Callable[..., Replica]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gguf(tmp_path_factory.mktemp("model"))


def task(
    path: Path, listen: str = "", policy: Policy | None = None, seconds: float = SECONDS, backend: Backend = "cpu"
) -> Task:
    plan = place(Request(sources.model(str(path)), None, 256, 2), [Device("head", backend, 0, 10**6, 10**6)], policy)
    assert isinstance(plan, ModelPlacement)
    return Task("tiny-2", str(path), plan, seconds, listen)


@pytest.fixture
def start(gguf: Path) -> Iterator[Start]:
    """Return what starts a replica, which ends with the test."""
    replicas: list[Replica] = []

    def start(path: Path = gguf, **more: object) -> Replica:
        replicas.append(Replica(task(path, **more)))  # type: ignore[arg-type]
        return replicas[-1]

    yield start
    for replica in replicas:
        replica.end()


def serving(replica: Replica, starts: int = 1) -> Status:
    until(lambda: (s := replica.status()).state == "failed" or (s.state == "serving" and s.starts == starts), SECONDS)
    assert replica.status().state == "serving", replica.status()
    return replica.status()


def ask(status: Status, key: str) -> int:
    body = json.dumps({"model": "tiny-2", "prompt": "a", "max_tokens": 2, "temperature": 0}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"http://127.0.0.1:{status.port}/v1/completions", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as response:
            assert json.load(response)["model"] == "tiny-2"
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


def server_of(status: Status) -> int:
    """Return the process of the engine, a child of its guard with a session of its own."""
    children = Path(f"/proc/{status.pid}/task/{status.pid}/children").read_text().split()
    return int(children[0])


def llama_server(folder: Path, first: str = "") -> Path:
    """Write a program with llama-server's arguments around xllamacpp, which does something first."""
    program = folder / "llama-server"
    child = ROOT / "paddock/serve/engines/xllama.py"
    program.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "version: 7000 (abc)" >&2 && exit\n'
        f'{first}\nexec {sys.executable} {child} "$@"\n'
    )
    program.chmod(0o755)
    return program


def test_a_replica_serves_those_who_know_its_key(start: Start) -> None:
    status = serving(start())
    assert (ask(status, status.key), ask(status, "wrong")) == (200, 401)
    assert (status.engine, status.lease) == ("llama.cpp", None)
    assert status.key.encode() not in Path(f"/proc/{server_of(status)}/cmdline").read_bytes()


def test_a_server_that_is_killed_starts_again_with_the_reason(start: Start) -> None:
    replica = start()
    first = serving(replica)
    os.kill(server_of(first), signal.SIGKILL)
    until(lambda: "it starts again in 1 s" in replica.status().reason, SECONDS)
    assert "has ended: SIGKILL has ended it, as the kernel does when memory runs out; " in replica.status().reason
    second = serving(replica, starts=2)
    assert second.key != first.key
    assert ask(second, second.key) == 200


def test_a_server_that_hangs_is_started_again(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ASK_S", 0.05)
    monkeypatch.setattr(module, "_ANSWER_S", 0.1)
    replica = start()
    os.kill(server_of(serving(replica)), signal.SIGSTOP)
    until(lambda: replica.status().state == "loading", SECONDS)
    assert "llama.cpp does not answer any more" in replica.status().reason
    monkeypatch.setattr(module, "_ANSWER_S", 10.0)
    serving(replica, starts=2)


def test_three_ends_in_a_row_are_a_failure(start: Start) -> None:
    replica = start()
    for starts in (1, 2, 3):
        os.kill(server_of(serving(replica, starts)), signal.SIGKILL)
        until(lambda: replica.status().state != "serving", SECONDS)
    until(lambda: replica.status().state == "failed", SECONDS)
    assert "(3 times in a row)" in replica.status().reason


def test_a_file_that_llama_cpp_does_not_know_fails_at_once(start: Start, gguf: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    good = task(gguf)
    damaged.write_bytes(gguf.read_bytes().replace(b"llama", b"lzamb"))
    replica = Replica(Task("x", str(damaged), good.plan, SECONDS))
    until(lambda: replica.status().state == "failed", SECONDS)
    assert "llama.cpp does not serve: " in replica.status().reason
    assert "lzamb" in replica.status().reason


def test_a_server_that_hangs_at_load_fails_at_its_deadline(start: Start, tmp_path: Path, gguf: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text('#!/bin/sh\n[ "$1" = --version ] && echo version: 1 && exit\nexec sleep 600\n')
    program.chmod(0o755)
    replica = start(gguf, policy=Policy(server=str(program)), seconds=0.3)
    until(lambda: replica.status().state == "failed", SECONDS)
    assert replica.status().reason == "llama.cpp does not serve within 0.3 s; fix: --deadline, where it needs longer"


def test_a_port_that_another_server_has_taken_is_left_to_it(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # it is healthy, and another model's
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"data": [{"id": "other"}]}')

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        ports, free = iter([other.server_port]), module._free_port
        monkeypatch.setattr(module, "_free_port", lambda: next(ports, 0) or free())
        status = serving(start())
        other.shutdown()
    assert status.port != other.server_port
    assert ask(status, status.key) == 200


def test_a_file_that_goes_or_changes_meanwhile_is_said(start: Start, gguf: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    shutil.copy(gguf, file)
    replica = start(file)
    first = serving(replica)
    os.utime(file, (1, 1))
    os.kill(server_of(first), signal.SIGKILL)
    assert f"{file} has changed since this was placed: load it again" in serving(replica, starts=2).notes
    file.unlink()
    os.kill(server_of(replica.status()), signal.SIGKILL)
    until(lambda: replica.status().state == "failed", SECONDS)
    assert replica.status().reason.startswith(f"{file} cannot be read (No such file or directory); fix: put it back")


def test_an_engine_that_is_unloaded_as_it_loads_ends(start: Start, gguf: Path) -> None:
    replica = start()
    until(lambda: replica.status().reason == "llama.cpp loads it", SECONDS)
    replica.end()
    assert (replica.status().state, replica.status().starts) == ("loading", 0)
    assert not replica._thread.is_alive()


def test_a_llama_server_by_its_path_serves(start: Start, tmp_path: Path, gguf: Path) -> None:
    status = serving(start(gguf, policy=Policy(server=str(llama_server(tmp_path)))))
    assert status.version == "7000 (abc)"


def test_a_build_that_sees_no_gpu_serves_no_gpus_model(start: Start, tmp_path: Path, gguf: Path) -> None:
    program = llama_server(tmp_path, "echo 'warning: no usable GPU found, --gpu-layers option will be ignored'")
    replica = start(gguf, policy=Policy(server=str(program)), backend="cuda")
    until(lambda: replica.status().state == "failed", SECONDS)
    assert "does not serve: it would compute on the CPU (no usable GPU found)" in replica.status().reason


def test_another_machine_reaches_it_through_the_agent_with_its_key_alone(start: Start) -> None:
    status = serving(start(listen="127.0.0.1"))
    host, port = status.through.split(":")

    def through(key: str, target: int) -> bytes:
        with socket.create_connection((host, int(port)), SECONDS) as way:
            way.sendall(
                f"CONNECT 127.0.0.1:{target} HTTP/1.1\r\nProxy-Authorization: Bearer {key}\r\n\r\n".encode()
                + b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            )
            return b"".join(iter(lambda: way.recv(4096), b""))

    answer = through(status.pass_key, status.port)
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200")
    assert through("wrong", status.port).startswith(b"HTTP/1.1 407")
    assert through(status.key, status.port).startswith(b"HTTP/1.1 407")
    assert through(status.pass_key, 22).startswith(b"HTTP/1.1 503")


def test_a_replica_that_is_killed_takes_its_server_along(gguf: Path) -> None:
    program = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path; from tests.serve.test_serve_replica import Replica, task, serving, server_of\n"
        "status = serving(Replica(task(Path(sys.argv[2])))); print(server_of(status), flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(ROOT), str(gguf)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as owner:
        assert owner.stdout
        server = int(owner.stdout.readline())
        assert Path(f"/proc/{server}").exists()
        owner.kill()
    until(lambda: not session_members(server), SECONDS)
