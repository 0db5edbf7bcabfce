"""Instances as the scheduler lists them, kept for a moment. One reading at a time serves all requests that wait for it.

A scheduler that does not answer stops no request: the known list stays in use, and who runs is in it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from paddock.serve.admission.limits import RequestError

Row = Mapping[str, Any]
_FRESH_S = 0.5
_APART_S = 0.02
"""Seconds between the starts of two readings: names that do not exist cost no more than these."""
_READ_S = 5.0


class Listing:
    """Rows of the instances. `read` asks the scheduler for them, and `changed` gets what it answered."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Iterable[Row]]],
        changed: Callable[[Iterable[Row]], None] = lambda rows: None,
    ) -> None:
        self._read, self._changed = read, changed
        self._rows: tuple[Row, ...] | None = None
        self._began = self._ended = 0.0
        self._reading: asyncio.Task[None] | None = None
        self.problem = ""
        """Why the last reading failed; empty where it did not."""

    @property
    def known(self) -> tuple[Row, ...]:
        """Return what was read last."""
        return self._rows or ()

    async def rows(self) -> tuple[Row, ...]:
        """Return the rows at once, and have older ones read again. Raises RequestError before the first reading."""
        return await self.newer() if self._rows is None else self.poll()

    def poll(self) -> tuple[Row, ...]:
        """Return what was read last, and have it read again where that is some time ago."""
        if time.monotonic() - self._ended > _FRESH_S:
            self._start()
        return self.known

    async def newer(self) -> tuple[Row, ...]:
        """Return rows that are read from now on; the known ones where that fails. Raises RequestError without any."""
        requested, began = time.monotonic(), -1.0
        while began < requested:
            reading = self._start()
            await asyncio.shield(reading)
            began = self._began
        if self._rows is None:
            raise RequestError(f"the models are not known yet: {self.problem}", 503, "scheduler_unavailable", retry_s=2)
        return self._rows

    def _start(self) -> asyncio.Task[None]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._refresh())
        return self._reading

    async def _refresh(self) -> None:
        await asyncio.sleep(max(0.0, self._began + _APART_S - time.monotonic()))
        self._began = time.monotonic()
        try:
            async with asyncio.timeout(_READ_S):
                self._rows = tuple(await self._read())
            self._changed(self._rows)
            self.problem = ""
        except TimeoutError:
            self.problem = f"the scheduler does not answer within {_READ_S:g} s"
        except Exception as error:  # of the scheduler's process, or of the way to it
            self.problem = f"the scheduler does not answer: {type(error).__name__}"
            print(f"gateway: {self.problem}: {error}", file=sys.stderr)  # noqa: T201 - goes to the actor's log
        finally:
            self._ended = time.monotonic()


def choose(rows: Iterable[Row], name: str, load: Callable[[str], float]) -> Row | None:
    """Return the instance of that model that serves and has least to do, else the one of that id; None where none is.

    An instance that does not serve is returned only where no other one has the name. The first instance of a model
    has the model's name as its id: it stands for all of them.
    """
    listed = list(rows)
    named = [row for row in listed if row["model"] == name] or [row for row in listed if row["id"] == name]
    serving = [row for row in named if row["state"] == "serving"]
    return min(serving, key=lambda row: load(row["id"]), default=next(iter(named), None))


def concurrency(row: Row) -> int:
    """Return how many requests an instance answers at once."""
    return int(row.get("concurrency") or 1)
