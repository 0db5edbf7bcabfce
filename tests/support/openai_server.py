"""Stand-in for a server with OpenAI's interface: how it answers is a behaviour, or a body as it stands."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.support.http_server import Handler, serving

CALL = [
    {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}},
    {"index": 0, "function": {"arguments": '{"a": '}},
    {"index": 0, "function": {"arguments": "1}"}},
]
USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}


@dataclass
class StandIn:
    """Stand-in: `behaviour` is how it answers, or `body` what. `asked` has the bodies, `raw` their bytes."""

    behaviour: str = "answers"
    body: bytes = b""
    kind: str = "text/event-stream"
    key: str = ""
    model: str = "tiny"
    retry_after: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    connections: int = 0
    running: int = 0
    most: int = 0
    gate: threading.Event | None = None
    left: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""
    dropped: threading.Event = field(default_factory=threading.Event)

    def drop(self) -> None:
        """Close the connections of those that are silent."""
        self.dropped.set()


class _Handler(Handler):
    stand_in: StandIn
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.stand_in.connections += 1

    def do_GET(self) -> None:
        if not self._refused():
            self.send(200, {"data": [{"id": self.stand_in.model}]})

    def do_POST(self) -> None:
        stand_in = self.stand_in
        with stand_in.lock:
            stand_in.running += 1
            stand_in.most = max(stand_in.most, stand_in.running)
        try:
            if stand_in.gate:
                stand_in.gate.wait(60)
            self._answer()
        finally:
            with stand_in.lock:
                stand_in.running -= 1

    def _answer(self) -> None:
        raw = self.body()
        body = json.loads(raw)
        stand_in, behaviour = self.stand_in, self.stand_in.behaviour
        stand_in.asked.append({"path": self.path, **body})
        stand_in.raw.append(raw)
        if self._refused():
            return
        if behaviour == "takes no stream_options" and "stream_options" in body:
            self.send(422, {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]})
        elif behaviour.isdecimal():
            headers = {"Retry-After": stand_in.retry_after} if stand_in.retry_after else None
            words = f"a prompt of 9 tokens, {stand_in.key} and inner words"
            self.send(int(behaviour), {"error": {"message": words}}, headers)
        elif stand_in.body:
            self._raw(stand_in.body, stand_in.kind)
        elif behaviour == "silent":
            if body.get("stream"):
                self._head()
                self._event({"choices": [{"index": 0, "delta": {"content": "b"}}]})
            self.connection.settimeout(0.05)
            while not stand_in.dropped.is_set():
                with suppress(TimeoutError):
                    self.connection.recv(1)  # returns when the other side has closed
                    break
            stand_in.left.set()
            self.close_connection = True
        elif body.get("stream"):
            self._stream(body, behaviour)
        else:
            self._whole(body, behaviour)

    def _whole(self, body: dict[str, Any], behaviour: str) -> None:
        text = "b0 b1 b2 "
        content: dict[str, Any] = {"message": {"role": "assistant", "content": text}}
        document = {
            "id": "x", "model": self.stand_in.model, "usage": USAGE,
            "choices": [{"index": 0, **(content if "messages" in body else {"text": text}), "finish_reason": "stop"}],
        }  # fmt: skip
        if behaviour == "calls a tool":
            function = {"name": "look", "arguments": '{"a": 1}'}
            call = {"id": "c1", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            document["choices"] = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
        if behaviour == "states an error":
            document = {"error": {"message": "out of memory"}}
        if behaviour == "ends early":
            document["choices"] = [{**content, "finish_reason": None}]
        data = json.dumps(document).encode()
        if behaviour == "malformed":
            data = data[:-9]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data[:5] if behaviour == "closes" else data)
        self.close_connection = behaviour == "closes"

    def _stream(self, body: dict[str, Any], behaviour: str) -> None:
        self._head()
        if behaviour == "thinks":
            for _ in range(4):
                time.sleep(0.3)
                self._event({"choices": [{"delta": {"reasoning": "hm "}}]})
            self._event({"choices": [{"delta": {"content": "b"}, "finish_reason": "stop"}]})
            self._chunk(b"")
            return
        for number in range(3):
            text = f"b{number} "
            row: dict[str, Any] = {"delta": {"content": text}} if "messages" in body else {"text": text}
            if behaviour == "calls a tool":
                row = {"delta": {"content": None, "tool_calls": [CALL[number]]}}
            finish = "stop" if number == 2 else None
            self._event({"model": self.stand_in.model, "choices": [{"index": 0, **row, "finish_reason": finish}]})
            if behaviour in ("closes", "ends early", "malformed", "states an error"):
                if behaviour == "malformed":
                    self._chunk(b"data: {not JSON\n\n")
                if behaviour == "states an error":
                    self._event({"error": {"message": "out of memory"}})
                if behaviour != "closes":
                    self._chunk(b"")
                return
        if body.get("stream_options", {}).get("include_usage"):
            self._event({"choices": [], "usage": USAGE})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")
        self.close_connection = False

    def _head(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True  # only a whole body leaves it open

    def _raw(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refused(self) -> bool:
        wrong = bool(self.stand_in.key) and self.headers["Authorization"] != f"Bearer {self.stand_in.key}"
        if wrong:
            self.send(401, {})
        return wrong

    def _event(self, document: dict[str, Any]) -> None:
        self._chunk(f"data: {json.dumps(document)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


@contextmanager
def stand_in(**values: Any) -> Iterator[StandIn]:
    """Serve a stand-in on a free port."""
    made = StandIn(**values)
    with serving(type("Own", (_Handler,), {"stand_in": made})) as made.url:
        yield made
