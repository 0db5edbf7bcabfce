"""Applications of a RayService on a real Ray, handed to its dashboard as KubeRay does, with the processor for a GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.serving.ray_service import serve_config
from paddock.models.shapes import shape
from paddock.process import end, session_members
from paddock.serve.own.protocol import Spec
from tests.support.answers import alone
from tests.support.fleets import SERVING, fleet_data, stack
from tests.support.packages import need
from tests.support.serving import free_port
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]

SECONDS = 240
TOKEN, KEY = "a-token-of-enough-letters", "a-key-of-enough-letters"


@dataclass(frozen=True)
class RayCluster:
    """One node of Ray with the labels of the head and of a worker group, and two GPUs that nobody computes on."""

    dashboard: int
    http: int
    processes: list[int]

    def call(self, url: str, *, key: str = "", body: Any = None, method: str | None = None) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as response:
                return response.status, _json(response.read())
        except urllib.error.HTTPError as error:
            return error.code, _json(error.read())

    def applications(self, body: Any = None) -> tuple[int, Any]:
        """Call the interface that KubeRay's operator calls."""
        url = f"http://127.0.0.1:{self.dashboard}/api/serve/applications/"
        return self.call(url, key=TOKEN, body=body, method="PUT" if body else "GET")

    def titled(self, title: str) -> list[int]:
        """Return its processes whose title begins so."""
        members = session_members(self.processes[0])
        return [pid for pid in members if Path(f"/proc/{pid}/cmdline").read_text().startswith(title)]

    def gateway(self, path: str, **options: Any) -> tuple[int, Any]:
        return self.call(f"http://127.0.0.1:{self.http}{path}", **options)


def _json(text: bytes) -> Any:
    return json.loads(text) if text.startswith((b"{", b"[")) else text.decode()


@pytest.fixture
def ray_cluster(root: Path, tmp_path: Path) -> Iterator[RayCluster]:
    need("ray", "torch")
    cluster = RayCluster(free_port(), free_port(), [])
    environ = os.environ | {
        "PYTHONPATH": str(root), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="paddock-ray-") as folder, (tmp_path / "ray.log").open("wb") as log:
        command = [
            Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--include-dashboard=true",
            f"--port={free_port()}", f"--dashboard-port={cluster.dashboard}", "--num-gpus=2", "--num-cpus=2",
            "--labels=paddock.agent=head,paddock.backend=cuda,paddock.model=chat",
            f"--object-store-memory={100 * 2**20}", f"--temp-dir={folder}",
            "--include-log-monitor=false", "--no-monitor",
        ]  # fmt: skip
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log, start_new_session=True)
        cluster.processes.append(process.pid)
        try:
            until(lambda: _answers(cluster), SECONDS)
            yield cluster
        finally:
            end(lambda: session_members(process.pid), ((signal.SIGTERM, 10), (signal.SIGKILL, 10)))
            process.wait(10)


def _answers(cluster: RayCluster) -> bool:
    try:
        return cluster.applications()[0] == 200
    except OSError:
        return False


def config(cluster: RayCluster, keys: Path, gpus: int) -> dict[str, Any]:
    """Return what the program writes for a fleet, with the device, the port and the file of keys of this machine."""
    models = {
        "chat": {
            "model": "tiny", "pools": ["t4"], "dtype": "fp32", "context": 256, "replicas": {"max": 1},
            "tensorParallel": gpus,
        }
    }  # fmt: skip
    pools = {"t4": {"instances": ["g4dn.12xlarge"], "nodes": {"max": 4}}}
    fleet = stack(fleet_data(pools=pools, runners={}, serving=deepcopy(SERVING) | {"models": models})).fleet
    assert fleet.serving is not None
    written = serve_config(fleet, fleet.serving)
    written["http_options"] = {"host": "127.0.0.1", "port": cluster.http}
    model, gateway = written["applications"]
    gateway["args"]["keys_file"] = str(keys)
    for arguments in (model["args"], *gateway["args"]["models"]):
        arguments["device"] = "cpu"
    return written


@pytest.mark.parametrize("gpus", [1, pytest.param(2, marks=pytest.mark.explore)])
def test_applications_of_the_program_serve_from_zero_replicas(
    ray_cluster: RayCluster, gpus: int, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    unsigned = ray_cluster.call(f"http://127.0.0.1:{ray_cluster.dashboard}/api/serve/applications/")
    assert unsigned[0] in (401, 403)
    assert ray_cluster.applications(config(ray_cluster, keys, gpus))[0] == 200

    def states() -> dict[str, str]:
        applications = ray_cluster.applications()[1]["applications"]
        return {name: application["status"] for name, application in applications.items()}

    until(lambda: set(states().values()) == {"RUNNING"} and len(states()) == 2, SECONDS)
    replica = ray_cluster.applications()[1]["applications"]["model-chat"]["deployments"]["replica"]
    assert replica["replicas"] == []

    body = {"model": "chat", "prompt": "hello", "max_tokens": 20}
    assert ray_cluster.gateway("/v1/completions", body=body)[0] == 401
    status, listed = ray_cluster.gateway("/v1/models", key=KEY)
    assert (status, [model["id"] for model in listed["data"]]) == (200, ["chat"])
    status, answer = ray_cluster.gateway("/v1/completions", key=KEY, body=body)
    assert (status, answer["usage"]["completion_tokens"]) == (200, 20)
    (expected,) = alone(Spec(shape("tiny"), "fp32", "cpu", 1, 256), [list(b"hello")], 20)
    assert answer["choices"][0]["text"] == "".join(chr(32 + token % 95) for token in expected)
    assert len(ray_cluster.titled("ray::Rank")) == gpus - 1
