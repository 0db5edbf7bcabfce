"""Listener of one scale set, as ARC's: it holds the session, receives messages, and acquires the offered jobs."""

from __future__ import annotations

import contextlib
import http
import json
import threading
from collections.abc import Callable

from paddock.lab.control_plane import daemon
from paddock.lab.errors import LabError
from paddock.lab.github.client import Actions, ActionsError, Object

_PATIENCE_SECONDS = (0.5, 1.0, 2.0, 5.0)
"""Between attempts, while GitHub refuses or does not answer."""


class Listener(threading.Thread):
    """The thread of one scale set. It runs until `end`, whatever GitHub answers."""

    def __init__(
        self, actions: Callable[[], Actions], number: int, owner: str, room: int, changed: Callable[[], None]
    ) -> None:
        """`actions` gives a client; one is for the caller's thread.

        `room`: how many jobs the set can have at once. `changed` is called when there may be more or less to do.
        """
        super().__init__(name=f"listener-{number}", daemon=True)
        self.number, self.room = number, room
        self.assigned: int | None = None
        """Jobs of the set by the last message; None before the first."""
        self._actions, self._callers, self._owner, self._changed = actions(), actions(), owner, changed
        self._session: Object | None = None
        self.started: dict[str, Object] = {}
        """GitHub's message that a job started, by the name of its runner."""
        self._over = threading.Event()

    def run(self) -> None:
        failures = 0
        while not self._over.is_set():
            try:
                self._open()
                failures = 0
                self._listen()
            except (LabError, KeyError, ValueError, TypeError) as error:
                if self._over.is_set():
                    return
                daemon.log(f"{self._owner}: {error}")
                if not (isinstance(error, ActionsError) and error.status in (0, http.HTTPStatus.TOO_MANY_REQUESTS)):
                    self._session = self._renewed()
                wait = _PATIENCE_SECONDS[min(failures, len(_PATIENCE_SECONDS) - 1)]
                failures += 1
                retry_after = error.retry_after if isinstance(error, ActionsError) else None
                self._over.wait(max(wait, retry_after or 0.0))

    def end(self) -> None:
        """Stop, and close the session."""
        self._over.set()
        if self._session:
            with contextlib.suppress(LabError):
                self._callers.close_session(self.number, self._session)

    def _open(self) -> None:
        if self._session is None:
            self._session = self._actions.open_session(self.number, self._owner)
            self._take(self._session["statistics"])

    def _listen(self) -> None:
        last = 0
        while not self._over.is_set() and self._session:
            message = self._actions.poll(self._session, last, self.room)
            if message is None:
                continue
            last = int(message["messageId"])
            self._actions.acknowledge(self._session, last)
            messages = json.loads(message["body"]) if message["body"] else []
            offered = [int(job["runnerRequestId"]) for job in messages if job["messageType"] == "JobAvailable"]
            self.started |= {str(job["runnerName"]): job for job in messages if job["messageType"] == "JobStarted"}
            if offered:
                self._actions.acquire(self.number, self._session, offered)
            self._take(message["statistics"])

    def _take(self, statistics: Object) -> None:
        self.assigned = int(statistics["totalAssignedJobs"])
        self._changed()

    def _renewed(self) -> Object | None:
        """Return the session with a new token; None where it has ended, and another must be opened."""
        if self._session is None:
            return None
        try:
            return self._actions.renew_session(self.number, self._session)
        except LabError as error:
            expired = isinstance(error, ActionsError) and error.status == http.HTTPStatus.NOT_FOUND
            return None if expired else self._session
