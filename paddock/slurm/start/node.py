"""Node in the foreground: its start in phases, its watch, and its end in order."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

from paddock import files, process
from paddock.errors import INTERRUPTED, printable
from paddock.gpu import serialization
from paddock.gpu.errors import GpuError
from paddock.gpu.host import cgroup
from paddock.gpu.inventory import inventory as read_inventory
from paddock.gpu.model import Inventory
from paddock.gpu.render.slurm.node import installed
from paddock.slurm.detect.machine import usable_cpus
from paddock.slurm.errors import SlurmError
from paddock.slurm.start import checks, comparison, configuration, devices, hardware, layout, munge, queries
from paddock.slurm.start.configuration import Written
from paddock.slurm.start.drains import NodeState
from paddock.slurm.start.layout import LAYOUT, Layout
from paddock.slurm.start.request import StartRequest
from paddock.slurm.start.supervisor import Daemon, Supervisor, explained
from paddock.slurm.write.replacement import INVENTORY

_MUNGE_S, _CONTROLLER_S, _NODE_S = 20.0, 60.0, 60.0
_TICK_S = 0.1
_JOBS_S = 5.0
"""Seconds that jobs get after SIGTERM; Docker gives ten to all."""


class _Stopped(Exception):
    """A signal came during the start."""


class Node:
    """One run of a node in its container."""

    def __init__(self, request: StartRequest, paths: Layout, say: Callable[[str], None]) -> None:
        self._request, self._paths, self._say = request, paths, say
        self._users = layout.users()
        self._supervisor = Supervisor(say)
        self._stop = threading.Event()
        self._signal = 0
        self._slurm: dict[str, str] = {}
        self._written: Written | None = None
        self._daemon_started = False
        self._settled = True
        self._rejoined, self._drained_for = False, ""
        """Of a dynamic node: whether it joined a second time, and the reason for which a person drained it."""
        self._spared = False
        """True once the node's GPUs were given up, because Slurm refused the node with them."""

    def run(self) -> int:
        """Start, watch until a signal or a failure, end in order, and return the exit code. Raises SlurmError.

        It is 0 after the SIGTERM of an engine that stops the container, and 130 after Ctrl-C.
        """
        checks.check_machine(self._paths)
        checks.check_state(self._paths, self._request)
        checks.check_network()
        checks.check_ports(self._request)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        try:
            self._start()
            return self._watch() or self._code
        except _Stopped:
            return self._code
        finally:
            self._end()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._signal = number
        self._stop.set()

    @property
    def _code(self) -> int:
        return INTERRUPTED if self._signal == signal.SIGINT else 0

    def _start(self) -> None:
        began, request, paths = time.monotonic(), self._request, self._paths
        layout.prepare(paths, self._users, request.role)
        paths.node.unlink(missing_ok=True)
        self._slurm = installed()
        if not self._slurm:
            raise SlurmError("there is no slurmd here\n    expected: the image of Slurm, or Slurm installed")
        source = munge.prepare_key(paths, self._users, request.role, request.munge_key)
        self._configure()
        self._supervisor.start(Daemon("munged", lambda: munge.command(paths), self._users.munge))
        self._until(lambda: munge.answers(paths), _MUNGE_S, "munged")
        self._say(f"munge      ready ({source})")
        if request.role != "node":
            self._supervisor.start(Daemon("slurmctld", self._controller_command, self._users.slurm))
            self._until(queries.controller_answers, _CONTROLLER_S, "slurmctld")
            self._say(f"slurmctld  ready on port {request.controller_port}")
        if request.role != "controller":
            if request.role == "node":
                self._wait_for_controller()
            self._put_back_lost_jobs()
            self._start_daemon()
            self._wait_for_node()
        text = json.dumps({"name": self._name, "role": request.role})
        files.write(paths.node, text, 0o644, sync=False)
        gres = f", {self._gres}" if self._gres else ""
        self._say(f"ready      {request.role} {self._name}{gres}, after {time.monotonic() - began:.1f} s")

    @property
    def _name(self) -> str:
        return self._written.node if self._written else self._request.name

    @property
    def _gres(self) -> str:
        return self._written.gres if self._written and self._request.role != "controller" else ""

    def _configure(self, *, quiet: bool = False) -> bool:
        """Detect the GPUs, write the files for them, and return whether they are others than before."""
        inventory = read_inventory(topology=True)
        if self._request.role == "controller":
            inventory = comparison.without_gpus(inventory)
        usable = devices.usable(inventory)
        if self._spared:
            usable = replace(usable, inventory=comparison.without_gpus(usable.inventory))
        machine = hardware.hardware(self._slurm["hardware"], cgroup.limits(), usable_cpus())
        written = configuration.write(
            self._request, self._paths, self._users, usable, machine, self._slurm, queries.check
        )
        before, self._written = self._written, written
        if quiet and before and before.gres == written.gres and not written.changed:
            return False
        say = self._say
        cpus = "1 CPU" if machine.cpus == 1 else f"{machine.cpus} CPUs"
        say(f"machine    {self._name}: {cpus}, {machine.memory_mib} MiB")
        for text in machine.limits:
            say(f"limit      {text}")
        if self._request.role != "controller":
            models = comparison.models(usable.inventory)
            reason = f": {inventory.reason}" if inventory.reason and not models else ""
            say(f"GPUs       {comparison.words(models)}{reason}")
            for text in self._differences(usable.inventory):
                say(f"changed    {text}")
        for text in (*usable.warnings, *written.warnings):
            say(f"warning: {text}")
        how = f" ({', '.join(written.customised)} customised)" if written.customised else ""
        say(f"files      {self._paths.etc}{how}")
        return written.changed

    def _differences(self, usable: Inventory) -> tuple[str, ...]:
        path = self._paths.source / INVENTORY
        if not path.exists():
            return ()
        try:
            return comparison.differences(serialization.load(path), usable)
        except (GpuError, OSError) as error:
            return (f"unknown: {printable(str(error).splitlines()[0])}",)

    def _controller_command(self) -> list[str]:
        return ["slurmctld", "-D", "-f", str(self._paths.slurm_conf)]

    def _start_daemon(self) -> None:
        self._supervisor.start(Daemon("slurmd", self._daemon_command, self._users.daemon))
        self._settled = False

    def _daemon_command(self) -> list[str]:
        """Return the command of slurmd, and write the files again where it is started again."""
        if self._daemon_started:
            changed = self._configure(quiet=True)
            if changed and self._request.role == "all":
                self._restart_controller()
            self._settled = False
        self._daemon_started = True
        command = ["slurmd", "-D", "-N", self._name, "-f", str(self._paths.slurm_conf)]
        if self._written and self._written.join:
            command += ["-Z", "--conf", self._written.join]
        return command

    def _put_back_lost_jobs(self) -> None:
        """Put jobs back into the queue that ran in the container before this one, and ended with it."""
        jobs, state = queries.jobs_on(self._name), queries.node_state(self._name)
        if jobs:
            problem = queries.lose_jobs(self._name, jobs, state.reason or "its container restarted")
            ids = ", ".join(jobs)
            self._say(f"warning: {problem}" if problem else f"requeued   jobs that ended with the container: {ids}")
        if self._request.dynamic and state.flags:
            self._forget(state)

    def _forget(self, state: NodeState) -> None:
        """Have the controller forget a dynamic node, which Slurm would hold to its former GPUs."""
        problem = queries.change("delete", f"NodeName={self._name}")
        if problem:
            self._say(f"warning: the controller keeps the former node {self._name}: {problem}")
        elif state.drained and not state.drained_by_slurm:
            self._drained_for = state.reason

    def _restart_controller(self) -> None:
        self._supervisor.stop("slurmctld")
        self._supervisor.start(Daemon("slurmctld", self._controller_command, self._users.slurm))

    def _wait_for_controller(self) -> None:
        host, port = self._request.controller, self._request.controller_port
        began, waiting = time.monotonic(), False
        while not queries.controller_answers():
            if not waiting:
                self._say(f"waiting    for the controller {host}:{port}")
                if queries.listens(host, port):
                    self._say(f"error: {host}:{port} accepts connections, and no requests of this node; perhaps"
                              f" {explained('invalid credential')}")  # fmt: skip
            waiting = True
            self._tick("munged")
            if time.monotonic() - began > _CONTROLLER_S:
                self._say(f"warning: the controller does not answer after {_CONTROLLER_S:g} s; slurmd keeps asking")
                return

    def _wait_for_node(self) -> None:
        deadline = time.monotonic() + _NODE_S
        while not self._settle():
            self._tick("slurmd")
            if time.monotonic() > deadline:
                state = queries.node_state(self._name)
                self._say(f"warning: the node is {state} after {_NODE_S:g} s, and takes no jobs yet")
                return

    def _settle(self) -> bool:
        """Bring the node into service, one step at a call; return True when nothing is left to do."""
        state = queries.node_state(self._name)
        if state.invalid:
            if self._request.dynamic and not self._rejoined:
                self._rejoined = True
                self._supervisor.stop("slurmd")
                self._put_back_lost_jobs()
                self._start_daemon()
                return False
            self._say(f"warning: Slurm refuses the node: {state}")
            if self._spared or (self._written and self._written.customised):
                self._settled = True
                return True
            self._spared = True
            self._supervisor.stop("slurmd")
            self._start_daemon()
            return False
        if not state.answers or state.down:
            return False
        if self._drained_for:
            reason, self._drained_for = self._drained_for, ""
            problem = queries.change("update", f"NodeName={self._name}", "State=DRAIN", f"Reason={reason}")
            self._say(f"warning: {problem}" if problem else f"drained    {self._name} again: {reason}")
            return False
        if state.drained_by_slurm:
            problem = queries.change("update", f"NodeName={self._name}", "State=RESUME")
            self._say(problem or f"resumed    {self._name}, which Slurm had taken out: {state.reason or 'no reason'}")
            return bool(problem)
        if state.out:
            self._say(f"warning: the node is {state}, and stays so until somebody resumes it:"
                      f" scontrol update NodeName={self._name} State=RESUME")  # fmt: skip
        else:
            self._say(f"slurmd     node {state}")
        held = queries.held_for_resources()
        if held:
            problem = queries.change("release", ",".join(held))
            self._say(problem or f"released   jobs that no node could run before: {', '.join(held)}")
        self._settled = True
        return True

    def _watch(self) -> int:
        while not self._stop.is_set():
            if failed := self._supervisor.check():
                return self._failed(failed)
            if not self._settled:
                self._settle()
            self._stop.wait(0.2 if self._settled else 0.5)
        return 0

    def _failed(self, name: str) -> int:
        self._say(f"error: {name} ends at every start; its last lines:")
        for line in self._supervisor.last_lines(name):
            self._say(f"    {line}")
        return 1

    def _until(self, ready: Callable[[], bool], seconds: float, name: str) -> None:
        """Wait for a daemon. Raises SlurmError with its last lines where it ends or does not answer in time."""
        deadline = time.monotonic() + seconds
        while not ready():
            self._tick(name)
            if time.monotonic() > deadline:
                lines = "".join(f"\n    {line}" for line in self._supervisor.last_lines(name))
                raise SlurmError(f"{name} does not answer after {seconds:g} s; its last lines:{lines}")

    def _tick(self, name: str) -> None:
        """Wait a moment. Raises SlurmError where the daemon keeps ending, and _Stopped after a signal."""
        if self._stop.wait(_TICK_S):
            raise _Stopped
        if failed := self._supervisor.check():
            lines = "".join(f"\n    {line}" for line in self._supervisor.last_lines(failed))
            raise SlurmError(f"{failed} ends at every start; its last lines:{lines}")

    def _end(self) -> None:
        """End daemons and jobs: the controller first, which saves the queue with the jobs still running in it."""
        self._paths.node.unlink(missing_ok=True)
        running = [name for name in ("slurmctld", "slurmd", "munged") if self._supervisor.alive(name)]
        if running:
            self._say(f"stopping   {', '.join(running)}; the queue stays in {self._paths.state}")
        self._supervisor.stop("slurmctld")
        if "slurmd" in running:
            cluster = self._written.cluster if self._written else self._request.cluster
            jobs = functools.partial(job_processes, cluster, self._name)
            process.end(jobs, ((signal.SIGTERM, _JOBS_S), (signal.SIGKILL, 1.0)))
        for name in ("slurmd", "munged"):
            self._supervisor.stop(name)


def job_processes(cluster: str, node: str, proc: Path = process.PROC) -> list[int]:
    """Return the processes of this node's jobs, by Slurm's variables in their environment."""
    pids, own = [], {f"SLURM_CLUSTER_NAME={cluster}".encode(), f"SLURMD_NODENAME={node}".encode()}
    for pid in process.pids(proc):
        stat = process.read_stat(pid, proc)
        with contextlib.suppress(OSError):
            environ = (proc / str(pid) / "environ").read_bytes().split(b"\0")
            mine = own.issubset(environ) and any(variable.startswith(b"SLURM_JOB_ID=") for variable in environ)
            if mine and stat and not stat.ended and stat.name != "slurmstepd":
                pids.append(pid)
    return pids


def say(line: str) -> None:
    """Print a line of a phase at once."""
    sys.stdout.write(f"{printable(line)}\n")
    sys.stdout.flush()


def run(request: StartRequest, paths: Layout = LAYOUT) -> int:
    """Run a node until it is stopped, and return the exit code. Raises SlurmError."""
    os.umask(0o022)
    return Node(request, paths, say).run()
