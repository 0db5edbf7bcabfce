"""A real Kubernetes control plane on loopback: etcd, API server, controller manager, scheduler, and kwok for the nodes.

Every process is recorded the moment it starts, so that `down`, the next `up`, or a Ctrl-C in between finds it.
"""

from __future__ import annotations

import errno
import http.client
import os
import random
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock.console.progress import Progress
from paddock.lab import processes
from paddock.lab.control_plane import certificates, programs, state
from paddock.lab.control_plane.flags import command_lines
from paddock.lab.control_plane.identity import kubeconfig
from paddock.lab.control_plane.state import State
from paddock.lab.errors import LabError, LabInputError
from paddock.process import Process, boot_id

_PORT_RANGE = (20_000, 32_000)
"""Connections get ports from 32768 on Linux, and one of them may take a port between its choice and its use."""
_PORTS_FREED_WITHIN = 5.0
"""Seconds to wait until the ports of the last run are free."""
PORTS = ("kube-apiserver", "etcd", "etcd-peer", "kube-controller-manager", "kube-scheduler", "kwok")
PROGRAMS = tuple(programs.PROGRAMS)
DEADLINE_SECONDS = 60.0
"""For one program to become ready. The slowest takes 3 s on two cores."""

_CLIENTS = {
    "kube-controller-manager": "system:kube-controller-manager",
    "kube-scheduler": "system:kube-scheduler",
    "kwok": "kwok",
}


@dataclass(frozen=True, slots=True)
class Lab:
    """State of a lab: its ports and processes."""

    folder: Path
    ports: Mapping[str, int]
    running: Mapping[str, Process]
    """Processes that the lab started and that still run."""
    ended: tuple[str, ...]
    """Names of processes that ended without having been stopped."""
    exists: bool = True
    """False where the folder holds no lab."""

    @property
    def up(self) -> bool:
        return all(name in self.running for name in PROGRAMS)

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    @property
    def kubeconfig(self) -> Path:
        """Return the path of the user's kubeconfig, that of a cluster administrator."""
        return self.folder / "kubeconfig"


def status(folder: Path) -> Lab:
    """Return the lab of a folder and what of it runs. Raises LabError where the state cannot be read."""
    saved = state.read(folder)
    if saved is None:
        return Lab(folder, {}, {}, (), exists=False)
    running = {name: process for name, process in saved.processes.items() if process.alive}
    return Lab(folder, saved.ports, running, tuple(name for name in saved.processes if name not in running))


def up(folder: Path, *, first_port: int | None = None, progress: Progress | None = None) -> tuple[Lab, bool]:
    """Start the control plane; return it and whether it had to be started.

    Processes of a killed lab are ended first; its objects are kept unless the machine was rebooted since, because etcd
    does not sync to disk here. Raises LabInputError and LabError.
    """
    progress = progress or Progress()
    state.prepare(folder)
    with state.locked(folder):
        lab = status(folder)
        if lab.up:
            if first_port not in (None, lab.ports["kube-apiserver"]):
                raise LabInputError(
                    f"the lab in {folder} is up on port {lab.ports['kube-apiserver']}\n"
                    f"    fix: {state.inv('down', folder)} first"
                )
            return lab, False
        with progress.step("programs"):
            paths = programs.find()
        clean_up(lab, progress)
        ports = choose_ports(first_port, lab.ports)
        state.write(folder, State(ports, {}, boot_id()))
        try:
            _start(folder, paths, ports, progress)
        except BaseException:
            _stop(status(folder))
            state.write(folder, State(ports, {}, boot_id()))
            raise
        return status(folder), True


def down(folder: Path, *, keep: bool = False) -> tuple[str, ...]:
    """End everything that the lab started and return the names; `keep` keeps its objects for the next `up`."""
    if not (folder / "lab.json").exists():
        return ()
    with state.locked(folder):
        try:
            lab = status(folder)
        except LabError:  # its file tells nothing, but its processes do
            running = {str(process.pid): process for process in processes.marked(folder)}
            lab = Lab(folder, {}, running, (), exists=False)
        _stop(lab)
        if keep:
            state.write(folder, State(lab.ports, {}, boot_id()))
        else:
            state.remove(folder)
    return tuple(lab.running)


def spawn(folder: Path, name: str, command: Sequence[str | Path], environment: Mapping[str, str]) -> Process:
    """Start one more program of the lab, which `down` ends with the rest. One of the same name is ended first."""
    with state.locked(folder):
        saved = state.read(folder)
        if saved is None:
            raise LabError(f"there is no lab in {folder}\n    fix: {state.inv('up', folder)}")
        if name in saved.processes:
            processes.stop([saved.processes[name]])

        own = {**environment, processes.MARK: str(folder)}
        return processes.start(command, folder / "logs" / f"{name}.log", _recorder(folder, name), own)


def choose_ports(first: int | None, before: Mapping[str, int] | None = None) -> dict[str, int]:
    """Choose six ports of loopback: from `first` on, or those of the last run, or any. Raises LabInputError."""
    if first is not None:
        if not 1 <= first <= 65_535 - len(PORTS):
            raise LabInputError(f"{first} cannot be the first of {len(PORTS)} ports\n    fix: one from 1024 to 65529")
        ports = {name: first + offset for offset, name in enumerate(PORTS)}
        if refused := {port: why for port in ports.values() if (why := _refused(port))}:
            reasons = ", ".join(f"{port} ({why})" for port, why in refused.items())
            raise LabInputError(
                f"the lab cannot have ports {first} to {first + len(PORTS) - 1} of 127.0.0.1: {reasons}\n"
                "    fix: another --port, or none, and the lab takes ports that are free"
            )
        return ports
    # The ports of the last run if they are free: copies of the kubeconfig, also in a stack's state, stay valid.
    # A killed server's connections may hold its port for a moment.
    until = time.monotonic() + _PORTS_FREED_WITHIN
    while before and set(before) == set(PORTS):
        if not any(_refused(port) for port in before.values()):
            return dict(before)
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    return dict(zip(PORTS, free_ports(len(PORTS)), strict=True))


def free_ports(count: int) -> list[int]:
    """Return free ports of loopback, below the range that systems give to connections. Raises LabError."""
    ports = []
    for port in random.sample(range(*_PORT_RANGE), 1000):
        if not _refused(port):
            ports.append(port)
            if len(ports) == count:
                return ports
    raise LabError(f"there are no {count} free ports on 127.0.0.1 from {_PORT_RANGE[0]} to {_PORT_RANGE[1]}")


def _start(folder: Path, paths: Mapping[str, Path], ports: Mapping[str, int], progress: Progress) -> None:
    for name in ("logs", "kubeconfigs", "run"):
        (folder / name).mkdir(mode=0o700, exist_ok=True)
    with progress.step("certificates"):
        identity = certificates.create(folder / "pki")
        server = f"https://127.0.0.1:{ports['kube-apiserver']}"
        for name, user in _CLIENTS.items():
            state.write_private(folder / "kubeconfigs" / name, kubeconfig(identity, server, user))
    trust = ssl.create_default_context(cafile=identity.authority)
    trust.load_cert_chain(identity.certificate, identity.key)
    lines = command_lines(folder, paths, ports, identity)

    def start(name: str) -> None:
        # Without the user's HOME, where programs keep caches, and without proxies, which would be used for loopback.
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder / "run")}
        environment[processes.MARK] = str(folder)
        processes.start(lines[name], folder / "logs" / f"{name}.log", _recorder(folder, name), environment)

    def ready(name: str, path: str, token: str = "") -> None:
        def answers() -> bool:
            return _answers(ports[name], path, trust, token)

        wait_for(name, answers, folder, lambda: status(folder))

    with progress.step("etcd"):
        start("etcd")
        start("kube-apiserver")  # it waits for etcd by itself, and its own start takes longer
        ready("etcd", "/health")
    with progress.step("kube-apiserver"):
        ready("kube-apiserver", "/readyz")
    with progress.step("kube-controller-manager, kube-scheduler, kwok"):
        for name in _CLIENTS:
            start(name)
        for name in _CLIENTS:
            ready(name, "/healthz")
    with progress.step("first service account"):
        account, token = "/api/v1/namespaces/default/serviceaccounts/default", identity.token("admin")
        ready("kube-apiserver", account, token)
    # Last: a program that waits for this file takes the lab for ready.
    state.write_private(folder / "kubeconfig", kubeconfig(identity, server, "admin"))


def _recorder(folder: Path, name: str) -> Callable[[Process], None]:
    def record(process: Process) -> None:
        saved = state.read(folder) or State()
        state.write(folder, saved.with_process(name, process))

    return record


def wait_for(name: str, ready: Callable[[], bool], folder: Path, read_status: Callable[[], Lab]) -> None:
    """Poll until `ready`. Raises LabError with the end of the log when the process ends or takes too long."""
    log = folder / "logs" / f"{name}.log"
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not ready():
        late = time.monotonic() > deadline
        if late or name not in read_status().running:
            problem = f"was not ready after {DEADLINE_SECONDS:.0f} s" if late else "ended while it started"
            raise LabError(f"{name} {problem}. The end of {log}:\n{processes.tail(log)}{_hint(folder)}")
        time.sleep(0.05)


def clean_up(lab: Lab, progress: Progress) -> None:
    """End what runs of a lab that was not ended by `down`."""
    saved = state.read(lab.folder)
    if saved is None:
        return
    _stop(lab)
    if lab.running or lab.ended:
        summary = f"{len(lab.ended)} of its {len(lab.ended) + len(lab.running)} processes are gone"
        progress.say(f"           cleaning up after a lab that was not ended by lab.down: {summary}")
    if saved.boot != boot_id() and (lab.folder / "etcd").exists():
        progress.say("           the machine was restarted since: its objects are not kept")
        shutil.rmtree(lab.folder / "etcd")
    (lab.folder / "kubeconfig").unlink(missing_ok=True)


def _stop(lab: Lab) -> None:
    """Stop clients before the API server, and that before etcd, so that none waits for a server that has ended."""
    last = [lab.running[name] for name in ("kube-apiserver", "etcd") if name in lab.running]
    processes.stop(process for process in lab.running.values() if process not in last)
    # Their children, and a run of the engine whose command was killed, which may start more until it has ended.
    while remaining := [process for process in processes.marked(lab.folder) if process not in last]:
        processes.stop(remaining)
    for process in last:
        processes.stop([process])


def _answers(port: int, path: str, trust: ssl.SSLContext, token: str) -> bool:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=trust)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _refused(port: int) -> str:
    """Return why no program can listen on this port of loopback; empty where it can."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an ended lab's connections linger
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            return "in use" if error.errno == errno.EADDRINUSE else (error.strerror or "refused").lower()
    return ""


def _hint(folder: Path) -> str:
    free = shutil.disk_usage(folder).free
    return f"\n    fix: free space on the disk of {folder}: {free >> 20} MiB are left" if free < 256 << 20 else ""
