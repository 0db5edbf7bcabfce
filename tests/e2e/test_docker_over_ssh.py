"""An engine that is reached by SSH, as `DOCKER_HOST=ssh://` has it: the real client, engine and server of SSH."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.images.docker import Docker
from tests.support.docker_engine import engine

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("docker-ssh")]


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of this user on an SSH server of the test's own, whose key the client takes."""
    engine()
    sshd = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if sshd is None or shutil.which("ssh") is None:
        pytest.skip("no sshd on PATH (Debian's openssh-server)")
    for name in ("host", "user"):
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(keygen, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = tmp_path / "sshd_config"
    settings.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/user.pub\n"
        f"PidFile none\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\n"
    )
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    (tmp_path / "bin").mkdir()
    client = tmp_path / "bin/ssh"
    client.write_text(
        f"#!/bin/sh\nexec {shutil.which('ssh')} -F /dev/null -i {tmp_path}/user -o UserKnownHostsFile={tmp_path}/known"
        ' -o StrictHostKeyChecking=accept-new "$@"\n'
    )
    client.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    server = subprocess.Popen([sshd, "-D", "-e", "-f", settings], stderr=subprocess.DEVNULL)
    try:
        _wait(port, server)
        yield f"ssh://{getpass.getuser()}@127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _wait(port: int, server: subprocess.Popen[bytes], seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("sshd did not start")


def test_an_image_is_built_read_and_removed_on_the_other_machine(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    remote = Docker.find(os.environ)
    context = tmp_path / "context"
    context.mkdir()
    (context / "program").write_text("a program\n")
    (context / "Dockerfile").write_text("FROM scratch\nCOPY program /opt/paddock/cuda/program\n")
    tag = f"paddock-test/over-ssh:{os.getpid()}"
    remote.build(context, tags=[tag], args={}, labels={}, progress="quiet")
    try:
        assert remote.image(tag)
        created = subprocess.run(["docker", "create", tag, "/none"], check=True, capture_output=True, text=True)
        container = created.stdout.strip()
        try:
            # As docs/platforms.md takes programs out of an image: no folder of the other machine is mounted.
            subprocess.run(["docker", "cp", f"{container}:/opt/paddock/cuda/.", tmp_path / "out"], check=True)
        finally:
            subprocess.run(["docker", "rm", container], check=True, capture_output=True)
        assert (tmp_path / "out/program").read_text() == "a program\n"
    finally:
        remote.remove(tag)
    assert remote.image(tag) is None
