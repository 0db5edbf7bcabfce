"""Control of the stand-in for GitHub: starting it, pushing jobs, reading its records."""

from __future__ import annotations

import http.client
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from paddock.lab.control_plane import daemon, servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.control_plane.state import write_private
from paddock.lab.errors import LabError, LabInputError
from paddock.lab.github.client import send

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
        return dict(self.ask("POST", "jobs", {"labels": list(labels), "seconds": seconds, "name": name, **more}))

    def jobs(self) -> list[Object]:
        """Return all jobs, each with its history."""
        return list(self.ask("GET", "jobs"))

    def job(self, number: int) -> Object:
        return dict(self.ask("GET", f"jobs/{number}"))

    def cancel(self, number: int) -> Object:
        return dict(self.ask("DELETE", f"jobs/{number}"))

    def sets(self) -> list[Object]:
        """Return the registered scale sets with their statistics."""
        return list(self.ask("GET", "sets"))

    def runners(self) -> list[Object]:
        """Return the registered runners: name, online or not, and their job's number."""
        return list(self.ask("GET", "runners"))

    def online(self, runner: str, pod: Object) -> Object | None:
        """Report that a runner's program runs in this pod; return its job, None while there is none for it."""
        job = self.ask("POST", f"runners/{runner}/online", pod)
        return None if job is None else dict(job)

    def ended(self, runner: str, result: str, *, lost: bool = False) -> None:
        """Report that a runner's program has ended: succeeded or failed, or that it vanished."""
        self.ask("POST", f"runners/{runner}/ended", {"result": result, "lost": lost})

    @property
    def answers(self) -> bool:
        try:
            self.ask("GET", "")
        except LabError:
            return False
        return True

    def ask(self, method: str, path: str, body: Object | None = None) -> Any:
        """Send one request of the lab's own and return its answer."""
        try:
            response, answer = send(method, f"{self.url}/_lab/{path}", body, {}, self._timeout)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LabError(f"the stand-in for GitHub at {self.url} does not answer: {error}") from None
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
    daemon.start(lab, NAME, "paddock.lab.github", str(port), str(folder))
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
