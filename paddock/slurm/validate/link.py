"""Link of the chain from a GPU to a program in a container."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["ok", "broken", "warning", "unknown"]


@dataclass(frozen=True, slots=True)
class Link:
    """One link. `evidence` is what was read, `fix` the commands that fix it."""

    name: str
    state: State
    evidence: str
    fix: str = ""

    def line(self) -> str:
        return f"{self.state:<8} {self.name:<10} {self.evidence}"

    def document(self) -> dict[str, Any]:
        return {"link": self.name, "state": self.state, "evidence": self.evidence, "fix": self.fix or None}


def broken(links: Iterable[Link]) -> Link | None:
    """Return the first link that is broken: those after it may fail because of it."""
    return next((link for link in links if link.state == "broken"), None)
