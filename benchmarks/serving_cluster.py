"""A cluster of serving for one benchmark: a head and agents of this machine, started by the commands of serving."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from side_by_side import ROOT, free_port, rounded

Device = tuple[str, str | None, int]
"""Backend, name and MiB of memory."""


class Cluster:
    """A head and agents with devices of files, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = self.address = ""
        self._environ = {
            **os.environ, "XDG_STATE_HOME": str(folder), "PADDOCK_CWD": str(folder), "PYTHONPATH": str(ROOT),
        }  # fmt: skip

    def start(self, devices: Sequence[Device]) -> None:
        port, http = str(free_port()), str(free_port())
        head = self.run("up", "--port", port, "--http-port", http, "--devices", self.devices("head", devices))
        self.url, self.address = head["url"], head["address"]

    def run(self, name: str, *words: str) -> Any:
        """Return what a command reports. Ends the run where it fails."""
        answer = self.folder / "answer.json"  # a file: Ray writes lines of its own to the output
        command = [sys.executable, "-m", "paddock", f"serve.{name}", *words, f"--json={answer}"]
        done = subprocess.run(command, cwd=ROOT, env=self._environ, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"serve.{name}: {done.stderr.strip()}")
        return json.loads(answer.read_text())

    def devices(self, agent: str, devices: Sequence[Device]) -> str:
        """Write an agent's file of devices, and return its name."""
        rows = [
            {"agent": agent, "backend": backend, "index": index, "memory_mib": mib, "name": name}
            for index, (backend, name, mib) in enumerate(devices)
        ]
        (self.folder / f"{agent}.devices.json").write_text(json.dumps({"devices": rows}))
        return f"{agent}.devices.json"


def environment(load_before: Sequence[float], *packages: str) -> dict[str, Any]:
    """Return what a reader must know of the machine and the run."""
    return {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors, other work shares it",
        "load_before": [rounded(load) for load in load_before],
        "load_after": [rounded(load) for load in os.getloadavg()],
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }
