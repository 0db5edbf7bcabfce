"""The real Docker engine, a base image and a registry for tests; what is not here skips with its reason."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddock.images.docker import Docker
from paddock.images.errors import BuildInputError

DEBIAN = "paddock-test/debian:bookworm-2"
TOOLS = "paddock-test/tools:bookworm-2"
USER, PASSWORD = "runner", "hunter2 is long"
_HASH = "$2b$05$nCYgowwrBah0a95bn1n/VeLd9bxPgVthUob/vaQgsBIVqhAZWeBDu"


@functools.cache
def engine() -> Docker:
    """Skips where there is none that can build."""
    try:
        return Docker.find(os.environ)
    except BuildInputError as error:
        pytest.skip(f"no engine to build with: {str(error).splitlines()[0]}")


def kept(tag: str, make: Callable[[Docker], None]) -> str:
    """Return the tag of an image that is made once and stays in the engine: another run may be building on it."""
    docker = engine()
    name = re.sub(r"\W+", "-", tag)
    with open(Path(tempfile.gettempdir()) / f"{name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if docker.image(tag) is None:
            make(docker)
    return tag


def debian_base() -> str:
    """The reference of a small Debian, made by debootstrap."""
    return kept(DEBIAN, _debootstrap)


def tools_base() -> str:
    """The reference of that Debian with a C++ compiler and Python."""
    debian = debian_base()
    packages = "RUN apt-get update && apt-get install --yes --no-install-recommends g++ python3 && apt-get clean"

    def make(docker: Docker) -> None:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "Dockerfile").write_text(f"FROM {debian}\n{packages}\n", encoding="utf-8")
            docker.build(Path(folder), tags=[TOOLS], args={}, labels={}, progress="quiet")

    return kept(TOOLS, make)


@contextlib.contextmanager
def registry(folder: Path, login: bool = False) -> Iterator[str]:
    """`localhost:PORT` of a registry that keeps its images in `folder`; `login`: for USER with PASSWORD alone."""
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("no docker-registry on PATH (Debian's package of that name)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = folder / "registry.yml"
    settings.write_text(
        f"version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n"
        f"storage: {{filesystem: {{rootdirectory: {folder / 'images'}}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '127.0.0.1:{port}'}}\n"
        + (f"auth: {{htpasswd: {{realm: tests, path: {folder / 'htpasswd'}}}}}\n" if login else ""),
        encoding="utf-8",
    )
    (folder / "htpasswd").write_text(f"{USER}:{_HASH}\n", encoding="utf-8")
    with open(folder / "log", "w", encoding="utf-8") as log:
        process = subprocess.Popen([program, "serve", settings], stdout=log, stderr=log)
    try:
        _answers(f"http://127.0.0.1:{port}/v2/", process)
        yield f"localhost:{port}"
    finally:
        process.terminate()
        process.wait()


def _answers(url: str, process: subprocess.Popen[bytes], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=10).close()
            answers = True
        except urllib.error.HTTPError as error:
            error.close()
            answers = True
        except OSError:
            answers = False
        if answers and process.poll() is None:  # another program may have taken the port
            return
        time.sleep(0.02)
    raise AssertionError(f"the registry does not answer at {url}")


def _debootstrap(docker: Docker) -> None:
    program = shutil.which("debootstrap", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None or os.geteuid() != 0:
        pytest.skip("no base image: debootstrap, run as root, makes one")
    with tempfile.TemporaryDirectory() as folder:
        # As in Debian's own images dpkg waits for no disk, here nor in what is built on it.
        settings = {"etc/dpkg/dpkg.cfg.d/unsafe-io": "force-unsafe-io\n"}
        # A packet that is lost on the way is no fault of the images.
        settings["etc/apt/apt.conf.d/80-retries"] = 'Acquire::Retries "5";\nAcquire::Languages "none";\n'
        for command in (
            [program, "--foreign", "--variant=minbase", "bookworm", folder],
            ["chroot", folder, "/debootstrap/debootstrap", "--second-stage"],
        ):
            process = subprocess.run(command, capture_output=True, text=True, check=False)
            if process.returncode:
                pytest.skip(f"debootstrap made no base image: {process.stdout.strip().splitlines()[-1:]}")
            for path, text in settings.items():
                (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
                (Path(folder) / path).write_text(text, encoding="utf-8")
        shutil.rmtree(Path(folder) / "var/cache/apt/archives", ignore_errors=True)
        with subprocess.Popen(["tar", "-C", folder, "-c", "."], stdout=subprocess.PIPE) as packed:
            subprocess.run([docker.client.path, "import", "-", DEBIAN], stdin=packed.stdout, check=True)
