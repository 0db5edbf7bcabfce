"""Calls with a time limit: Ray's own wait for a program that hangs as long as it does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from paddock.serve.errors import ServeError

_Answer = TypeVar("_Answer")


class Bounded:
    """Calls to another program, one after the other, each with a time limit. A late one is left behind in a thread."""

    def __init__(self, whom: str, seconds: float) -> None:
        self._whom, self._seconds = whom, seconds
        self._turn = threading.Lock()

    def __call__(self, work: Callable[[], _Answer]) -> _Answer:
        """Return what the work returns. Raises ServeError after the limit, and the errors of the work."""
        late = ServeError(f"{self._whom} does not answer within {self._seconds:g} s")
        if not self._turn.acquire(timeout=self._seconds):
            raise late
        outcomes: list[tuple[Any, BaseException | None]] = []

        def run() -> None:
            try:
                outcomes.append((work(), None))
            except BaseException as error:
                outcomes.append((None, error))
            finally:
                self._turn.release()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self._seconds)
        if not outcomes:
            raise late
        result, error = outcomes[0]
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]  # of the work that was given
