"""Worker processes: started, read, and ended when they hang."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from paddock.bench.runner.jobs import Job, to_json

_PACKAGE = Path(__file__).parents[3]
_START = (
    f"import sys; sys.path.append({str(_PACKAGE)!r}); from paddock.bench.runner.worker import main; main(sys.argv[1])"
)
_ENDS_WITHIN = 10.0
_LAST_WORDS = 300


class WorkerFailed(Exception):
    """The worker ended or was ended before its work was done. `hangs` is true where it had stopped answering."""

    def __init__(self, message: str, *, hangs: bool = False) -> None:
        super().__init__(message)
        self.hangs = hangs


def events(jobs: list[Job], ranks: int, environ: Mapping[str, str], seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the events of a worker, or of `ranks` that share the model.

    Raises WorkerFailed where it ends early, or says nothing for that many seconds. All processes end with the iterator.
    """
    with tempfile.TemporaryFile() as errors:
        processes = [_start(jobs, rank, ranks, port, environ, errors) for port in (_port(),) for rank in range(ranks)]
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_read, args=(processes[0].stdout, lines), daemon=True)
        reader.start()
        try:
            while True:
                try:
                    line = lines.get(timeout=seconds)
                except queue.Empty:
                    raise WorkerFailed(f"no answer within {seconds:g} s; it was ended", hangs=True) from None
                if line is None:
                    break
                with suppress(ValueError):
                    event = json.loads(line)
                    if isinstance(event, dict):
                        yield event
            code = processes[0].wait(_ENDS_WITHIN)
            if code:
                raise WorkerFailed(_ended(code, errors))
        except subprocess.TimeoutExpired:
            raise WorkerFailed("it does not end", hangs=True) from None
        finally:
            for process in processes:
                _kill(process)
            reader.join(_ENDS_WITHIN)


def _start(
    jobs: list[Job], rank: int, ranks: int, port: int, environ: Mapping[str, str], errors: IO[bytes]
) -> subprocess.Popen[str]:
    more = {}
    if ranks > 1:
        more = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        if jobs[0].device == "cpu":
            more["OMP_NUM_THREADS"] = max(1, (os.cpu_count() or ranks) // ranks)
    return subprocess.Popen(
        [sys.executable, "-c", _START, to_json(jobs)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
        stderr=errors,
        text=True,
        env={**environ, **{name: str(value) for name, value in more.items()}},
        start_new_session=True,
    )


def _read(stream: IO[str] | None, lines: queue.Queue[str | None]) -> None:
    if stream is not None:
        with stream:
            for line in stream:
                lines.put(line)
    lines.put(None)


def _ended(code: int, errors: IO[bytes]) -> str:
    errors.seek(0)
    text = errors.read().decode(errors="replace").strip()
    last = text.splitlines()[-1][:_LAST_WORDS] if text else "it printed nothing"
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}: {last}"
    return f"it failed ({code}): {last}"


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_ENDS_WITHIN)


def _port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
