"""The real engine and a real registry: what is built, pushed and refused."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from paddock.images.docker import Docker
from paddock.images.errors import BuildError, BuildInputError
from tests.support import docker_engine
from tests.support.docker_engine import PASSWORD, USER
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("docker-engine")]

NAME = "paddock-test/engine"
ROOM = 100_000_000


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Docker:
    """Docker with settings of its own, so that no login of this machine is used; plugins are this machine's."""
    engine = docker_engine.engine()
    home = tmp_path_factory.mktemp("home")
    own = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins"
    (home / ".docker").mkdir()
    if own.is_dir():
        (home / ".docker" / "cli-plugins").symlink_to(own)
    environ = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    environ.pop("DOCKER_CONFIG", None)
    return Docker(engine.client, environ)


@pytest.fixture(scope="module")
def base() -> str:
    return docker_engine.debian_base()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with docker_engine.registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def remove(docker: Docker) -> Iterator[list[str]]:
    """References that go when the test ends."""
    references: list[str] = []
    yield references
    for reference in references:
        docker.remove(reference)


def context(folder: Path, *lines: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def build(docker: Docker, folder: Path, tag: str = f"{NAME}:failing", room_bytes: int = ROOM) -> None:
    docker.build(folder, tags=[tag], args={}, labels={}, progress="quiet", room_bytes=room_bytes)


def test_an_image_is_built_cached_run_pushed_and_never_moved(
    docker: Docker, base: str, registry: str, tmp_path: Path, remove: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = context(
        tmp_path / "app",
        f"FROM {base} AS tools",
        "ARG WORD",
        "RUN mkdir /small && cp --parents -L $(ldd /bin/sh /bin/cat /usr/bin/id | grep -o '/[^ ):]*') /small",
        "RUN echo $WORD > /small/word",
        "FROM scratch",
        "COPY --from=tools /small /",
        "ENV SPOKEN=loudly",
        "USER 1001",
    )
    tag = f"{registry}/{NAME}:1"
    remove += [tag, f"{registry}/{NAME}:2"]

    built = docker.build(folder, tags=[tag], args={"WORD": str(time.time_ns())}, labels={"a.b": "c d"})
    assert built.steps == 3
    assert re.search(r"\d s  \[tools 3/3\] RUN echo \d+ > /small/word", capsys.readouterr().err)

    image = docker.image(tag)
    assert image is not None
    assert (image.user, image.labels["a.b"]) == ("1001", "c d")
    assert image.environment["SPOKEN"] == "loudly"
    top = next(layer for layer in docker.layers(tag) if layer.size_bytes)
    assert top.created_by.startswith("COPY /small /")
    assert top.size_bytes > 1_000_000

    result = docker.run(
        tag,
        ["-c", "id -u; cat /in/x; echo $TOKEN $DOCKER_HOST; exit 4"],
        entrypoint="sh",
        volumes={_file(tmp_path, "x", "mounted"): "/in:ro"},
        environment={"TOKEN": "t", "DOCKER_HOST": "none"},
    )
    assert (result.code, result.stdout) == (4, "1001\nmounted\nt none\n")

    assert docker.remote_digest(tag) is None
    digest = docker.push(tag)
    assert docker.remote_digest(tag) == digest
    assert docker.push(tag) == digest

    moved = context(tmp_path / "moved", "FROM scratch", "COPY Dockerfile /word")
    remove.append(image.id)
    build(docker, moved, tag)
    with pytest.raises(BuildInputError, match=f"has this tag with another content, {digest}"):
        docker.push(tag)
    assert docker.remote_digest(tag) == digest

    docker.remove(tag)
    docker.pull(tag)
    assert docker.image(tag) == replace(image, digests=(f"{registry}/{NAME}@{digest}",))


def test_a_second_build_runs_nothing_with_the_images_cache(
    docker: Docker, base: str, registry: str, tmp_path: Path, remove: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    instruction = f"RUN echo {time.time_ns()} > /when"
    folder = context(tmp_path / "app", f"FROM {base} AS made", instruction, "FROM scratch", "COPY --from=made /when /")
    tag = f"{registry}/{NAME}:cached"
    remove.append(tag)
    docker.build(folder, tags=[tag], args={}, labels={}, progress="quiet")
    before = docker.image(tag)
    assert before is not None
    remove.append(before.id)  # its tag moves below
    second = docker.build(folder, tags=[tag], args={}, labels={}, progress="quiet", cache_from=[f"{tag}-gone"])

    assert (second.steps, second.cached) == (2, 2)

    docker.push(tag, progress="quiet")
    capsys.readouterr()
    docker.build(folder, tags=[tag], args={}, labels={}, progress="plain", cache_from=[tag])
    output = capsys.readouterr().err
    number = re.search(rf"#(\d+) importing cache manifest from {tag}\n", output)
    assert number
    assert f"#{number[1]} DONE" in output

    without = docker.build(folder, tags=[tag], args={}, labels={}, progress="quiet", no_cache=True)
    assert without.cached == 0


def test_a_failed_step_shows_its_last_lines_and_its_log(docker: Docker, base: str, tmp_path: Path) -> None:
    folder = context(tmp_path / "app", f"FROM {base}", "RUN for i in $(seq 500); do echo line $i; done; exit 41")

    with pytest.raises(BuildError) as error:
        build(docker, folder)

    message = str(error.value)
    assert "step [2/2] failed with exit code 41" in message
    assert "command: RUN for i in" in message
    numbers = re.findall(r"\| line (\d+)", message)
    assert numbers == [str(number) for number in range(481, 501)]
    log = Path(message.rpartition("the whole log: ")[2]).read_text(encoding="utf-8")
    assert "line 1\n" in log
    assert docker.image(f"{NAME}:failing") is None


FULL = "RUN dd if=/dev/zero of=/dev/shm/x bs=1M count=100"
FAILING = {
    "a misspelt base": (["FROM REGISTRY/nope:1", "RUN true"], "there is no image REGISTRY/nope:1", 2),
    "a base of a registry that is away": (["FROM localhost:1/a:1", "RUN true"], "localhost:1 cannot be reached", 1),
    "a Dockerfile with a mistake": (["FROM BASE", "RUNN true"], "unknown instruction: RUNN", 1),
    "a file that is not there": (["FROM BASE", "COPY nothere /x"], 'step [2/2] failed: "/nothere" not found', 1),
    "a disk that is full": (["FROM BASE", FULL], "docker builder prune", 1),
    "another processor's program": (["FROM BASE", "COPY --chmod=755 foreign /f", 'RUN ["/f"]'], "leave --platform", 1),
}


@pytest.mark.parametrize(("lines", "words", "code"), FAILING.values(), ids=FAILING)
def test_a_failed_build_is_one_message(
    docker: Docker, base: str, registry: str, tmp_path: Path, lines: list[str], words: str, code: int
) -> None:
    folder = context(tmp_path / "app", *(line.replace("BASE", base).replace("REGISTRY", registry) for line in lines))
    (folder / "foreign").write_bytes(_elf_of_another_machine())

    with pytest.raises(BuildError) as error:
        build(docker, folder)

    assert words.replace("REGISTRY", registry) in str(error.value)
    assert error.value.exit_code == code


def test_a_full_disk_is_reported_before_anything_is_built(docker: Docker, base: str, tmp_path: Path) -> None:
    folder = context(tmp_path / "app", f"FROM {base}", "RUN true")

    with pytest.raises(BuildInputError, match=r"GB are free in .*, and it needs about 1000000000\.0 GB"):
        build(docker, folder, room_bytes=10**18)


INTERRUPTED = """
import os, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from paddock.images.docker import Docker
Docker.find(os.environ).build(Path(sys.argv[1]), tags=[sys.argv[2]], args={}, labels={})
"""


def test_an_interrupted_build_leaves_no_image_and_nothing_running(docker: Docker, base: str, tmp_path: Path) -> None:
    seconds = f"600.{time.time_ns() % 10**6}"
    folder = context(tmp_path / "app", f"FROM {base}", f"RUN sleep {seconds}")
    words = [sys.executable, "-c", INTERRUPTED, str(folder), f"{NAME}:interrupted"]
    with subprocess.Popen(words, env=docker.environ, stderr=subprocess.PIPE) as building:
        until(lambda: _runs(f"sleep {seconds}"))
        start = time.monotonic()
        building.send_signal(signal.SIGINT)
        output = building.communicate()[1]

    assert b"KeyboardInterrupt" in output
    assert time.monotonic() - start < 60
    until(lambda: not _runs(f"sleep {seconds}"))
    assert docker.image(f"{NAME}:interrupted") is None


PUSHED = """
import os, sys
from paddock.images.docker import Docker
Docker.find(os.environ).push(sys.argv[1])
"""


def test_an_interrupted_push_to_a_stand_in_registry_ends_at_once(
    docker: Docker, tmp_path: Path, remove: list[str]
) -> None:
    uploads: list[str] = []

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            unknown = b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}'
            body = b"{}" if self.path == "/v2/" else unknown
            self.send_response(200 if body == b"{}" else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if self.command == "GET" else b"")

        do_HEAD = do_GET

        def do_POST(self) -> None:
            uploads.append(self.path)
            self.rfile.read(1)  # until the engine hangs up

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tag = f"127.0.0.1:{server.server_port}/{NAME}:1"
        remove.append(tag)
        build(docker, context(tmp_path / "app", "FROM scratch", "COPY Dockerfile /x"), tag)
        with subprocess.Popen([sys.executable, "-c", PUSHED, tag], env=docker.environ, stderr=subprocess.PIPE) as push:
            until(lambda: bool(uploads) or push.poll() is not None)
            start = time.monotonic()
            push.send_signal(signal.SIGINT)
            output = push.communicate(timeout=300)[1]
        took = time.monotonic() - start
        server.shutdown()

    assert b"KeyboardInterrupt" in output
    assert took < 60


def test_a_container_that_does_not_end_is_ended_and_removed(docker: Docker, base: str) -> None:
    seconds = f"600.{time.time_ns() % 10**6}"

    with pytest.raises(BuildError, match="did not end within 2 s"):
        docker.run(base, ["sleep", seconds], timeout_s=2)

    until(lambda: not _runs(f"sleep {seconds}"))


def test_a_registry_login_leaves_the_users_settings_alone(
    docker: Docker, base: str, tmp_path: Path, remove: list[str]
) -> None:
    settings = Path(docker.environ["HOME"]) / ".docker" / "config.json"
    folder = context(tmp_path / "app", "FROM scratch", "COPY Dockerfile /x")
    with docker_engine.registry(tmp_path, login=True) as registry:
        tag = f"{registry}/{NAME}:1"
        remove.append(tag)
        first = Docker(docker.client, docker.environ)
        build(first, folder, tag)
        with pytest.raises(BuildError, match=f"{registry} wants a login"):
            first.push(tag)
        with pytest.raises(BuildError, match="does not take this one") as error:
            first.login(registry, USER, "not it at all")
        assert "not it at all" not in str(error.value)

        first.login(registry, USER, PASSWORD)
        digest = first.push(tag)

        assert first.remote_digest(tag) == digest
        context(folder, f"FROM {registry}/{NAME}@{digest}", "COPY Dockerfile /y")
        build(first, folder, f"{NAME}:private")
        remove += [f"{NAME}:private", f"{registry}/{NAME}@{digest}"]
        with pytest.raises(BuildError, match="wants a login"):
            docker.remote_digest(tag)
        assert not settings.exists()


def test_an_unavailable_registry_is_reported_by_name(docker: Docker, base: str, remove: list[str]) -> None:
    docker.tag(base, f"localhost:1/{NAME}:1")
    remove.append(f"localhost:1/{NAME}:1")

    for ask in (docker.push, docker.pull, docker.remote_digest):
        with pytest.raises(BuildError, match="localhost:1 cannot be reached: connection refused"):
            ask(f"localhost:1/{NAME}:1")


def test_an_image_that_is_not_there(docker: Docker, registry: str) -> None:
    absent = f"{registry}/{NAME}:absent"

    assert docker.image(absent) is None
    docker.remove(absent)
    for ask in (docker.run, docker.layers, docker.push):
        with pytest.raises(BuildInputError, match="the engine has no image of this name"):
            ask(absent)
    with pytest.raises(BuildInputError, match="expected: a tag"):
        docker.push(f"{registry}/{NAME}@sha256:{'0' * 64}")
    with pytest.raises(BuildInputError, match=f"there is no image {absent}"):
        docker.pull(absent, platform="linux/amd64", progress="quiet")


def test_the_real_client_reports_an_unavailable_or_forbidden_engine(docker: Docker, tmp_path: Path) -> None:
    with pytest.raises(BuildInputError, match=r"daemon does not answer\n(.*\n)*.*/nothing\.sock"):
        Docker.find({**docker.environ, "DOCKER_HOST": f"unix://{tmp_path}/nothing.sock"})

    if os.geteuid() != 0 or shutil.which("setpriv") is None or docker.client.buildx:
        pytest.skip("only root can become a user who may not open the socket, and sees no plugin of root's then")
    (tmp_path / "docker").write_text(
        f'#!/bin/sh\nexec setpriv --reuid 65534 --regid 65534 --clear-groups {docker.client.path} "$@"\n'
    )
    (tmp_path / "docker").chmod(0o755)
    with pytest.raises(BuildInputError, match="socket may not be opened by this user"):
        Docker.find({**docker.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})


def _file(folder: Path, name: str, text: str) -> Path:
    (folder / "mounted").mkdir()
    (folder / "mounted" / name).write_text(f"{text}\n", encoding="utf-8")
    (folder / "mounted").chmod(0o755)
    return folder / "mounted"


def _elf_of_another_machine() -> bytes:
    program = bytearray(Path(sys.executable).resolve().read_bytes()[:4096])
    program[18:20] = (0x2B).to_bytes(2, sys.byteorder)  # SPARC V9
    return bytes(program)


def _runs(command: str) -> bool:
    return subprocess.run(["pgrep", "-f", f"^{re.escape(command)}$"], capture_output=True, check=False).returncode == 0
