"""A real Slurm for tests: munged, slurmctld and slurmd in a folder of their own, from the files that we write.

Its GPUs are character devices that every machine has: slurmd asks no more of a listed GPU.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from paddock.gpu.model import Inventory
from paddock.slurm.write import task_prolog
from paddock.slurm.write.slurm_files import Cluster, Node, slurm_files
from tests.support.fleets import ROOT
from tests.support.waiting import until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "sinfo", "squeue", "scancel", "scontrol")
NAME = socket.gethostname().partition(".")[0]
"""The controller refuses to run on a host of another name."""
HARDWARE = "CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 ThreadsPerCore=1 RealMemory=8421"
"""More than this machine may have, so that a test's jobs wait for GPUs alone. 8000 MiB are left for jobs."""
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class RealSlurm:
    """Slurm of one node. `environ` is that of its clients."""

    folder: Path
    shards: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("state", "spool", "log", "etc"):
            (self.folder / name).mkdir(exist_ok=True)
        self._ports = free_ports(2)
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)

    @property
    def environ(self) -> dict[str, str]:
        return {
            **os.environ,
            "SLURM_CONF": str(self.folder / "etc/slurm.conf"),
            "PATH": f"{os.environ['PATH']}:{_PATH}",
        }

    @property
    def completions(self) -> Path:
        """File of the jobs that ended."""
        return self.folder / "completed-jobs.log"

    def configure(self, inventory: Inventory, hardware: str = HARDWARE) -> None:
        """Write the files for these GPUs, as a container's start does."""
        contained = replace(inventory, machine=replace(inventory.machine, container=True))
        controller, daemon = self._ports
        paths = {
            "StateSaveLocation": "state", "SlurmdSpoolDir": "spool", "SlurmctldPidFile": "slurmctld.pid",
            "SlurmdPidFile": "slurmd.pid", "SlurmctldLogFile": "log/slurmctld.log", "SlurmdLogFile": "log/slurmd.log",
            "JobCompLoc": "completed-jobs.log", "TaskProlog": f"etc/{task_prolog.NAME}",
        }  # fmt: skip
        settings = {name: str(self.folder / path) for name, path in paths.items()}
        settings |= {
            "AuthInfo": f"socket={self.folder}/munge.socket", "SlurmUser": "root", "SlurmctldPort": str(controller),
            "SlurmdPort": str(daemon), "SlurmdParameters": "config_overrides",
        }  # fmt: skip
        cluster = Cluster(shards=self.shards, settings={**settings, **self.settings})
        rendered = slurm_files(contained, Node(name=NAME, hardware=hardware, version="22.05.8"), cluster)
        for file in (*rendered.files, task_prolog.task_prolog()):
            path = self.folder / "etc" / file.path
            path.write_text(file.text.replace("/dev/nvidia", "/dev/tty"))
            path.chmod(file.mode)

    def start(self) -> None:
        """Start all daemons, and return when the node may take jobs."""
        self._start("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                    f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                    f"--log-file={self.folder}/log/munged.log", f"--seed-file={self.folder}/munge.seed",
                    "--num-threads=2")  # fmt: skip
        self._until((self.folder / "munge.socket").exists)
        self.start_controller()
        self.start_daemon()
        self._until(lambda: self.node_state() in ("idle", "mixed", "allocated"))

    def restart(self, inventory: Inventory) -> None:
        """Stop, and start on the same state with other GPUs."""
        self.stop()
        self.configure(inventory)
        self.start()

    def stop(self) -> None:
        """End what runs: jobs too, since a container's processes end with it."""
        for name in ("slurmd", "slurmctld", "munged"):
            self.end(name)
        for pid in _of_environment(self.environ["SLURM_CONF"]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_controller(self) -> None:
        self._start("slurmctld", "-D", "-f", self.environ["SLURM_CONF"])
        self._until(lambda: "is UP" in self.run("scontrol", "ping", check=False))

    def start_daemon(self) -> None:
        self._start("slurmd", "-D", "-N", NAME, "-f", self.environ["SLURM_CONF"])

    def end(self, name: str, number: signal.Signals = signal.SIGTERM) -> None:
        """Send a daemon a signal that ends it."""
        process = self._running.pop(name, None)
        if process is not None:
            process.send_signal(number)
            process.wait(60)

    def run(self, *command: str, check: bool = True, text: str | None = None) -> str:
        """Return what a program of Slurm prints."""
        process = subprocess.run(
            command, env=self.environ, input=text, capture_output=True, text=True, check=False, timeout=60,
            cwd=self.folder,
        )  # fmt: skip
        assert not check or process.returncode == 0, f"{command}: {process.stderr}{self.logs()}"
        return process.stdout.strip()

    def submit(self, script: str, *options: str) -> int:
        """Submit a job by sbatch and return its id. Its output is in `output`."""
        return int(self.run("sbatch", "--parsable", *options, text=f"#!/bin/sh\n{script}\n"))

    def output(self, job: int) -> str:
        """Return what a job has printed."""
        path = self.folder / f"slurm-{job}.out"
        return path.read_text() if path.exists() else ""

    def job(self, job: int) -> dict[str, str]:
        """Return a job's fields as scontrol shows them."""
        shown = self.run("scontrol", "show", "job", "-o", str(job), check=False)
        return dict(re.findall(r"(\S+?)=(\S*)", shown))

    def finished(self, job: int) -> str:
        """Wait for a job's end and return its state."""
        self._until(lambda: self.job(job)["JobState"] not in ("PENDING", "RUNNING", "COMPLETING"))
        return self.job(job)["JobState"]

    def paddock(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run a task of Slurm in this folder, as a user on this machine does."""
        return subprocess.run(
            [sys.executable, str(ROOT / "inv"), *words], capture_output=True, text=True, check=False, timeout=120,
            cwd=self.folder, env={**self.environ, **environ},
        )  # fmt: skip

    def start_paddock(self, *words: str) -> subprocess.Popen[str]:
        """Start a task of Slurm in this folder, for a test that watches or interrupts it."""
        return subprocess.Popen(
            [sys.executable, str(ROOT / "inv"), *words], cwd=self.folder, env=self.environ,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def save(self, job: int) -> None:
        """Have the controller write its queue with this job as it is now: a comment of its own shows that it has."""
        comment, file = f"saved-{uuid.uuid4().hex}", self.folder / "state/job_state"
        self.run("scontrol", "update", f"JobId={job}", f"Comment={comment}")
        self._until(lambda: file.exists() and comment.encode() in file.read_bytes())

    def node_state(self) -> str:
        """Return the node's state, such as `idle`, `drained` or `inval`; with a star where it does not answer yet."""
        return self.run("sinfo", "-h", "-N", "-o", "%T", check=False)

    def logs(self) -> str:
        """Return the ends of the daemons' logs."""
        parts = [f"{log.name}:\n{log.read_text(errors='replace')[-2000:]}" for log in (self.folder / "log").iterdir()]
        return "\n".join(parts)

    def _until(self, true: Callable[[], object]) -> None:
        """Wait, and show what the daemons say where it does not come true or one has ended."""
        try:
            until(lambda: true() or [name for name, process in self._running.items() if process.poll() is not None], 30)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None
        assert true(), self.logs()

    def _start(self, name: str, *arguments: str) -> None:
        program = shutil.which(name, path=self.environ["PATH"])
        assert program
        with open(self.folder / f"log/{name}.out", "ab") as log:
            self._running[name] = subprocess.Popen(
                [program, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environ,
                start_new_session=True,
            )  # fmt: skip


@contextlib.contextmanager
def real_slurm(
    inventory: Inventory, *, shards: int = 0, settings: Mapping[str, str] | None = None
) -> Iterator[RealSlurm]:
    """Yield a Slurm with these GPUs, ready for jobs, and end all of it. Skips where it cannot run."""
    needs_slurm()
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:  # a socket's path must be short
        slurm = RealSlurm(Path(folder), shards, settings or {})
        slurm.configure(inventory)
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.stop()


def needs_slurm() -> None:
    """Skip where there is no Slurm, or it may not be started."""
    path = f"{os.environ.get('PATH', '')}:{_PATH}"
    absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if absent:
        pytest.skip(f"slurmd is not here, or not all of Slurm: no {', '.join(absent)} on PATH")
    if os.geteuid() != 0:
        pytest.skip("only root may start slurmd, which runs jobs of every user")
    if sys.platform == "linux" and not Path("/dev/tty3").exists():
        pytest.skip("slurmd is not given devices here: no /dev/tty3 to stand for a GPU")


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for free in sockets:
            free.bind(("127.0.0.1", 0))
        return [int(free.getsockname()[1]) for free in sockets]


def _of_environment(configuration: str) -> Iterator[int]:
    """Yield the processes that belong to this Slurm: slurmstepd and jobs."""
    mark = f"SLURM_CONF={configuration}".encode()
    for folder in Path("/proc").iterdir():
        if re.fullmatch(r"\d+", folder.name) and int(folder.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)
