"""Control of the stand-in for GitHub: starting it, pushing jobs, injecting faults, reading its records."""

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
"""Name of the process, and of its folder in the lab's."""


class Control:
    """The lab's own interface of the stand-in. Raises LabError without an answer, LabInputError for a refusal."""

    def __init__(self, url: str, timeout: float = 10) -> None:
        self.url, self._timeout = url, timeout

    def push(self, labels: Sequence[str], seconds: float = 1.0, name: str = "job", **more: Any) -> Object:
        """Queue a job that runs for that long; `labels` is its runs-on.

        `repository`, `run` (of another job) and `fails` may be added.
        """
        return dict(self._ask("POST", "jobs", {"labels": list(labels), "seconds": seconds, "name": name, **more}))

    def jobs(self) -> list[Object]:
        """Return all jobs, each with its history."""
        return list(self._ask("GET", "jobs"))

    def job(self, number: int) -> Object:
        return dict(self._ask("GET", f"jobs/{number}"))

    def cancel(self, number: int) -> Object:
        return dict(self._ask("DELETE", f"jobs/{number}"))

    def sets(self) -> list[Object]:
        """Return the registered scale sets with their statistics."""
        return list(self._ask("GET", "sets"))

    def runners(self) -> list[Object]:
        """Return the registered runners: name, online or not, and their job's number."""
        return list(self._ask("GET", "runners"))

    def online(self, runner: str, pod: Object) -> Object | None:
        """Report that a runner's program runs in this pod; return its job, None while there is none for it."""
        job = self._ask("POST", f"runners/{runner}/online", pod)
        return None if job is None else dict(job)

    def ended(self, runner: str, result: str, *, lost: bool = False) -> None:
        """Report that a runner's program has ended: succeeded or failed, or that it vanished."""
        self._ask("POST", f"runners/{runner}/ended", {"result": result, "lost": lost})

    def requests(self) -> list[Object]:
        """Return the latest requests without tokens: at, method, path, status, agent, body."""
        return list(self._ask("GET", "requests"))

    def forget_requests(self) -> None:
        self._ask("DELETE", "requests")

    def fault(self, path: str = "", *, status: int = 0, seconds: float = 0, times: int = 1, **more: Any) -> None:
        """Delay the next `times` requests whose path holds `path` by `seconds`, then answer with `status` if not 0.

        `retry_after` (seconds, a header) and `method` may be added.
        """
        self._ask("POST", "faults", {"path": path, "status": status, "seconds": seconds, "times": times, **more})

    def heal(self) -> None:
        """Remove all faults, and release requests that they delay."""
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
    """Start the stand-in of a lab where it does not run; return its URL, to which a stack adds /<organisation>.

    The port stays the same, because the state of stacks holds it. Raises LabError and LabInputError.
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
    """Return the URL of a lab's stand-in, whether it runs or not; empty where it never ran."""
    try:
        return (lab.folder / NAME / "url").read_text(encoding="utf-8")
    except OSError:
        return ""
