"""The gateway on a socket of its own, and clients before it."""

from __future__ import annotations

import hashlib
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from paddock.openai.sse import DONE, EventReader
from paddock.serve.admission.limits import Limits
from paddock.serve.gateway.app import Gateway
from paddock.serve.gateway.server import start
from paddock.serve.gateway.upstream import Upstream

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]
from tests.support.waiting import until


def row(id: str, url: str = "http://127.0.0.1:9", **more: Any) -> dict[str, Any]:
    """Return a serving instance; its server knows the model by its id."""
    upstream = Upstream(url, more.pop("served", id), key=more.pop("key", ""), key_file=more.pop("key_file", ""))
    base = {
        "id": id,
        "model": id,
        "state": "serving",
        "reason": "",
        "since": 1.0,
        "concurrency": 4,
        "engine": "llama.cpp",
    }
    return {**base, "upstream": upstream, **more}


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode()

    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def code(self) -> str:
        """Return the code of the error, of an answer or of the last event."""
        document = self.json() if not self.data.startswith((b"data", b"event")) else self.events()[-1]
        return str(document["error"]["code"])

    def events(self) -> list[Any]:
        reader = EventReader()
        events = [*reader.feed(0, self.data), *reader.end(0)]
        return [event.data if event.data == DONE else json.loads(event.data) for event in events]


@dataclass
class Door:
    """A gateway's address, its instances, and requests to it."""

    gateway: Gateway
    rows: list[dict[str, Any]]
    port: int = 0
    problem: Exception | None = None
    listed: int = 0
    key: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, path: str, body: Any = None, seconds: float = 60, **headers: Any) -> Answer:
        """Send a request, and return its answer as far as it came."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        sent = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        try:
            connection.request(method, path, data, {name: text for name, text in (sent | headers).items() if text})
            response = connection.getresponse()
            try:
                read = response.read()
            except http.client.IncompleteRead as error:
                read = error.partial
            return Answer(response.status, {name.lower(): text for name, text in response.headers.items()}, read)
        finally:
            connection.close()

    def post(self, body: Any, path: str = CHAT, **headers: Any) -> Answer:
        return self.ask("POST", path, body, **headers)

    def counts(self, model: str = "tiny") -> dict[str, Any]:
        """Return a model's counts once none of its requests runs: the last is counted after its last byte."""
        until(lambda: not self.gateway.statistics()[model]["running"])
        return self.gateway.statistics()[model]

    def ends(self) -> dict[str, int]:
        """Return how many requests ended how, as Prometheus reads it."""
        lines = self.ask("GET", "/metrics").text.splitlines()
        counts = [line.partition('{outcome="')[2].split('"} ') for line in lines if "requests_total{" in line]
        return {outcome: int(float(count)) for outcome, count in counts if float(count)}


@contextmanager
def door(*rows: dict[str, Any], key: str = "", **limits: Any) -> Iterator[Door]:
    """Serve a gateway before these instances; they may change while it runs."""
    listed = list(rows)

    async def models() -> list[dict[str, Any]]:
        made.listed += 1
        if made.problem:
            raise made.problem
        return listed

    keys = frozenset([hashlib.sha256(key.encode()).hexdigest()] if key else [])
    made = Door(Gateway(models, keys, Limits(**limits)), listed, key=key)
    running = start(made.gateway, "127.0.0.1", 0)
    made.port = running.port
    try:
        yield made
    finally:
        running.stop(1)


@contextmanager
def connect(door: Door, body: Any, path: str = CHAT) -> Iterator[http.client.HTTPResponse]:
    """Send a request and yield its answer as far as it has come: the head. The end of the block leaves."""
    connection = http.client.HTTPConnection("127.0.0.1", door.port, timeout=60)
    sent = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {door.key}"} if door.key else {})
    connection.request("POST", path, json.dumps(body).encode(), sent)
    response = connection.getresponse()
    try:
        yield response
    finally:
        response.close()
        connection.close()
