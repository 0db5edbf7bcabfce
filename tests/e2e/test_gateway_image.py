"""The gateway's image, built by the real engine on a real Debian and run as its pods run it, before a stand-in."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support import docker_engine
from tests.support.door import Door
from tests.support.packages import need

need("prometheus_client", "starlette", "uvicorn")

from paddock.serve.gateway.app import Gateway
from tests.support import gateway
from tests.support.openai_server import stand_in
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("gateway-image")]

KEY = "a-key-of-enough-letters"
AS_A_POD = ("--read-only", "--user", "1000", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
MOUNT = "/etc/paddock"
MOST_BYTES = 150e6
ABSENT = """
import importlib.util, shutil
print(*[name for name in ("pip", "setuptools", "ray", "torch", "numpy") if importlib.util.find_spec(name)],
      *[name for name in ("pip", "pip3", "gcc", "cc", "make", "git", "curl") if shutil.which(name)])
"""
CACHES = ["-c", "ls -A /var/lib/apt/lists /var/cache/apt/archives /root /tmp /mnt"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[dict[str, Any]]:
    """The report of the build, which the door makes."""
    docker, base = docker_engine.engine(), docker_engine.debian_base()
    inv = Door(root, tmp_path_factory.mktemp("gateway-image"))
    done = inv("images.build", "gateway", "--base", base, "--json", seconds=1200)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    yield report
    if report["built"]:
        docker.remove(report["image"])


@pytest.mark.door("images.build", "the real Docker engine")
def test_the_image_is_small_and_builds_nothing(built: dict[str, Any]) -> None:
    docker = docker_engine.engine()
    base = sum(layer.size_bytes for layer in docker.layers(docker_engine.DEBIAN))
    assert 0 < built["size_bytes"] - base < MOST_BYTES
    python = docker.run(built["image"], ["-c", ABSENT], entrypoint="/opt/paddock/venv/bin/python")
    assert (python.code, python.stdout.strip()) == (0, ""), python.stderr
    caches = docker.run(built["image"], CACHES, entrypoint="sh", user="0")
    assert caches.stdout == docker.run(docker_engine.DEBIAN, CACHES, entrypoint="sh").stdout
    local = docker.image(built["image"])
    assert local is not None
    assert local.user == "1000:1000"


def test_a_pod_asks_for_keys_and_lets_open_answers_end(built: dict[str, Any], tmp_path: Path) -> None:
    docker, port = docker_engine.engine().client.path, _free_port()
    name = f"paddock-test-{uuid.uuid4().hex[:8]}-gateway"
    body: dict[str, Any] = {"model": "tiny", "messages": gateway.HI}
    made = gateway.Door(Gateway(lambda: None), [], port, key=KEY)  # type: ignore[arg-type,return-value]
    run = [docker, "run", "--rm", "--network", "host", "--name", name, "--volume", f"{tmp_path}:{MOUNT}:ro"]
    with stand_in() as server, ThreadPoolExecutor(1) as pool:
        _configure(tmp_path, port, server.url)
        with subprocess.Popen([*run, *AS_A_POD, built["image"]], stderr=subprocess.PIPE, text=True) as pod:
            try:
                until(lambda: pod.poll() is not None or _models(made))
                assert pod.poll() is None, pod.communicate()[1]
                assert made.post(body).status == 200
                assert made.post(body, Authorization="").status == 401
                server.gate = threading.Event()
                last = pool.submit(made.post, body)
                until(lambda: server.running == 1)
                subprocess.run([docker, "kill", "--signal=TERM", name], check=True, stdout=subprocess.DEVNULL)
                until(lambda: not _listens(port))
                server.gate.set()
                assert last.result().status == 200
                assert pod.wait(60) in (0, 143), pod.communicate()[1]
            finally:
                subprocess.run([docker, "rm", "--force", name], capture_output=True)


def _configure(folder: Path, port: int, url: str) -> None:
    (folder / "keys").write_text(KEY)
    models = [{"id": "tiny", "url": url}]
    config = {"listen": f"127.0.0.1:{port}", "keysFile": f"{MOUNT}/keys", "models": models}
    (folder / "gateway.yaml").write_text(json.dumps(config))
    folder.chmod(0o755)


def _models(made: gateway.Door) -> bool:
    with suppress(OSError):
        return bool(made.ask("GET", "/health").json()["models"])
    return False


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
