"""Worker processes: started, read, and ended when they hang or when one of them fails."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from paddock.bench.runner.jobs import Job, to_json
from paddock.children import Child, Children

_PACKAGE = Path(__file__).parents[3]
_START = (
    f"import sys; sys.path.append({str(_PACKAGE)!r}); from paddock.bench.runner.worker import main; main(sys.argv[1])"
)
_ENDS_WITHIN = 10.0


class WorkerFailed(Exception):
    """The workers were ended before their work was done: one failed or hung. `code` is the exit code for the job."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def events(
    jobs: list[Job], ranks: int, environ: Mapping[str, str], seconds: float
) -> Generator[dict[str, Any], None, None]:
    """Yield the events of a worker, or of the first of `ranks` that share the model.

    Raises WorkerFailed where one ends early, or where nothing is said for that many seconds: a rank that goes on alone
    would wait for the others in a sum. All processes end with the iterator, and with this process.
    """
    children, lines = Children(), queue.SimpleQueue[tuple[int, str | None]]()
    with ExitStack() as stack:
        port, workers = _port(), []
        for rank in range(ranks):
            command = (sys.executable, "-c", _START, to_json(jobs))
            worker = stack.enter_context(children.started(command, _environ(jobs, rank, ranks, port, environ)))
            workers.append(worker)
            threading.Thread(target=_read, args=(worker, rank, lines), daemon=True).start()
        yield from _events(workers, lines, seconds)


def _events(
    workers: Sequence[Child], lines: queue.SimpleQueue[tuple[int, str | None]], seconds: float
) -> Iterator[dict[str, Any]]:
    running = set(range(len(workers)))
    while running:
        patience = seconds if len(running) == len(workers) else _ENDS_WITHIN
        try:
            rank, line = lines.get(timeout=patience)
        except queue.Empty:
            silent = "no answer within" if patience == seconds else "it does not end within"
            raise WorkerFailed(f"{silent} {patience:g} s; it was ended") from None
        if line is None:
            if failure := _failure(workers[rank]):
                raise WorkerFailed(f"rank {rank}: {failure}" if len(workers) > 1 else failure)
            running.discard(rank)
            continue
        with suppress(ValueError):
            event = json.loads(line)
            if not isinstance(event, dict):
                continue
            if event.get("event") == "failed" and len(workers) > 1:
                raise WorkerFailed(event["message"], event["code"])
            if rank == 0:
                yield event


def _environ(jobs: Sequence[Job], rank: int, ranks: int, port: int, environ: Mapping[str, str]) -> dict[str, str]:
    if ranks == 1:
        return dict(environ)
    more = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    if jobs[0].device == "cpu":
        more["OMP_NUM_THREADS"] = max(1, (os.cpu_count() or ranks) // ranks)
    return {**environ, **{name: str(value) for name, value in more.items()}}


def _read(worker: Child, rank: int, lines: queue.SimpleQueue[tuple[int, str | None]]) -> None:
    while (line := worker.line(threading.TIMEOUT_MAX)) is not None:
        lines.put((rank, line))
    lines.put((rank, None))


def _failure(worker: Child) -> str:
    """Return why a worker that has closed its output ended; empty where it did its work."""
    try:
        code = worker.code(_ENDS_WITHIN)
    except TimeoutError:
        return "it does not end"
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}: {worker.last_words()}"
    return f"it failed ({code}): {worker.last_words()}" if code else ""


def _port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
