"""Run of a load: the client in its own process, its exchanges read as they come."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from paddock.bench.load.answer import Answer, read_answer
from paddock.bench.load.client.messages import ClientUsage, Exchange, LoadPlan
from paddock.children import Child, Children, start_of

_START = start_of("paddock.bench.load.client.__main__", "main()", first=True)
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


def run(plan: LoadPlan, progress: Callable[[Run], None] = lambda _: None) -> Run:
    """Offer a load and return its outcome; `progress` is called often meanwhile.

    Ctrl-C ends the client, and what it has until then is the result, marked as interrupted.
    """
    result = Run()
    with Children().started((sys.executable, "-c", _START), os.environ) as client:
        # A thread of its own: a Ctrl-C between reading a line and keeping it would lose an answer.
        read = threading.Event()  # a thread that is joined when a Ctrl-C comes counts as ended
        threading.Thread(target=_read, args=(client, result, read), daemon=True).start()
        client.send(plan.line())
        try:
            while not read.wait(TICK):
                progress(result)
            progress(result)
        except KeyboardInterrupt:
            result.interrupted = True
            client.end_input()
            read.wait(_LAST_WORDS)
        if result.usage is None:
            result.client_error = client.last_words()
    result.answers.sort(key=lambda answer: answer.exchange.index)
    return result


def _read(client: Child, result: Run, read: threading.Event) -> None:
    try:
        for line in client.lines(math.inf):
            with suppress(ValueError):  # of half a line: the client was killed
                message = json.loads(line)
                if "usage" in message:
                    result.usage = ClientUsage(**message["usage"])
                else:
                    result.answers.append(read_answer(Exchange.from_json(message)))
    finally:
        read.set()
