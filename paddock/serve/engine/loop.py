"""Continuous batching: one thread that lets waiting requests in between the steps of those that run.

A request joins as soon as a row is free and leaves at its end token, its length, or when its caller goes away. At most
one prompt is read between two steps, so that answers which run never wait for more than one.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from paddock.serve.admission.sampling import GREEDY, Sampling
from paddock.serve.engine.limits import Priority
from paddock.serve.engine.pace import Pace
from paddock.serve.engine.rows import InvalidLogits, OutOfMemory, Rows
from paddock.serve.engine.sampling import Draw, Sampler
from paddock.serve.engine.statistics import Counts
from paddock.serve.errors import ServeError

Finish = Literal["", "stop", "length"]


@dataclass(frozen=True, slots=True)
class Token:
    """Token of an answer. The last one has a `finish`: `stop` at the model's end token, or `length`."""

    id: int
    finish: Finish = ""


Deliver = Callable[[Token | ServeError], None]
"""Takes the tokens of one answer, in the loop's thread. An error is the last that comes."""


@dataclass(eq=False, slots=True)
class Job:
    """One request in the loop. Times are seconds of the loop's clock."""

    ids: Sequence[int]
    most: int
    end: Collection[int]
    deliver: Deliver
    arrived: float
    sampler: Sampler | None = None
    draw: Draw | None = None
    """Of its next token, until that is there: a step may be tried again."""
    started: float = 0.0
    first: float = 0.0
    tokens: int = 0
    last: int = 0
    """The newest token, which the next step reads."""
    cancelled: bool = False
    complete: bool = False
    """Its caller has all that it wants."""
    throttled: bool = False
    """A pause has delayed it while a row was free."""

    def next_draw(self) -> Draw | None:
        """Return how its next token is drawn; None for the most probable one."""
        if self.sampler and not self.draw:
            self.draw = self.sampler.draw()
        return self.draw

    @property
    def over(self) -> bool:
        return self.cancelled or self.complete


@dataclass(slots=True)
class Loop:
    """Requests of one replica over the rows of its model."""

    rows: Rows
    pace: Pace = field(default_factory=Pace)
    clock: Callable[[], float] = time.monotonic
    counts: Counts = field(init=False)
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _waiting: deque[Job] = field(default_factory=deque, init=False)
    _running: list[Job] = field(default_factory=list, init=False)
    _priority: Priority | None = field(default=None, init=False)
    _closed: bool = field(default=False, init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.counts = Counts(self.rows.slots)
        self._thread = threading.Thread(target=self._run, name="batching", daemon=True)
        self._thread.start()

    def submit(
        self, ids: Sequence[int], most: int, deliver: Deliver, end: Collection[int] = (), sampling: Sampling = GREEDY
    ) -> Job:
        """Put a request into the queue: a prompt and the most tokens of its answer. Raises ServeError."""
        with self._changed:
            if self._closed:
                raise ServeError("the replica is being ended")
            job = Job(ids, most, end, deliver, self.clock(), None if sampling.greedy else Sampler(sampling))
            self._waiting.append(job)
            self.counts.requests += 1
            self._changed.notify_all()
            return job

    def cancel(self, job: Job) -> None:
        """End a request whose caller has gone. Its row is free after the step that runs."""
        with self._changed:
            job.cancelled = not job.complete
            self._changed.notify_all()

    def finish(self, job: Job) -> None:
        """End a request as answered, since its caller has found its end. Its row is free after the step that runs."""
        with self._changed:
            job.complete = True
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread. Requests that wait or run get an error."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def statistics(self) -> dict[str, Any]:
        """Return the counts so far as JSON types."""
        with self._changed:
            document = self.counts.document(len(self._waiting), len(self._running), self.pace)
            return {**document, "refused_limits": list(self._priority.refused if self._priority else ())}

    def _run(self) -> None:
        self._priority = Priority()
        while self._wait():
            try:
                self._priority.follow(self.pace.current())
                self._drop_ended()
                if self._pauses():
                    continue
                if job := self._next():
                    self._join(job)
                if self._running and not self._pauses():
                    self._step()
            except Exception as error:  # a fault of the engine ends the requests that it has, and no others
                self._fail_all(_stated(error))
        self._fail_all(ServeError("the replica is being ended"), waiting=True)

    def _wait(self) -> bool:
        """Wait until there is something to do and the pause is over; False where the loop is closed."""
        with self._changed:
            while not self._closed:
                if not self._waiting and not self._running:
                    self._changed.wait()
                    continue
                now = self.clock()
                pause = self.pace.due(joining=not self._running) - now
                if pause <= 0 or any(job.over for job in (*self._waiting, *self._running)):
                    return True
                self._throttle()
                self._changed.wait(pause)
                self.pace.waited(min(pause, self.clock() - now))
        return False

    def _pauses(self) -> bool:
        return self.pace.due(joining=False) > self.clock()

    def _free_rows(self) -> int:
        return min(self.rows.slots, self.pace.batch_limit()) - len(self._running)

    def _throttle(self) -> None:
        """Note the requests that a pause delays: those for which a row is free."""
        for job in islice(self._waiting, max(0, self._free_rows())):
            job.throttled = True

    def _next(self) -> Job | None:
        """Return the request that may join now."""
        with self._changed:
            if not self._waiting or self._free_rows() < 1:
                return None
            if self.pace.due(joining=True) > self.clock():
                self._throttle()
                return None
            return self._waiting.popleft()

    def _join(self, job: Job) -> None:
        job.started = self.clock()
        self.counts.started(job.started - job.arrived, job.throttled, len(job.ids))
        self.pace.begin(job.started)
        try:
            draw = job.next_draw()
            token = self.rows.join(job.ids, [draw]) if draw else self.rows.join(job.ids)
        except Exception as error:
            self._end(job, _stated(error))
            return
        finally:
            self.pace.end(job.started, self.clock())
        job.first = self.clock()
        self._running.append(job)
        self._deliver([token], [job])

    def _step(self) -> None:
        began = self.clock()
        try:
            last, draws = [job.last for job in self._running], [job.next_draw() for job in self._running]
            tokens = self.rows.decode(last, draws) if any(draws) else self.rows.decode(last)
        except OutOfMemory as error:
            # The newest request leaves, and the others try the same step again.
            self._leave(max(self._running, key=lambda job: job.started), error)
            return
        finally:
            self.pace.end(began, self.clock())
        self.counts.step(len(tokens))
        self._deliver(tokens, list(self._running))

    def _deliver(self, tokens: Sequence[int | None], jobs: Sequence[Job]) -> None:
        """Hand out one token to each request, and let those go that end with it."""
        for job, token in zip(jobs, tokens, strict=True):
            if token is None:
                self._leave(job, InvalidLogits("the model's logits are not finite numbers: weights or device are bad"))
                continue
            job.tokens, job.last, job.draw = job.tokens + 1, token, None
            finish: Finish = "stop" if token in job.end else "length" if job.tokens == job.most else ""
            if finish:
                self._leave(job)  # before its caller, who ends the request then, has the last token
            try:
                job.deliver(Token(token, finish))
            except Exception:  # the caller's event loop has ended
                job.cancelled = not job.complete

    def _drop_ended(self) -> None:
        for job in [job for job in self._running if job.over]:
            self._leave(job)
        with self._changed:
            gone = [job for job in self._waiting if job.over]
            for job in gone:
                self._waiting.remove(job)
        for job in gone:
            self._end(job)

    def _leave(self, job: Job, error: ServeError | None = None) -> None:
        row = self._running.index(job)
        self.rows.leave(row)
        last = self._running.pop()
        if last is not job:
            self._running[row] = last
        self._end(job, error)

    def _end(self, job: Job, error: ServeError | None = None) -> None:
        with self._changed:
            self.counts.ended(job.cancelled, error, job.tokens, job.first - job.arrived, self.clock() - job.first)
        if error is not None:
            with contextlib.suppress(Exception):  # the caller's event loop has ended
                job.deliver(error)

    def _fail_all(self, error: ServeError, *, waiting: bool = False) -> None:
        while self._running:
            job = self._running.pop()
            with contextlib.suppress(Exception):  # of an engine that has failed
                self.rows.leave(len(self._running))
            self._end(job, error)
        while waiting and self._waiting:
            self._end(self._waiting.popleft(), error)


def _stated(error: Exception) -> ServeError:
    """Return a fault of the engine as what its callers get."""
    return error if isinstance(error, ServeError) else ServeError(f"the engine failed: {type(error).__name__}: {error}")
