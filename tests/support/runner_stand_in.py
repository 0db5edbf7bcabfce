"""A small stand-in with the layout of GitHub's runner, and one for the image that its container hooks come from."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from infra.versions import ACTIONS_RUNNER
from paddock.images.docker import Docker

CONTAINER_HOOKS = "paddock-test/container-hooks:stand-in"

_LISTENER = f'#!/bin/sh\n[ "$1" = --version ] && echo {ACTIONS_RUNNER}\n'
_SCRIPTS = (
    "run.sh",
    "config.sh",
    "bin/installdependencies.sh",
    "externals/node20/bin/node",
    "externals/node24/bin/node",
)


def archive(path: Path) -> Path:
    """Writes the runner's archive: its layout, and a listener that says its version."""
    with tarfile.open(path, "w:gz") as packed:
        for name, text in {"bin/Runner.Listener": _LISTENER, **dict.fromkeys(_SCRIPTS, "#!/bin/sh\n")}.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size, member.mode = len(text), 0o755
            packed.addfile(member, io.BytesIO(text.encode()))
    return path


def container_hooks(docker: Docker) -> None:
    """Makes the image that the container hooks are taken from. It stays: another run may be building on it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, text in {"k8s": "with a volume\n", "k8s-novolume": "without a volume\n"}.items():
            member = tarfile.TarInfo(f"home/runner/{name}/index.js")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    subprocess.run(
        [docker.client.path, "import", "-", CONTAINER_HOOKS], input=packed.getvalue(), check=True, capture_output=True
    )


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path, docker: Docker) -> Iterator[str]:
    """The folder where a build can reach it: on loopback, or on the engine's bridge where builds have that network."""
    command = [docker.client.path, "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    host = result.stdout.strip() if result.returncode == 0 else "127.0.0.1"
    try:
        server = ThreadingHTTPServer((host, 0), functools.partial(_Quiet, directory=os.fspath(folder)))
    except OSError:
        pytest.skip(f"builds reach this machine at {host}, which is not an address of it")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
