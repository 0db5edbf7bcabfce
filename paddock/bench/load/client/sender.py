"""Sender: the two loops, and one exchange of either."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from email.message import Message
from email.utils import parsedate_to_datetime

from paddock.bench.load.client.messages import Exchange, LoadPlan
from paddock.bench.load.workload import Request
from paddock.openai.body import MOST_BYTES, until_done
from paddock.openai.errors import ExchangeError, Failure
from paddock.openai.http import HttpClient

REFUSAL_PAUSE = 1.0
"""Seconds that a user of a closed loop waits after a request that failed, unless the server says how long."""
LONGEST_PAUSE = 60.0
_REFUSALS = (429, 503)


class Sender:
    """Sender of one plan; `emit` gets each exchange when it ends."""

    def __init__(self, plan: LoadPlan, emit: Callable[[Exchange], None]) -> None:
        self._plan, self._emit = plan, emit
        self._http = HttpClient(plan.target.origin, plan.target.headers, verify=plan.target.verify)
        self._start = time.monotonic()

    async def run(self) -> None:
        """Offer the whole load. Cancelled, it emits what is under way as interrupted."""
        try:
            await (self._open_loop() if self._plan.arrivals else self._closed_loop())
        finally:
            self._http.close()

    def now(self) -> float:
        """Return the seconds since the load began."""
        return time.monotonic() - self._start

    async def _open_loop(self) -> None:
        """Send each request at its own time, whatever became of the earlier ones."""
        plan = self._plan
        self._start = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for request, arrival in zip(plan.all_requests(), plan.arrivals, strict=True):
                body = plan.target.request_body(request, plan.seed)
                await asyncio.sleep(max(0.0, arrival - self.now()))
                tasks.create_task(self._send(request, body, arrival))

    async def _closed_loop(self) -> None:
        """Let each user send the next request when the last one ended; the warm-up's users simply go on."""
        requests = self._until_the_end(self._plan.all_requests())
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._plan.concurrency):
                tasks.create_task(self._user(requests))

    async def _user(self, requests: Iterator[Request]) -> None:
        for request in requests:
            body = self._plan.target.request_body(request, self._plan.seed)
            await asyncio.sleep(await self._send(request, body, None))

    def _until_the_end(self, requests: Iterator[Request]) -> Iterator[Request]:
        deadline = None
        for request in requests:
            if request.index == self._plan.warm_up and self._plan.duration is not None:
                deadline = self.now() + self._plan.duration
            if deadline is not None and self.now() >= deadline:
                return
            yield request

    async def _send(self, request: Request, body: bytes, arrival: float | None) -> float:
        """Exchange one request for its answer and return the pause, in seconds, that the answer asks for."""
        sent, plan = self.now(), self._plan
        scheduled = sent if arrival is None else arrival
        blank = Exchange(request.index, scheduled, sent, sent, request.new, request.index < plan.warm_up)
        ended, headers = await exchanged(
            self._http, ("POST", plan.target.path, body), blank, self.now, plan.timeout, self._emit
        )
        if headers is not None and ended.status in _REFUSALS:
            return retry_after(headers)
        reached = ended.failure is None or ended.failure.kind in ("timeout", "HTTP status")
        return 0.0 if reached else REFUSAL_PAUSE


async def exchanged(
    http: HttpClient, asked: tuple[str, str, bytes], blank: Exchange, now: Callable[[], float], seconds: float,
    emit: Callable[[Exchange], None] = lambda _: None,
) -> tuple[Exchange, Message | None]:  # fmt: skip
    """Exchange a request, of method, path and body, for its answer, and return it with the answer's headers.

    `blank` is what is known of it before, `emit` gets it when it ends, also where it is cancelled.
    """
    pieces: list[tuple[float, bytes]] = []
    status, failure, headers = None, None, None
    try:
        async with asyncio.timeout(seconds):
            response = await http.request(*asked)
            status, headers = response.status, response.headers
            async for piece in until_done(response.pieces, MOST_BYTES):
                pieces.append((now(), piece))
            failure = Failure("HTTP status", str(status)) if status != 200 else None
    except ExchangeError as error:
        failure = error.failure
    except TimeoutError:
        failure = Failure("timeout", f"no whole answer within {seconds:g} s")
    except asyncio.CancelledError:
        failure = Failure("interrupted", "the load was interrupted")
        raise
    finally:
        ended = replace(blank, ended=now(), status=status, pieces=tuple(pieces), failure=failure)
        emit(ended)
    return ended, headers


def retry_after(headers: Message) -> float:
    """Return the seconds that a refusal asks to wait, at most LONGEST_PAUSE.

    A date is compared with the server's own date, so that this machine's clock does not count.
    """
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        return min(float(text), LONGEST_PAUSE)
    try:
        seconds = (parsedate_to_datetime(text) - parsedate_to_datetime(headers["Date"])).total_seconds()
    except (ValueError, TypeError):
        return REFUSAL_PAUSE
    return min(max(seconds, 0.0), LONGEST_PAUSE)
