"""Stand-in for vLLM's server: its command line, its HTTP and its ways to end, without a model.

It answers `max_tokens` words, or what the prompt says: `options` shows what it was asked with, `dies` ends the program
in the middle of the answer, `waits` answers one word and then nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ALLOWED_DTYPES = ("auto", "bfloat16", "float", "float16", "float32", "half")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="api_server")
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", required=True)
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--dtype", choices=ALLOWED_DTYPES, default="auto")
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    return parser.parse_args()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    arguments: argparse.Namespace

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(200, {})
        elif self._may_ask():
            self._send(200, {"data": [{"id": self.arguments.served_model_name}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._may_ask():
            return
        prompt = body.get("prompt") or body["messages"][-1]["content"]
        if len(prompt) > self.arguments.max_model_len:
            self._send(400, {"error": {"message": f"maximum context length is {self.arguments.max_model_len} tokens"}})
            return
        words = [f"w{number} " for number in range(body["max_tokens"])]
        if prompt == "options":
            words = [json.dumps({name: body[name] for name in sorted(body) if name not in ("model", "prompt")})]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, word in enumerate(words):
            last = number == len(words) - 1
            content = {"delta": {"content": word}} if "messages" in body else {"text": word}
            self._event({"choices": [{"index": 0, **content, "finish_reason": "length" if last else None}]})
            if prompt == "dies":
                sys.stdout.write("CUDA error: an illegal memory access was encountered\n")
                sys.stdout.flush()
                os._exit(1)
            if prompt == "waits":
                time.sleep(600)
        self._event({"choices": [], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(words)}})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _may_ask(self) -> bool:
        right = self.headers["Authorization"] == f"Bearer {os.environ['VLLM_API_KEY']}"
        if not right:
            self._send(401, {"error": "Unauthorized"})
        return right

    def _event(self, document: dict[str, Any]) -> None:
        self._chunk(f"data: {json.dumps(document)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(self, status: int, document: dict[str, Any]) -> None:
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def main() -> None:
    arguments = parse()
    if not (Path(arguments.model) / "config.json").exists():
        sys.exit(f"OSError: {arguments.model} does not appear to have a file named config.json")
    Handler.arguments = arguments
    started = {"pid": os.getpid(), "argv": sys.argv, "environ": dict(os.environ)}
    (Path(sys.prefix) / "started.json").write_text(json.dumps(started))
    ThreadingHTTPServer((arguments.host, arguments.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
