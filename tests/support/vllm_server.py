"""Stand-in for vLLM's program: its command line, its HTTP and its ways to end (vLLM 0.33, 2026-11), without a model.

It runs as `vllm serve MODEL ...`. VLLM_STAND_IN is a fault: `old` knows no --max-num-seqs, `memory` ends at load as a
full GPU ends it. It answers `max_tokens` words; the prompt `dies` ends the program in the middle of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

VERSION = "0.33.0"
DTYPES = ("auto", "bfloat16", "float", "float16", "float32", "half")
OUT_OF_MEMORY = """\
INFO 11-26 12:00:00 [api_server.py:1839] vLLM API server version 0.33.0
(EngineCore pid=7) ERROR 11-26 12:00:01 [core.py:708] EngineCore failed to start.
(EngineCore pid=7) ERROR 11-26 12:00:01 [core.py:708] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-26 12:00:01 [core.py:708] torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB
RuntimeError: Engine core initialization failed. See root cause above.
"""
METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:generation_tokens_total{engine="0",model_name="m"} 7.0
"""


def python(folder: Path, fault: str = "") -> Path:
    """Write a program that stands in for the Python of vLLM's environment, and return it."""
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\nif [ "$1" = -c ]; then echo {VERSION}; exit; fi\n'
        f'[ "$1 $2" = "-m vllm.entrypoints.cli.main" ] || exit 3\nshift 2\n'
        f'VLLM_STAND_IN={fault} exec {sys.executable} {__file__} "$@"\n'
    )
    program.chmod(0o755)
    return program


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vllm")
    serve = parser.add_subparsers(dest="command").add_parser("serve")
    serve.add_argument("model")
    serve.add_argument("--served-model-name", required=True)
    serve.add_argument("--host")
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--dtype", choices=DTYPES, default="auto")
    serve.add_argument("--max-model-len", type=int)
    serve.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    if os.environ["VLLM_STAND_IN"] != "old":
        serve.add_argument("--max-num-seqs", type=int)
    return parser.parse_args()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    name: str

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path in ("/health", "/metrics"):  # vLLM asks for its key below /v1 alone
            self._send(200, METRICS if self.path == "/metrics" else "")
        elif self._may_ask():
            self._send(200, json.dumps({"data": [{"id": self.name}]}))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._may_ask():
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(body["max_tokens"]):
            last = number == body["max_tokens"] - 1
            self._event({"choices": [{"index": 0, "text": f"w{number} ", "finish_reason": "length" if last else None}]})
            if body["prompt"] == "dies":
                sys.stdout.write("RuntimeError: CUDA error: an illegal memory access was encountered\n")
                sys.stdout.flush()
                os._exit(1)
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _may_ask(self) -> bool:
        right = self.headers["Authorization"] == f"Bearer {os.environ['VLLM_API_KEY']}"
        if not right:
            self._send(401, '{"error": "Unauthorized"}')
        return right

    def _event(self, document: dict[str, Any]) -> None:
        self._chunk(f"data: {json.dumps(document)}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _send(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


def main() -> None:
    arguments = parse()
    if os.environ["VLLM_STAND_IN"] == "memory":
        sys.exit(OUT_OF_MEMORY)
    Handler.name = arguments.served_model_name
    ThreadingHTTPServer((arguments.host, arguments.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
