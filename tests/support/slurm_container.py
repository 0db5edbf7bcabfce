"""Container of the Slurm image: its state in volumes, so that one after another takes up the same queue.

Its GPUs are the fake driver library's, with terminals as their device files: slurmd asks no more of them.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

NODE = "node"
NODE_STATE = ("sinfo", "--noheader", "--Node", "--format=%T %G")


@dataclass
class Container:
    """Slurm in one container at a time. `driver` is the folder of the fake driver library."""

    docker: str
    image: str
    driver: Path
    id: str = field(default_factory=lambda: f"paddock-test-{uuid.uuid4().hex[:8]}-slurm")
    host: str = NODE
    cluster: str = ""
    """The container whose network and key it shares."""

    def beside(self, host: str) -> Container:
        """Return another container on its network, with its key."""
        return Container(self.docker, self.image, self.driver, f"{self.id}-{host}", host, self.id)

    def create(self) -> None:
        """Create the network; volumes come with the first container."""
        self._docker("network", "create", self.id)

    def remove(self) -> None:
        """Remove all of it."""
        self.kill()
        volumes = [f"{self.id}-{volume}" for volume in ("state", "munge", "jobs")]
        self._docker("volume", "rm", "--force", *volumes, check=False)
        self._docker("network", "rm", self.id, check=False)

    def start(
        self,
        gpus: int = 0,
        model: str = "NVIDIA H100 80GB HBM3",
        *,
        devices: int | None = None,
        options: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> float:
        """Start a new container on the same volumes, and return the seconds until it is ready."""
        self.kill()
        count = gpus if devices is None else devices
        words = [word for number in range(count) for word in ("--device", f"/dev/tty{number}:/dev/nvidia{number}")]
        if gpus:
            words += [
                *("--volume", f"{self.driver}:/fake:ro", "--env", "LD_LIBRARY_PATH=/fake"),
                *("--env", f"FAKE_NVML_COUNT={gpus}", "--env", f"FAKE_NVML_NAME={model}", "--env", "FAKE_NVML_LINKS=0"),
            ]
        began = time.monotonic()
        self.launch([*words, *options], flags)
        self.ready()
        return time.monotonic() - began

    def launch(self, options: Sequence[str] = (), flags: Sequence[str] = ()) -> None:
        """Start a container without waiting for it."""
        mounts = {"munge": "/etc/munge", "jobs": "/jobs"}
        mounts |= {} if self.cluster else {"state": "/var/spool/slurmctld"}
        volumes = [
            word
            for volume, path in mounts.items()
            if not any(option.startswith(f"{path}:") for option in options)
            for word in ("--volume", f"{self.cluster or self.id}-{volume}:{path}")
        ]
        self._docker(
            "run", "--detach", "--name", self.id, "--hostname", self.host,
            *([] if "--network" in options else ["--network", self.cluster or self.id]),
            *volumes, *options, self.image, *flags,
        )  # fmt: skip

    def ready(self) -> None:
        """Wait until the node says that it is ready."""
        self.says("\nready ")
        assert self.running(), self.logs()

    def says(self, text: str, seconds: float = 60) -> None:
        """Wait until it has printed a text. Its log comes line by line: a client that asks again and again is slow."""
        printed = "\n"
        with subprocess.Popen(
            [self.docker, "logs", "--follow", self.id], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as following:
            assert following.stdout
            limit = threading.Timer(seconds, following.kill)
            limit.start()
            while text not in printed and (line := following.stdout.readline()):
                printed += line
            limit.cancel()
            following.kill()
        assert text in printed, f"{text!r} not within {seconds} s:{printed}"

    def ended(self) -> int:
        """Wait for its end and return the exit code."""
        return int(self._docker("wait", self.id, seconds=120))

    def running(self) -> bool:
        return self._docker("inspect", "--format", "{{.State.Running}}", self.id) == "true"

    def stop(self) -> None:
        """End it in order, and keep it."""
        self._docker("stop", "--time", "30", self.id)

    def interrupt(self) -> None:
        """Press Ctrl-C, as in the terminal of `docker run`."""
        self._docker("kill", "--signal", "INT", self.id)

    def kill(self) -> None:
        """End it at once, and remove it but not its volumes."""
        self._docker("rm", "--force", self.id, check=False)

    def logs(self) -> str:
        """Return what it printed."""
        done = subprocess.run([self.docker, "logs", self.id], capture_output=True, text=True, check=False)
        return f"\n{done.stdout}{done.stderr}"

    def run(self, *command: str, check: bool = True, text: str | None = None) -> str:
        """Run a program in it, and return what it prints."""
        return self._docker("exec", *(["--interactive"] if text else []), self.id, *command, check=check, text=text)

    def submit(self, script: str, *options: str) -> int:
        """Submit a job and return its id. Its output is in /jobs."""
        return int(self.run("sbatch", "--parsable", *options, text=f"#!/bin/sh\n{script}\n"))

    def job(self, job: int) -> dict[str, str]:
        """Return a job's fields as scontrol shows them."""
        shown = self.run("scontrol", "show", "job", "-o", str(job), check=False)
        return dict(re.findall(r"(\S+?)=(\S*)", shown))

    def until(self, text: str, *command: str, no: bool = False) -> None:
        """Wait until a program in it prints a text, or prints it no more; it is run there again and again."""
        again = f'text=$1; shift; {"while" if no else "until"} "$@" 2>&1 | grep -qaE -e "$text"; do sleep 0.1; done'
        self.run("timeout", "60", "sh", "-c", again, "sh", text, *command)

    def until_job(self, job: int, field: str) -> None:
        """Wait until a field of a job is as it is written: `JobState=RUNNING`."""
        self.until(f"{field}( |$)", "scontrol", "show", "job", "-o", str(job))

    def finished(self, job: int) -> str:
        """Wait for a job's end and return its state."""
        self.until(
            "JobState=(PENDING|RUNNING|COMPLETING|CONFIGURING) ", "scontrol", "show", "job", "-o", str(job), no=True
        )
        return self.job(job)["JobState"]

    def save(self, job: int) -> None:
        """Have the controller write its queue with this job as it is now: a comment of its own shows that it has."""
        comment = f"saved-{uuid.uuid4().hex}"
        self.run("scontrol", "update", f"JobId={job}", f"Comment={comment}")
        self.until_saved(comment)

    def until_saved(self, text: str, file: str = "job_state") -> None:
        """Wait until the controller has written a text into a file of its state: it does so some seconds later."""
        self.until(re.escape(text), "cat", f"/var/spool/slurmctld/{file}")

    def output(self, job: int) -> str:
        """Return what a job has printed."""
        return self.run("cat", f"/jobs/slurm-{job}.out")

    def node(self) -> str:
        """Return the node's state and GPUs: `idle gpu:h100:4`."""
        return self.run(*NODE_STATE)

    def _docker(self, *words: str, check: bool = True, text: str | None = None, seconds: float = 600) -> str:
        done = subprocess.run(
            [self.docker, *words], input=text, capture_output=True, text=True, check=False, timeout=seconds
        )
        assert not check or done.returncode == 0, f"{words}: {done.stderr}{done.stdout}"
        return done.stdout.strip()


@contextlib.contextmanager
def container(docker: str, image: str, driver: Path) -> Iterator[Container]:
    """Yield a container's network and volumes, and remove all in the end."""
    slurm = Container(docker, image, driver)
    try:
        slurm.create()
        yield slurm
    finally:
        slurm.remove()
