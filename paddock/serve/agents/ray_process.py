"""Ray as a process of this machine: a head, or an agent that joins one. Ended by its pid, never by `ray stop`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from paddock.process import Process, end, pids_naming, session_members, spawn
from paddock.ray_labels import AGENT, BACKEND, HEAD
from paddock.serve.agents import keep
from paddock.serve.agents.home import Home, Member
from paddock.serve.agents.preflight import check_head
from paddock.serve.agents.this_machine import AgentReport
from paddock.serve.errors import ServeError, ServeInputError

_START_S = 180.0
_TRIES = 3
_SLOW = "timed out during startup"
"""Words of Ray where a node takes longer than 30 s."""
_STOP_S = 20.0
_OBJECT_STORE = 100 * 2**20
_RECONNECT_S = 20
"""Seconds after which the processes of an agent end that lost their head."""
_WORKER_PORTS = range(10002, 20000)
"""Ports that Ray gives to its workers."""


class _TooSlow(ServeError):
    """Ray ended because its own start took too long."""


def environment(
    token: str, report: AgentReport | None = None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables under which every Ray process runs: with a token, and telling nobody of it."""
    own = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_COLOR_PREFIX": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",  # without it `ray start --address` ends at once on a Mac
        "RAY_gcs_rpc_server_reconnect_timeout_s": str(_RECONNECT_S),
        # An agent is lost after three refused checks. By Ray's default they are five, and three seconds apart.
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
        # What other programs use of the memory is not a reason to end the scheduler, which Ray would do at 95 %.
        "RAY_memory_monitor_refresh_ms": "0",
        # On SIGTERM Ray would wait 30 s for actors to leave: the scheduler's and the gateway's never do.
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    }
    return {**environ, **own, **(report.environment() if report else {})}


def start_head(
    home: Home, *, port: int, http_port: int, report: AgentReport, http_host: str = "127.0.0.1", keys: bool = False,
    dashboard: int | None = None,
) -> Member:  # fmt: skip
    """Start the cluster's head and return it, ready for agents. Raises ServeError, also where one runs already.

    `dashboard` is the port of Ray's dashboard; without one it is not started.
    """
    sweep(home)
    if running := home.member(HEAD):
        raise ServeInputError(f"a head already runs here, at {running.address}\n    fix: serve.down ends it")
    if port in _WORKER_PORTS:
        raise ServeInputError(
            f"--port {port} is one of those that Ray gives to its workers"
            f"\n    expected: a port outside of {_WORKER_PORTS.start} to {_WORKER_PORTS.stop - 1}"
        )
    for flag, number in (("--port", port), ("--http-port", http_port), ("--dashboard", dashboard)):
        if number is not None:
            _free(flag, number)
    shown = ["--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}"] if dashboard is not None else []
    words = ["--head", f"--port={port}", f"--include-dashboard={str(bool(shown)).lower()}", *shown]
    address = f"{_own_address()}:{port}"
    return _start(home, HEAD, words, address, report, home.token(), http=(http_host, http_port, keys))


def join(home: Home, address: str, *, token: str, name: str, report: AgentReport) -> Member:
    """Join this machine to a head and return the agent. Raises ServeError, and ServeInputError where it cannot join."""
    if home.member(name):
        raise ServeInputError(f"an agent {name} already runs here\n    fix: serve.down ends it, or --name another")
    sweep(home)
    host, _, port = address.rpartition(":")
    check_head(host, int(port), environment(token), name)
    return _start(home, name, [f"--address={address}"], address, report, token)


def sweep(home: Home) -> None:
    """End what members left that were killed: a folder's name tells its processes from all others."""
    for member in home.ended():
        end(partial(pids_naming, member.folder))
        home.forget(member.name)
        shutil.rmtree(member.folder, ignore_errors=True)


def stop(home: Home, member: Member) -> None:
    """End a member with all of its processes. Raises ServeError for what even SIGKILL does not end."""
    end(lambda: [member.pid] if member.process.alive else [], ((signal.SIGTERM, _STOP_S),))
    if remaining := end(lambda: [*session_members(member.pid), *pids_naming(member.folder)]):
        raise ServeError(f"{member.name} cannot be ended: pids {', '.join(map(str, remaining))} stay")
    home.forget(member.name)
    shutil.rmtree(member.folder, ignore_errors=True)


def _start(
    home: Home, name: str, words: list[str], address: str, report: AgentReport, token: str, *,
    http: tuple[str, int, bool] = ("127.0.0.1", 0, False),
) -> Member:  # fmt: skip
    """Start Ray. On a busy machine it may take longer than its own limit of 30 s, and is then started again."""
    once = partial(_start_once, home, name, words, address, report, token, http)
    for _ in range(_TRIES - 1):
        with contextlib.suppress(_TooSlow):
            return once()
    return once()


def _start_once(
    home: Home, name: str, words: list[str], address: str, report: AgentReport, token: str, http: tuple[str, int, bool]
) -> Member:  # fmt: skip
    ray = Path(sys.executable).with_name("ray")
    if not ray.exists():
        raise ServeError(f"Ray is not installed with {sys.executable}\n    fix: install paddock[serve] there")
    folder = tempfile.mkdtemp(prefix="paddock-ray-", dir="/tmp")
    home.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = home.folder / f"{name}.log"
    command = [
        str(ray), "start", *words, "--block", "--disable-usage-stats", f"--num-gpus={report.gpus}",
        "--include-log-monitor=false",  # a process that sends logs to drivers, which ask for none
        f"--object-store-memory={_OBJECT_STORE}", f"--temp-dir={folder}",
        f"--labels={BACKEND}={report.backend},{AGENT}={name}",
        f"--resources={json.dumps({f'agent:{name}': 1000})}",
    ]  # fmt: skip
    if name != HEAD:
        host, _, port = address.rpartition(":")
        command = [sys.executable, "-m", keep.__name__, host, port, *command]
    members: list[Member] = []

    def record(process: Process) -> None:
        host, port, keys = http
        members.append(Member(name, address, process.pid, process.started, folder, port, host, keys))
        home.save(members[0])

    try:
        spawn(command, log, record, environment(token, report))
        _wait(members[0], log)
    except BaseException:  # also an interrupt: nothing of it stays
        for member in members:
            stop(home, member)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return members[0]


def _wait(member: Member, log: Path) -> None:
    """Wait until Ray says that it runs. Raises ServeError with its last line where it does not."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and member.process.alive:
        if keep.STARTED in log.read_text(errors="replace"):
            return
        time.sleep(0.1)
    text = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    why = text[-1] if text else "it printed nothing"
    limit = f" within {_START_S:g} s" if member.process.alive else ""
    kind = _TooSlow if _SLOW in why else ServeError
    raise kind(f"Ray did not start{limit}: {why}\n    fix: {log} has all that it printed")


def _free(flag: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            if port < 1:
                raise OverflowError("it is not between 1 and 65535")
            probe.bind(("", port))
        except (OSError, OverflowError) as error:
            raise ServeInputError(
                f"{flag} {port} cannot be used: {error}\n    expected: a free port, 1 to 65535"
                f"\n    fix: {flag} with another one, or end what listens there"
            ) from None


def _own_address() -> str:
    """Return the address under which Ray will be reached: it replaces loopback by it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
