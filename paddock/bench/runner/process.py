"""The worker process: started, read, and ended when it hangs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Mapping
from typing import Any

from pydantic import TypeAdapter

from paddock.bench.engines.door import BenchJob
from paddock.children import Child, Children, document, start_of

Jobs = TypeAdapter(list[BenchJob])
"""Jobs as JSON: the command line of a worker."""
_START = start_of("paddock.bench.runner.worker")
_ENDS_WITHIN = 10.0


class WorkerFailed(Exception):
    """The worker was ended before its work was done: it failed or hung."""


def events(jobs: list[BenchJob], environ: Mapping[str, str], seconds: float) -> Generator[dict[str, Any], None, None]:
    """Yield the events of a worker.

    Raises WorkerFailed where it ends early, or prints nothing for that many seconds. It ends with the iterator,
    and with this process.
    """
    with Children().started((sys.executable, "-c", _START, Jobs.dump_json(jobs).decode()), environ) as worker:
        while True:
            try:
                line = worker.line(seconds)
            except TimeoutError:
                raise WorkerFailed(f"no answer within {seconds:g} s; it was ended") from None
            if line is None:
                break
            if (event := document(line)) is not None:
                yield event
        if failure := _failure(worker):
            raise WorkerFailed(failure)


def _failure(worker: Child) -> str:
    """Return why a worker that has closed its output ended; empty where it did its work."""
    try:
        code = worker.code(_ENDS_WITHIN)
    except TimeoutError:
        return "it does not end"
    if code < 0:
        return f"it was ended by {signal.Signals(-code).name}: {worker.last_words()}"
    return f"it failed ({code}): {worker.last_words()}" if code else ""
