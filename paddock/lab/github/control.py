"""Starts the stand-in for GitHub, and asks it for jobs, faults, and what it has seen."""

from __future__ import annotations

import http.client
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from paddock.lab.control_plane import daemon, servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.control_plane.state import write_private
from paddock.lab.errors import LabError, LabInputError

Object = dict[str, Any]
NAME = "github"
"""Of the process, and of its folder in the lab's."""


class Control:
    """The lab's own side of the stand-in. Raises LabError where it does not answer, LabInputError where it refuses."""

    def __init__(self, url: str, timeout: float = 10) -> None:
        self.url, self._timeout = url, timeout

    def push(self, labels: Sequence[str], seconds: float = 1.0, name: str = "job") -> Object:
        """Queues a job that works for that long; `labels` is its runs-on."""
        return dict(self._ask("POST", "jobs", {"labels": list(labels), "seconds": seconds, "name": name}))

    def jobs(self) -> list[Object]:
        """All jobs, each with its history."""
        return list(self._ask("GET", "jobs"))

    def job(self, number: int) -> Object:
        return dict(self._ask("GET", f"jobs/{number}"))

    def cancel(self, number: int) -> Object:
        return dict(self._ask("DELETE", f"jobs/{number}"))

    def sets(self) -> list[Object]:
        """The scale sets that are registered, with their statistics."""
        return list(self._ask("GET", "sets"))

    def runners(self) -> list[Object]:
        """Runners that are registered: name, whether online, and their job's number."""
        return list(self._ask("GET", "runners"))

    def online(self, runner: str, pod: Object) -> Object | None:
        """Says that a runner's program runs in this pod; returns its job, None while there is none for it."""
        job = self._ask("POST", f"runners/{runner}/online", pod)
        return None if job is None else dict(job)

    def ended(self, runner: str, result: str) -> None:
        """Says that a runner's program is over: succeeded or failed."""
        self._ask("POST", f"runners/{runner}/ended", {"result": result})

    def requests(self) -> list[Object]:
        """What was asked of it lately, without tokens: at, method, path, status, agent, body."""
        return list(self._ask("GET", "requests"))

    def forget_requests(self) -> None:
        self._ask("DELETE", "requests")

    def fault(self, path: str = "", *, status: int = 0, seconds: float = 0, times: int = 1, **more: Any) -> None:
        """Has the next `times` requests whose path holds `path` wait `seconds`, then get `status` where it is given.

        `retry_after` (seconds, a header) and `method` may be added.
        """
        self._ask("POST", "faults", {"path": path, "status": status, "seconds": seconds, "times": times, **more})

    def heal(self) -> None:
        """Forgets all faults, and lets go of what hangs."""
        self._ask("DELETE", "faults")

    @property
    def answers(self) -> bool:
        try:
            self._ask("GET", "")
        except LabError:
            return False
        return True

    def _ask(self, method: str, path: str, body: Object | None = None) -> Any:
        where = urlsplit(self.url)
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=self._timeout)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request(method, f"/_lab/{path}", None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            raw = response.read()
            answer = json.loads(raw) if raw else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LabError(f"the stand-in for GitHub at {self.url} does not answer: {error}") from None
        finally:
            connection.close()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            refused = LabInputError if response.status < http.HTTPStatus.INTERNAL_SERVER_ERROR else LabError
            raise refused(f"the stand-in for GitHub: {answer['message'] if answer else response.reason}")
        return answer


def start(lab: Lab) -> str:
    """Starts the stand-in of a lab where it does not run, and returns its URL: a stack's is that and /<organisation>.

    The port is that of last time, because it stands in the state of stacks. Raises LabError and LabInputError.
    """
    folder = lab.folder / NAME
    folder.mkdir(mode=0o700, exist_ok=True)
    before = url_of(lab)
    if before and daemon.is_running(lab, NAME) and Control(before).answers:
        return before
    port = urlsplit(before).port if before else servers.free_ports(1)[0]
    daemon.start(lab, NAME, "paddock.lab.github", "--port", str(port), "--folder", str(folder))
    url = f"http://127.0.0.1:{port}"
    servers.wait_for(NAME, lambda: Control(url, 1).answers, lab.folder, lambda: servers.status(lab.folder))
    write_private(folder / "url", url)
    return url


def url_of(lab: Lab) -> str:
    """Where a lab's stand-in listens, or did; empty where it never ran."""
    try:
        return (lab.folder / NAME / "url").read_text(encoding="utf-8")
    except OSError:
        return ""
