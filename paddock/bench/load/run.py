"""Run of a load: the client in its own process, its exchanges read as they come."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from paddock.bench.load.answer import Answer, read_answer
from paddock.bench.load.client.messages import ClientUsage, Exchange, Plan

_PACKAGE = Path(__file__).parents[3]
"""The folder that holds `paddock`: the client is of the same version."""
_START = (
    f"import sys; sys.path.insert(0, {str(_PACKAGE)!r}); from paddock.bench.load.client.__main__ import main; main()"
)
_LAST_WORDS = 10.0
"""Seconds within which an interrupted client hands over what it has."""
TICK = 0.25
"""Seconds between two looks at the time while no answer comes."""


@dataclass
class Run:
    """Answers of a load, and how its client ended."""

    answers: list[Answer] = field(default_factory=list)
    usage: ClientUsage | None = None
    interrupted: bool = False
    client_error: str = ""


def run(plan: Plan, progress: Callable[[Run], None] = lambda _: None) -> Run:
    """Offer a load and return what came of it; `progress` is called often meanwhile.

    Ctrl-C ends the client, and what it has until then is the result, marked as interrupted.
    """
    result = Run()
    client = subprocess.Popen(
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # a Ctrl-C is this process's to handle
    )
    requests, exchanges, errors = _pipes(client)
    # A thread of its own: a Ctrl-C between reading a line and keeping it would lose an answer.
    reader = threading.Thread(target=_read, args=(exchanges, result), daemon=True)
    try:
        reader.start()
        requests.write(plan.line() + "\n")
        requests.flush()
        while reader.is_alive():
            progress(result)
            reader.join(TICK)
        progress(result)
    except KeyboardInterrupt:
        result.interrupted = True
        _close(requests)
        reader.join(_LAST_WORDS)
    except BrokenPipeError:
        pass
    finally:
        _close(requests)
        result.client_error = _end(client, errors)
        exchanges.close()
    result.answers.sort(key=lambda answer: answer.exchange.index)
    return result


def _read(stream: IO[str], result: Run) -> None:
    for line in stream:
        _add(line, result)


def _add(line: str, result: Run) -> None:
    try:
        message = json.loads(line)
    except ValueError:
        return  # half a line: the client was killed
    if "usage" in message:
        result.usage = ClientUsage(**message["usage"])
    else:
        result.answers.append(read_answer(Exchange.from_json(message)))


def _pipes(client: subprocess.Popen[str]) -> tuple[IO[str], IO[str], IO[str]]:
    if client.stdin is None or client.stdout is None or client.stderr is None:
        raise ValueError("a client without pipes")
    return client.stdin, client.stdout, client.stderr


def _end(client: subprocess.Popen[str], errors: IO[str]) -> str:
    """Wait for the client's end, which follows that of its input, and return the last line of its complaints."""
    try:
        client.wait(timeout=_LAST_WORDS)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()
    with errors:
        complaints = errors.read().strip()
    return complaints.splitlines()[-1] if complaints else ""


def _close(stream: IO[str]) -> None:
    with contextlib.suppress(BrokenPipeError):
        stream.close()
