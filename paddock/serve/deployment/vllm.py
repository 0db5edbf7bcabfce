"""Replica of a model that vLLM computes: its server is a child program, in an environment of Python of its own.

vLLM pins other versions of torch and transformers than Paddock, so that the two fit into no common environment.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import subprocess
import time
import urllib.request
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.openai.answers import Piece
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import Generation
from paddock.serve.deployment.external import Connections, External
from paddock.serve.engine.lease import largest_memory_part, lease_device, lease_share
from paddock.serve.engine.limits import resource_mode
from paddock.serve.engine.pace import Pace
from paddock.serve.engine.program import Program
from paddock.serve.engine.statistics import Counts
from paddock.serve.errors import ServeError, first_line
from paddock.serve.own.protocol import Spec

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""Formats of weights that vLLM takes as they are, by our names."""
_VERSION = "import importlib.metadata; print(importlib.metadata.version('vllm'))"
_VERSION_S, _LOOK_S, _ENDED_S = 60.0, 0.5, 2.0
_QUIET = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class _Server(External):
    """The child's interface, with a key that only this process and the child know."""

    secret: str = field(default="", repr=False)

    def key(self) -> str:
        return self.secret


class VllmReplica:
    """One model in vLLM's server, which batches by itself. It ends with this process.

    `python` is the interpreter of vLLM's environment on this machine. The server must answer within `seconds`.
    """

    def __init__(self, spec: Spec, mode: str, python: str, seconds: float) -> None:
        policy = resource_mode(mode)
        self._id = uuid.uuid4().hex[:12]
        self._version = vllm_version(python)
        self._counts, self._pace = Counts(spec.batch), Pace(policy.current())
        self._running, self._unloaded = 0, False
        self._lease = lease_device(spec.device, lease_share(policy))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        key, began = secrets.token_hex(16), time.monotonic()
        self._server = _Server(f"http://127.0.0.1:{port}", spec.shape.name, secret=key)
        # The key is in the child's environment: everybody on the machine can read a command line.
        self._program = Program(
            command(python, spec, largest_memory_part(policy), port), {**_QUIET, "VLLM_API_KEY": key}
        )
        try:
            self._wait(seconds)
        except BaseException:
            self._program.end()
            raise
        self._load_s = time.monotonic() - began
        self._connections = Connections()

    def _wait(self, seconds: float) -> None:
        """Wait until the server answers. Raises ServeError where it ends, or does not in time."""
        deadline = time.monotonic() + seconds
        while not self._answers():
            if why := self._program.ended():
                raise ServeError(f"vLLM {self._version} does not serve: {why}")
            if time.monotonic() > deadline:
                raise ServeError(f"vLLM {self._version} does not serve within {seconds:g} s")
            time.sleep(_LOOK_S)

    def _answers(self) -> bool:
        try:
            with _DIRECT.open(f"{self._server.url}/health", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    async def generate(self, generation: Generation) -> AsyncGenerator[Piece, None]:
        """Yield the answer as it grows. Raises RequestError. A caller that goes away ends the server's request."""
        arrived = time.monotonic()
        tokens, first, error, finish = 0, 0.0, None, ""
        self._counts.requests += 1
        self._running += 1
        self._counts.started(0.0, False, 0)
        try:
            async with aclosing(self._connections.generate(self._server, generation)) as pieces:
                async for piece in pieces:
                    first = first or time.monotonic() - arrived
                    tokens, finish = piece.new_tokens, piece.finish
                    self._counts.prompt_tokens += piece.prompt_tokens if finish else 0
                    yield piece
        except RequestError as stated:
            error = ServeError(str(stated))
            raise await self._stated(stated) from None
        finally:
            self._running -= 1
            self._counts.ended(not finish and error is None, error, tokens, first, time.monotonic() - arrived - first)

    async def _stated(self, error: RequestError) -> RequestError:
        """Return why a request has failed: its connection may break a moment before the server has ended."""
        if self._unloaded:
            return RequestError("the model has been unloaded", 502, "model_unloaded")
        deadline = time.monotonic() + _ENDED_S
        while error.code == "engine_error" and time.monotonic() < deadline:
            if ended := self._program.ended():
                return RequestError(f"vLLM has gone: {ended}", 502, "engine_error")
            await asyncio.sleep(0.05)
        return error

    def check_health(self) -> None:
        """Raise ServeError where the server has ended: Ray Serve asks, and starts an unhealthy replica anew."""
        if ended := self._program.ended():
            raise ServeError(f"vLLM has gone: {ended}")

    async def unload(self) -> None:
        """End the server, and with it the requests that run."""
        self._unloaded = True
        await asyncio.to_thread(self._program.end)

    def statistics(self) -> dict[str, Any]:
        """Return the counts of this replica since it was loaded; vLLM's own queue is not known."""
        return {
            "replica": self._id,
            **self._counts.document(0, self._running, self._pace),
            "refused_limits": [],
            "engine": f"vLLM {self._version}",
            "lease": self._lease.id if self._lease else None,
            "load_seconds": round(self._load_s, 3),
            "weight_bytes": None,
        }

    def __del__(self) -> None:
        """End the server and the lease: Ray Serve calls this when the replica ends."""
        if program := getattr(self, "_program", None):
            program.end()
        if lease := getattr(self, "_lease", None):
            lease.release()


def command(python: str, spec: Spec, memory: float, port: int) -> list[str]:
    """Return the command line of vLLM's server."""
    words = {
        "model": spec.source, "served-model-name": spec.shape.name, "host": "127.0.0.1", "port": port,
        "dtype": DTYPES[spec.dtype], "max-model-len": spec.length, "max-num-seqs": spec.batch,
        "gpu-memory-utilization": f"{memory:g}",
    }  # fmt: skip
    flags = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    return [python, "-m", "vllm.entrypoints.openai.api_server", *flags]


def vllm_version(python: str) -> str:
    """Return the version of vLLM in an environment. Raises ServeError where it has none."""
    fix = "it must be the Python of an environment with vLLM, on the machine that gets the model"
    if not (Path(python).is_file() and os.access(python, os.X_OK)):
        raise ServeError(f"--python: there is no program {python} on {socket.gethostname()}; {fix}")
    try:
        done = subprocess.run(
            [python, "-c", _VERSION], capture_output=True, text=True, timeout=_VERSION_S, check=False,
            env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServeError(f"--python: {python} cannot be asked for vLLM: {first_line(error)}") from None
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"code {done.returncode}"]
        raise ServeError(f"--python: {python} has no vLLM: {last[0]}; {fix}")
    return done.stdout.strip()
