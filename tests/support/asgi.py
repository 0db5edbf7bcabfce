"""Calls of an ASGI application, as a server makes them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Response:
    status_code: int
    headers: dict[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


Messages = list[dict[str, Any]]
LOCAL = {"host": "localhost:8000", "content-type": "application/json"}
"""Headers of a program on the gateway's machine."""


def request(method: str, path: str, headers: dict[str, str]) -> dict[str, Any]:
    """Return the scope of a request of this machine. An empty header is left out."""
    sent = {name: value for name, value in {**LOCAL, **headers}.items() if value}
    return {
        "type": "http", "method": method, "path": path, "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
    }  # fmt: skip


async def call(app: Any, method: str, path: str, messages: Messages, headers: dict[str, str]) -> Response:
    """Call the application as a server does, which sends these messages and then nothing more."""
    sent: Messages = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        await asyncio.Event().wait()
        raise AssertionError("nothing comes")

    async def send(message: Any) -> None:
        sent.append(message)

    await app(request(method, path, headers), receive, send)
    start, *parts = sent
    text = b"".join(part.get("body", b"") for part in parts).decode()
    return Response(start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, text)


def content(body: Any) -> Messages:
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return [{"type": "http.request", "body": data}]
