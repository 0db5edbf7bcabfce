"""Slurm's own programs, as a start asks them."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from paddock.slurm.programs.nodes import gpu_count, node_gres
from paddock.slurm.start.drains import NodeState, parse

_SECONDS = 30.0


def call(command: Sequence[str], seconds: float = _SECONDS) -> tuple[int, str]:
    """Run a program and return its code and all of its output; 127 where it is not there, 124 after its time."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except FileNotFoundError:
        return 127, f"no {command[0]}"
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} did not end within {seconds:g} s"
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def check(folder: Path, node: str) -> str:
    """Return why slurmd would not find the GPUs that slurm.conf gives the node; nothing where it does."""
    expected = gpu_count(node_gres((folder / "slurm.conf").read_text(encoding="utf-8")))
    code, output = call(["slurmd", "-G", "-N", node, "-f", str(folder / "slurm.conf")])
    lines = [re.sub(r"^slurmd\S*:\s*", "", line) for line in output.splitlines() if line.strip()]
    if code:
        problems = [line for line in lines if line.startswith(("fatal:", "error:"))] or lines
        return f"slurmd -G: {problems[-1] if problems else f'exit {code}'}"
    counted = sum(int(count) for count in re.findall(r"Gres Name=gpu\b.*?\bCount=(\d+)", output))
    if counted == expected:
        return ""
    why = [line for line in lines if "lib wasn't found" in line or line.startswith("error:")]
    return f"slurmd -G finds {counted} GPUs, and slurm.conf has {expected}{f' ({why[0]})' if why else ''}"


def controller_answers() -> bool:
    """Return True where the controller of slurm.conf answers."""
    code, output = call(["scontrol", "ping"], 10)
    return code == 0 and " UP" in output


def listens(host: str, port: int) -> bool:
    """Return True where something accepts connections there."""
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False


def node_state(name: str) -> NodeState:
    """Return the node's state; without flags where the controller does not know it or does not answer."""
    code, output = call(["scontrol", "show", "node", name, "-o"], 10)
    return parse(output) if code == 0 else NodeState()


def change(*words: str) -> str:
    """Have the controller change something, and return why that failed, or nothing."""
    code, output = call(["scontrol", *words], 10)
    return "" if code == 0 else output.strip()


def jobs_on(name: str) -> list[str]:
    """Return the jobs that the controller believes to be running on a node."""
    states = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,SIGNALING"
    code, output = call(["squeue", "--noheader", f"--nodelist={name}", f"--states={states}", "--format=%A"], 10)
    return sorted(set(output.split())) if code == 0 else []


def lose_jobs(name: str, jobs: Sequence[str], reason: str) -> str:
    """Tell the controller that the node lost its jobs, which puts them back into the queue, to start at once.

    The node is down until it registers. Return why that failed, or nothing.
    """
    if problem := change("update", f"NodeName={name}", "State=DOWN", f"Reason={reason}"):
        return problem
    for job in jobs:
        # Slurm waits two minutes, so that no job runs twice; this container has none of the former processes.
        change("update", f"JobId={job}", "StartTime=now")
    return ""


def held_for_resources() -> list[str]:
    """Return the jobs that Slurm holds because no node of that time could ever run them."""
    code, output = call(["squeue", "--noheader", "--states=PD", "--format=%A|%r"], 10)
    rows = [line.split("|") for line in output.splitlines()] if code == 0 else []
    return sorted({row[0] for row in rows if len(row) == 2 and row[1] == "BadConstraints"})
