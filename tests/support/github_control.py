"""Control of the lab's stand-in for GitHub that also injects faults and reads what was asked."""

from __future__ import annotations

from typing import Any

from paddock.lab.github import Control

Object = dict[str, Any]


class FaultyGitHub(Control):
    """The stand-in of a test."""

    def requests(self) -> list[Object]:
        """Return the latest requests without tokens: at, method, path, status, agent, body."""
        return list(self.ask("GET", "requests"))

    def forget_requests(self) -> None:
        self.ask("DELETE", "requests")

    def fault(self, path: str = "", *, status: int = 0, seconds: float = 0, times: int = 1, **more: Any) -> None:
        """Delay the next `times` requests whose path holds `path` by `seconds`, then answer with `status` if not 0.

        `retry_after` (seconds, a header) and `method` may be added.
        """
        self.ask("POST", "faults", {"path": path, "status": status, "seconds": seconds, "times": times, **more})

    def heal(self) -> None:
        """Remove all faults, and release requests that they delay."""
        self.ask("DELETE", "faults")
