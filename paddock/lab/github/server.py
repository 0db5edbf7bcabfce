"""The Actions service over HTTP, as an Enterprise Server would: `githubConfigUrl` is http://127.0.0.1:PORT/<org>.

Under `/_lab` is the lab's own control of it: jobs, runners, faults and the request log.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import select
import socket
import socketserver
import sys
import time
from collections import deque
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from paddock.lab.errors import LabError
from paddock.lab.github import rest, tokens
from paddock.lab.github.faults import Faults
from paddock.lab.github.messages import stamp
from paddock.lab.github.model import Object, Refused
from paddock.lab.github.service import Service
from paddock.lab.github.tokens import Tokens

CONTROL = "/_lab"
POLL_SECONDS = 20.0
"""Until the answer that nothing has happened. GitHub takes 50."""
_LARGEST_BODY = 1 << 20
_KEPT_REQUESTS = 2000
_LOOPBACK = ("127.0.0.1", "localhost")

_GRANTED = {
    "actions": "write",
    "administration": "write",
    "metadata": "read",
    "organization_administration": "read",
    "organization_self_hosted_runners": "write",
}
"""Permissions of every installation."""

Answer = tuple[int, object]


class Server(ThreadingHTTPServer):
    """Listens on loopback at once; `serve_forever` answers."""

    daemon_threads = True

    def __init__(
        self, port: int, folder: Path | None = None, *, token_seconds: float = tokens.LIFETIME_SECONDS
    ) -> None:
        """`folder` keeps its state over a restart; a `port` of 0 takes any. Raises LabError."""
        self.service = Service(folder / "state.json" if folder else None)
        self.tokens = Tokens(folder / "key" if folder else None, token_seconds)
        self.faults = Faults()
        self.requests: deque[Object] = deque(maxlen=_KEPT_REQUESTS)
        """The latest, with the status of their answers and without tokens."""
        self.poll_seconds = POLL_SECONDS
        self.owner = "acme"
        self.installation = 1
        """Owner at which runners last registered, and the installation that was last asked for: every one exists."""
        try:
            super().__init__((_LOOPBACK[0], port), Handler)
        except OSError as error:
            raise LabError(
                f"the stand-in for GitHub cannot listen on port {port} of {_LOOPBACK[0]}: {error.strerror}\n"
                "    fix: end what has the port, or ./inv lab.down, and the next lab takes another"
            ) from None

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's would ask a name service for our name
        self.server_name, self.server_port = _LOOPBACK[0], int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{_LOOPBACK[0]}:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a caller that is gone is not news
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 600

    def do(self) -> None:
        address = urlsplit(self.path)
        self.route, self.query = re.sub("//+", "/", address.path), dict(parse_qsl(address.query))
        self.body: Any = None
        headers: dict[str, str] = {}
        try:
            self.body = self._read()
            control = self.route == CONTROL or self.route.startswith(f"{CONTROL}/")
            if not control and (fault := self.server.faults.meet(self.command, self.route)) and fault.status:
                if fault.retry_after is not None:
                    headers["Retry-After"] = str(fault.retry_after)
                raise Refused(fault.status, "InjectedFault", "a fault that the lab was asked for")
            status, answer = _control(self) if control else _actions(self)
        except Refused as error:
            status, answer = error.status, {"typeName": error.kind, "message": str(error)}
        except LabError as error:  # its state cannot be written: the disk is full
            status, answer = 500, {"typeName": "LabError", "message": str(error)}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            status, answer = 400, {"typeName": "BadRequest", "message": f"this body does not have the form: {error!r}"}
        if not self.route.startswith(CONTROL) and status != 202:
            # Before the tenant's own paths tokens travel in bodies too.
            recorded = self.body if self.route.startswith("/tenant/") else None
            request = {"method": self.command, "path": self.path, "status": status, "body": recorded}
            self.server.requests.append({"at": time.time(), "agent": self.headers.get("User-Agent", ""), **request})
        self._write(status, answer, headers)

    do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = do

    def log_message(self, format: str, *args: object) -> None:
        pass

    @property
    def authorization(self) -> str:
        return self.headers.get("Authorization", "")

    def connected(self) -> bool:
        """Return whether the client still waits for the answer."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        if not readable:
            return True
        with contextlib.suppress(OSError):
            return bool(self.connection.recv(1, socket.MSG_PEEK))
        return False

    def _read(self) -> Any:
        # A web page can send requests to any address of this machine, but not with this host name or content type.
        if urlsplit(f"//{self.headers.get('Host', '')}").hostname not in _LOOPBACK:
            raise Refused(403, "Forbidden", f"expected: Host: {_LOOPBACK[0]}")
        length = int(self.headers.get("Content-Length") or 0)
        if length > _LARGEST_BODY:
            self.close_connection = True
            raise Refused(413, "TooLarge", f"a body of {length} bytes; expected: at most {_LARGEST_BODY}")
        raw = self.rfile.read(length)
        if raw.strip() and "json" not in self.headers.get("Content-Type", "application/json"):
            raise Refused(415, "UnsupportedMediaType", "expected: Content-Type: application/json")
        return json.loads(raw) if raw.strip() else None

    def _write(self, status: int, answer: object, headers: Mapping[str, str]) -> None:
        raw = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Type": "application/json", "Content-Length": str(len(raw))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(raw)
        self.wfile.flush()


def _control(call: Handler) -> Answer:
    """Answer the lab's own control."""
    service, body = call.server.service, call.body or {}
    match call.command, call.route.removeprefix(CONTROL).strip("/").split("/"):
        case "GET", [""]:
            return 200, {"name": "paddock lab: stand-in for GitHub's Actions service"}
        case "POST", ["jobs"]:
            return 201, service.push(body)
        case "GET", ["jobs"]:
            return 200, service.jobs()
        case "GET", ["jobs", number] if number.isdecimal():
            return 200, service.job(int(number))
        case "DELETE", ["jobs", number] if number.isdecimal():
            return 200, service.cancel(int(number))
        case "GET", ["sets"]:
            return 200, service.sets()
        case "GET", ["runners"]:
            return 200, service.known_runners()
        case "POST", ["runners", name, "online"]:
            return 200, service.online(name, body)
        case "POST", ["runners", name, "ended"]:
            return 200, service.ended(name, str(body["result"]), lost=bool(body.get("lost")))
        case "GET", ["requests"]:
            return 200, list(call.server.requests)
        case "DELETE", ["requests"]:
            call.server.requests.clear()
            return 204, None
        case "POST", ["faults"]:
            call.server.faults.add(body)
            return 204, None
        case "DELETE", ["faults"]:
            call.server.faults.clear()
            return 204, None
    raise Refused(404, "NotFound", f"no {call.command} {call.route}")


def _actions(call: Handler) -> Answer:
    """Answer ARC: tokens under /api/v3, then the tenant's paths, then its message queue."""
    if call.route.startswith("/tenant/_apis/"):
        return _tenant(call, call.route.removeprefix("/tenant/_apis/").strip("/"))
    if queue := re.fullmatch(r"/queue/([0-9a-f-]+)(?:/(\d+))?", call.route):
        return _queue(call, queue[1], queue[2])
    issuer, ends = call.server.tokens, stamp(time.time() + call.server.tokens.lifetime)
    match call.command, call.route.removeprefix("/api/v3"):
        case "POST", path if re.fullmatch(r"/app/installations/\d+/access_tokens", path):
            tokens.check_app_token(call.authorization)
            return 201, {"token": issuer.make("installation"), "expires_at": ends}
        case "GET", "/app":
            return 200, {"id": tokens.check_app_token(call.authorization), "slug": "paddock-lab"}
        case "GET", path if number := re.fullmatch(r"/app/installations/(\d+)", path):
            tokens.check_app_token(call.authorization)
            call.server.installation = int(number[1])
            return 200, {"id": int(number[1]), "account": {"login": call.server.owner}, "permissions": _GRANTED}
        case "GET", path if re.fullmatch(r"/repos/[^/]+/[^/]+/installation", path):
            tokens.check_app_token(call.authorization)
            return 200, {"id": call.server.installation}
        case "POST", path if path.endswith("/actions/runners/registration-token"):
            issuer.check_login(call.authorization)
            call.server.owner = path.split("/")[2]
            return 201, {"token": issuer.make("registration"), "expires_at": ends}
        case "POST", "/actions/runner-registration":
            issuer.check(call.authorization, "registration", scheme="RemoteAuth")
            return 200, {"url": f"{call.server.url}/tenant/", "token": issuer.make("tenant")}
    if call.route.startswith("/api/v3/"):
        issuer.check_login(call.authorization)
        return rest.answer(call.server.service, call.command, call.route.removeprefix("/api/v3"), call.query, call.body)
    raise Refused(404, "NotFound", f"no {call.command} {call.route}")


def _tenant(call: Handler, path: str) -> Answer:
    service, body, issuer = call.server.service, call.body, call.server.tokens
    acquired = re.fullmatch(r"runtime/runnerscalesets/(\d+)/acquirejobs", path)
    if acquired and call.command == "POST":
        issuer.check(call.authorization, "queue", acquired[1])
        got = service.acquire(int(acquired[1]), body)
        return 200, {"count": len(got), "value": got}
    issuer.check(call.authorization, "tenant")
    match call.command, path.split("/"):
        case "GET", ["runtime", "runnergroups"]:
            return 200, _listed([service.group(call.query["groupName"])])
        case "GET", ["runtime", "runnerscalesets"]:
            group = call.query.get("runnerGroupId")
            return 200, _listed(service.sets(call.query.get("name"), int(group) if group else None))
        case "POST", ["runtime", "runnerscalesets"]:
            return 200, service.create_set(body)
        case "GET", ["runtime", "runnerscalesets", number]:
            return 200, service.scale_set(int(number))
        case "PATCH", ["runtime", "runnerscalesets", number]:
            return 200, service.update_set(int(number), body)
        case "DELETE", ["runtime", "runnerscalesets", number]:
            service.delete_set(int(number))
            return 204, None
        case "POST", ["runtime", "runnerscalesets", number, "generatejitconfig"]:
            runner = service.register(int(number), str(body["name"]))
            encoded = base64.b64encode(json.dumps({".runner": runner["name"]}).encode()).decode()
            return 200, {"runner": runner, "encodedJITConfig": encoded}
        case "POST", ["runtime", "runnerscalesets", number, "sessions"]:
            return 200, _opened(call, service.open_session(int(number), str(body["ownerName"])), number)
        case "PATCH", ["runtime", "runnerscalesets", number, "sessions", session]:
            return 200, _opened(call, service.renew_session(session), number)
        case "DELETE", ["runtime", "runnerscalesets", _, "sessions", session]:
            service.close_session(session)
            return 204, None
        case "GET", ["distributedtask", "pools", "0", "agents"]:
            return 200, _listed(service.runners(call.query.get("agentName")))
        case "GET", ["distributedtask", "pools", "0", "agents", number]:
            return 200, service.runner(int(number))
        case "DELETE", ["distributedtask", "pools", "0", "agents", number]:
            service.remove_runner(int(number))
            return 204, None
    raise Refused(404, "NotFound", f"no {call.command} {call.route}")


def _queue(call: Handler, session: str, message: str | None) -> Answer:
    service = call.server.service
    call.server.tokens.check(call.authorization, "queue", str(service.set_of(session)))
    if message is not None and call.command == "DELETE":
        service.acknowledge(session, int(message))
        return 204, None
    if message is None and call.command == "GET":
        room = call.headers.get("X-ScaleSetMaxCapacity")
        last, capacity = int(call.query.get("lastMessageId", 0)), int(room) if room else None
        polled = service.poll(session, last, capacity, call.server.poll_seconds, call.connected)
        return (200, polled) if polled else (202, None)
    raise Refused(404, "NotFound", f"no {call.command} {call.route}")


def _opened(call: Handler, session: Object, number: str) -> Object:
    queue = f"{call.server.url}/queue/{session['sessionId']}"
    token = call.server.tokens.make("queue", number)
    return {**session, "messageQueueUrl": queue, "messageQueueAccessToken": token}


def _listed(items: list[Object]) -> Object:
    return {"count": len(items), "value": items}
