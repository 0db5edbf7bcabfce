"""A stand-in for the path of a Kubernetes API that kwok has not: logs of pods, over TLS, with the server's limits."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from paddock.kubernetes.kubeconfig import Cluster
from paddock.lab.control_plane import certificates
from tests.support.http_server import Handler, serving


@dataclass
class Logs:
    """Logs by pod and whether they are of the container before. `forbidden` refuses all."""

    texts: dict[tuple[str, bool], bytes] = field(default_factory=dict)
    forbidden: bool = False
    honours_limits: bool = True
    seconds_a_piece: float = 0.0
    later: dict[str, bytes] = field(default_factory=dict)
    """What a container writes before it ends, for those that follow its log, after `silent` seconds."""
    silent: float = 0.2
    refusals: int = 0
    """Requests that come before the container runs."""
    asked: list[dict[str, str]] = field(default_factory=list)

    def answer(self, target: str) -> tuple[int, bytes]:
        path, query = urlsplit(target).path.split("/"), dict(parse_qsl(urlsplit(target).query))
        self.asked.append(query)
        namespace, pod = path[4], path[6]
        assert path[1:4] == ["api", "v1", "namespaces"]
        assert (path[5], path[7]) == ("pods", "log")
        if self.forbidden:
            user = f'User "someone" cannot get resource "pods/log" in API group "" in the namespace "{namespace}"'
            return 403, _status(403, "Forbidden", f'pods "{pod}" is forbidden: {user}')
        if self.refusals:
            self.refusals -= 1
            waits = f'container "{query["container"]}" in pod "{pod}" is waiting to start: ContainerCreating'
            return 400, _status(400, "BadRequest", waits)
        previous = query.get("previous") == "true"
        if (pod, previous) not in self.texts:
            message = f'previous terminated container "{query["container"]}" in pod "{pod}" not found'
            return 400, _status(400, "BadRequest", message)
        text = self.texts[pod, previous]
        if not self.honours_limits:
            return 200, text
        lines = text.splitlines(keepends=True)[-int(query["tailLines"]) :]
        return 200, b"".join(lines)[: int(query["limitBytes"])]


def _status(code: int, reason: str, message: str) -> bytes:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    return json.dumps({**body, "reason": reason, "message": message}).encode()


@contextmanager
def serve(logs: Logs, folder: Path) -> Iterator[Cluster]:
    """Yield the way to it, as a kubeconfig gives one."""

    class Requests(Handler):
        def do_GET(self) -> None:
            assert self.headers["Authorization"] == "Bearer token"
            status, body = logs.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if status == 200 else "application/json")
            self.end_headers()
            for start in range(0, len(body), 1 << 16):
                self.wfile.write(body[start : start + (1 << 16)])
                time.sleep(logs.seconds_a_piece)
            query = dict(parse_qsl(urlsplit(self.path).query))
            if status == 200 and query.get("follow") == "true":
                time.sleep(logs.silent)
                self.wfile.write(logs.later.get(urlsplit(self.path).path.split("/")[6], b""))

    identity = certificates.create(folder / "pki")
    with serving(Requests, identity) as url:
        yield Cluster("stand-in", url, ssl.create_default_context(cafile=str(identity.authority)), "token")
