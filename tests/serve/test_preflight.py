"""What is said before a machine joins a head: no answer, no head, another version. And the agent that joins again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.process import pids, read_stat
from paddock.serve.agents import keep
from paddock.serve.agents.home import Home
from paddock.serve.agents.preflight import check_head, mismatch
from paddock.serve.agents.ray_process import environment, start_head, stop
from paddock.serve.agents.this_machine import AgentReport
from paddock.serve.errors import ServeError, ServeInputError
from tests.support.packages import need
from tests.support.serving import free_port
from tests.support.waiting import until

KEEP = (
    f"import sys; from {keep.__name__.rpartition('.')[0]} import keep; keep._PAUSE_S = 0.05;"
    " sys.exit(keep.Keeper(sys.argv[1], int(sys.argv[2]), sys.argv[3:]).run())"
)
"""The keeper, which looks at its head more often."""
FACTS = {"ray": "2.60.0", "own_ray": "2.60.0", "python": "3.11.7", "own_python": "3.11.7"}


def listener() -> socket.socket:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    return server


def test_a_closed_port_and_an_unknown_host_are_said_at_once() -> None:
    with listener() as server:
        port = server.getsockname()[1]
    for host in ("127.0.0.1", "no-such-host.invalid"):
        with pytest.raises(ServeInputError, match=f"{host}:{port} cannot be reached"):
            check_head(host, port, os.environ)


def test_a_port_of_another_program_is_no_head() -> None:
    need("ray")
    with listener() as server, pytest.raises(ServeInputError, match="not as a Ray head"):
        check_head("127.0.0.1", server.getsockname()[1], os.environ, seconds=3)


@pytest.mark.parametrize(
    ("key", "version", "words"),
    [
        ("ray", "2.44.1", "runs Ray 2.44.1, and this machine 2.60.0"),
        ("python", "3.12.1", "runs Python 3.12.1, and this machine 3.11.7"),
    ],
)
def test_another_version_than_the_heads_is_named_with_the_fix(key: str, version: str, words: str) -> None:
    assert mismatch(FACTS) == ""
    text = mismatch({**FACTS, key: version})
    assert words in text
    assert f"{version} here" in text


def test_a_port_of_rays_workers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServeInputError, match="10002 to 19999"):
        start_head(Home(tmp_path), port=16379, http_port=8000, report=AgentReport("cpu"))


def test_an_agent_joins_again_after_its_head_came_back(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    program = f"open({str(starts)!r}, 'a').write('x'); print({keep.STARTED!r})"
    with listener() as server:
        command = [sys.executable, "-c", KEEP, "127.0.0.1", str(server.getsockname()[1])]
        keeper = subprocess.Popen([*command, sys.executable, "-c", program], stdout=subprocess.DEVNULL)
        try:
            until(lambda: starts.exists() and len(starts.read_text()) > 2)
        finally:
            keeper.send_signal(signal.SIGTERM)
            assert keeper.wait(60) == 0


def test_an_agent_ends_its_ray_once_the_head_refuses(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    program = (
        f"import time; open({str(starts)!r}, 'a').write('x'); print({keep.STARTED!r}, flush=True); time.sleep(600)"
    )
    server = listener()
    port = server.getsockname()[1]
    command = [sys.executable, "-c", KEEP, "127.0.0.1", str(port), sys.executable, "-c", program]
    keeper = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until(starts.exists)
        server.close()  # the head is killed
        until(lambda: not keep_children(keeper.pid))
        with socket.create_server(("127.0.0.1", port)):
            until(lambda: starts.read_text() == "xx")
    finally:
        server.close()
        keeper.send_signal(signal.SIGTERM)
        assert keeper.wait(60) == 0


def keep_children(pid: int) -> list[int]:
    return [child for child in pids() if (stat := read_stat(child)) and stat.parent == pid and not stat.ended]


def test_a_first_start_that_fails_is_not_tried_again(tmp_path: Path) -> None:
    command = [sys.executable, "-m", keep.__name__, "127.0.0.1", "1", sys.executable, "-c", "raise SystemExit(3)"]
    assert subprocess.run(command, check=False, timeout=60).returncode == 3


def test_ray_joins_a_head_on_a_mac(tmp_path: Path) -> None:
    """Ray's own constants decide, read as on macOS."""
    need("ray")
    program = (
        "import importlib, sys; import ray; sys.platform = 'darwin'\n"
        "print(importlib.reload(ray._private.ray_constants).ENABLE_RAY_CLUSTER)"
    )
    for environ, joins in ((os.environ, "False"), (environment("t" * 64), "True")):
        done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
        assert done.stdout.split()[-1] == joins


def test_ray_that_is_ended_waits_for_no_actors() -> None:
    """Ray's own constant decides: a `serve.down` would take half a minute a machine."""
    need("ray")
    program = "import ray; print(ray._private.ray_constants.RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S)"
    command, environ = [sys.executable, "-c", program], environment("t" * 64)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert float(done.stdout.split()[-1]) == 0


def test_a_head_whose_start_is_too_slow_for_ray_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for Ray's program fails twice as Ray does on a busy machine."""
    program = tmp_path / "bin/ray"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
echo x >> {tmp_path}/starts
[ $(wc -l < {tmp_path}/starts) -gt 2 ] || {{ echo 'Exception: The current node timed out during startup.'; exit 1; }}
echo '{keep.STARTED}'
exec sleep 600
"""
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    home = Home(tmp_path / "state")
    ports = {name: free_port() for name in ("port", "http_port")}
    head = start_head(home, report=AgentReport("cpu"), **ports)
    assert home.member("head") == head
    stop(home, head)
    assert (tmp_path / "starts").read_text() == "x\n" * 3

    program.write_text("#!/bin/sh\necho 'Exception: no disk'; exit 1\n")
    with pytest.raises(ServeError, match=r"Ray did not start: Exception: no disk\n    fix: .*head\.log has all"):
        start_head(home, report=AgentReport("cpu"), **ports)
    assert home.members() == home.ended() == ()
