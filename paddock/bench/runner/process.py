"""The worker process: started, read, and ended when it hangs."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import suppress
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
    """The worker was ended before its work was done: it failed or hung."""


def events(jobs: list[Job], environ: Mapping[str, str], seconds: float) -> Generator[dict[str, Any], None, None]:
    """Yield the events of a worker.

    Raises WorkerFailed where it ends early, or where nothing is said for that many seconds. It ends with the iterator,
    and with this process.
    """
    with Children().started((sys.executable, "-c", _START, to_json(jobs)), environ) as worker:
        while True:
            try:
                line = worker.line(seconds)
            except TimeoutError:
                raise WorkerFailed(f"no answer within {seconds:g} s; it was ended") from None
            if line is None:
                break
            with suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
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
