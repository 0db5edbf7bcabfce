"""Content and duration of a node's quarantine, against an HTTPS server in the API's place.

The permissions of the real API server are tested in tests/e2e/test_node_mark.py.
"""

from __future__ import annotations

import http.server
import json
import shutil
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.job_hooks import node
from paddock.lab.control_plane import certificates
from paddock.lab.control_plane.identity import Identity
from paddock.labels import REPLACE, REPLACE_SINCE

NODE = {"metadata": {"name": "n", "annotations": {"a": "b"}}, "spec": {}}


class Stand:
    """An HTTPS server that answers each request as `answer` says, and keeps what it was asked."""

    def __init__(self, identity: Identity) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.answer: Callable[[http.server.BaseHTTPRequestHandler], None] = lambda handler: send(handler, 200, NODE)
        stand = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_PATCH(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                stand.asked.append((self.path, self.headers["Authorization"], body))
                stand.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trust.load_cert_chain(identity.certificate, identity.key)
        self._server.socket = trust.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def environ(self) -> dict[str, str]:
        host, port = self._server.server_address[:2]
        return {"NODE_NAME": "n", "KUBERNETES_SERVICE_HOST": str(host), "KUBERNETES_SERVICE_PORT": str(port)}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def send(handler: http.server.BaseHTTPRequestHandler, status: int, answer: object) -> None:
    text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text)


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return certificates.create(tmp_path_factory.mktemp("identity"))


@pytest.fixture
def stand(identity: Identity) -> Iterator[Stand]:
    server = Stand(identity)
    yield server
    server.close()


@pytest.fixture
def root(tmp_path: Path, identity: Identity) -> Path:
    mounted = tmp_path / node.SECRETS
    mounted.mkdir(parents=True)
    (mounted / "token").write_text("t0ken\n")
    shutil.copy(identity.authority, mounted / "ca.crt")
    return tmp_path


def test_a_node_is_read_and_then_marked(stand: Stand, root: Path) -> None:
    message = node.mark("Xid 79 · lost", environ=stand.environ, root=root, timeout_s=60)
    assert message == "node n is marked for replacement, and takes no more jobs"
    (path, token, read_request), (_, _, marked) = stand.asked
    assert (path, token, read_request) == ("/api/v1/nodes/n", "Bearer t0ken", {})
    assert marked["spec"] == {"unschedulable": True}
    assert marked["metadata"]["annotations"].pop(REPLACE_SINCE).endswith("+00:00")
    assert marked["metadata"]["annotations"] == {REPLACE: "Xid 79   lost"}


def test_an_existing_mark_is_kept(stand: Stand, root: Path) -> None:
    there = {"metadata": {"annotations": {REPLACE: "Xid 48"}}, "spec": {"unschedulable": True}}
    stand.answer = lambda handler: send(handler, 200, there)
    message = node.mark("again", environ=stand.environ, root=root, timeout_s=60)
    assert message == "node n was marked for replacement already (Xid 48)"
    assert len(stand.asked) == 1


def test_a_node_that_people_gave_back_is_marked_anew(stand: Stand, root: Path) -> None:
    stand.answer = lambda handler: send(handler, 200, {**NODE, "metadata": {"annotations": {REPLACE: "Xid 48"}}})
    assert "is marked" in node.mark("again", environ=stand.environ, root=root, timeout_s=60)


@pytest.mark.parametrize("reason", ["", "\n", "é" * 300, "x" * 300, "tab\there \x1b[2J"])
def test_every_reason_is_one_that_the_policy_takes(reason: str, stand: Stand, root: Path) -> None:
    node.mark(reason, environ=stand.environ, root=root, timeout_s=60)
    written = stand.asked[-1][2]["metadata"]["annotations"][REPLACE]
    assert 1 <= len(written) <= 256
    assert all(" " <= letter <= "~" for letter in written)


def test_a_proxy_of_the_job_does_not_see_the_token(stand: Stand, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert "is marked" in node.mark("x", environ=stand.environ, root=root, timeout_s=60)


@pytest.mark.parametrize(("status", "answer", "expected"), [
    (403, {"message": "nodes is forbidden"}, "the Kubernetes API refused: nodes is forbidden"),
    (502, b"<html>", "the Kubernetes API refused: 502 Bad Gateway"),
    (302, b"", "the Kubernetes API refused: 302 Found"),
    (200, b"<html>", "JSONDecodeError"),
    (200, [], "TypeError"),
    (200, {}, "KeyError"),
])  # fmt: skip
def test_other_answers_are_reported(status: int, answer: object, expected: str, stand: Stand, root: Path) -> None:
    stand.answer = lambda handler: send(handler, status, answer)
    message = node.mark("x", environ=stand.environ, root=root, timeout_s=60)
    assert message.startswith("the node was not marked for replacement: ")
    assert expected in message
    assert len(stand.asked) == 1


def test_a_server_with_another_certificate_gets_no_token(stand: Stand, root: Path, tmp_path: Path) -> None:
    other = certificates.create(tmp_path / "other")
    shutil.copy(other.authority, root / node.SECRETS / "ca.crt")
    assert "CERTIFICATE_VERIFY_FAILED" in node.mark("x", environ=stand.environ, root=root, timeout_s=60)
    assert not stand.asked


def test_a_slow_server_does_not_extend_the_time_limit(stand: Stand, root: Path) -> None:
    ended = threading.Event()

    def trickle(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while not ended.wait(0.05) and time.monotonic() - start < 60:
            handler.wfile.write(b" ")
            handler.wfile.flush()
        handler.wfile.write(json.dumps(NODE).encode())

    stand.answer = trickle
    before = set(threading.enumerate())
    start = time.monotonic()
    try:
        message = node.mark("x", environ=stand.environ, root=root, timeout_s=0.5)
    finally:
        ended.set()
    assert time.monotonic() - start < 30
    assert message == "the node was not marked for replacement: the Kubernetes API did not answer within 0.5 s"
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
    assert not any(change for _, _, change in stand.asked), "what was told is true later on, too"


@pytest.mark.parametrize(("missing", "expected"), [
    ("NODE_NAME", "NODE_NAME is not set in this pod"),
    ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_HOST is not set in this pod"),
    ("token", "this pod has no token for it"),
    ("ca.crt", "this pod has no token for it"),
])  # fmt: skip
def test_a_pod_without_permission_reports_it(missing: str, expected: str, root: Path) -> None:
    environ = {"NODE_NAME": "n", "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "9"}
    environ.pop(missing, None)
    (root / node.SECRETS / missing).unlink(missing_ok=True)
    assert expected in node.mark("x", environ=environ, root=root, timeout_s=60)


def test_an_unreachable_api_is_reported(root: Path) -> None:
    environ = {"NODE_NAME": "n", "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "9"}
    message = node.mark("x", environ=environ, root=root, timeout_s=60)
    assert message.startswith("the node was not marked for replacement: the Kubernetes API cannot be reached: ")


def test_a_mark_without_an_answer_is_reported_as_unknown(stand: Stand, root: Path) -> None:
    released = threading.Event()

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        if any(change for _, _, change in stand.asked):
            released.wait(60)
        send(handler, 200, NODE)

    stand.answer = answer
    message = ""
    try:
        for seconds in (0.5, 20):  # a busy machine needs longer for the first answer
            message = node.mark("x", environ=stand.environ, root=root, timeout_s=seconds)
            if any(change for _, _, change in stand.asked):
                break
    finally:
        released.set()
    assert message.startswith("whether the node was marked for replacement is not known: ")
