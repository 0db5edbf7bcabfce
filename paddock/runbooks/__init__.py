"""Runbooks: what is broken, what it means and what fixes it; one text for `why`, the alerts and the documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

import yaml

LINKS: Mapping[str, str] = MappingProxyType(
    {
        "github": "GitHub's queue",
        "scale-set": "scale set",
        "listener": "listener",
        "runner": "EphemeralRunner",
        "pod": "pod",
        "scheduler": "scheduler",
        "node-group": "node group",
        "node": "node",
        "device-plugin": "device plugin",
        "image-pull": "image and container",
        "registration": "registration",
        "job": "job",
    }
)
"""Links of the chain from GitHub's queue to a job that runs, in their order, with their titles."""

_USUAL = {"systems": "arc-systems", "controller": "arc-gha-rs-controller"}
"""Names of ARC's controller where the stack file has none of its own."""


@dataclass(frozen=True, slots=True)
class Runbook:
    """One thing that breaks, found by `why` at a link of the chain, or by the alert whose name is the id."""

    id: str
    means: str
    fix: str
    """With the names of the objects in braces."""
    link: str = ""
    """Empty for an alert, as is the title."""
    title: str = ""
    check: tuple[str, ...] = ()
    """Commands that show more, in their order."""

    def fix_for(self, names: Mapping[str, str]) -> str:
        """Return the fix with these names filled in; a name that nobody knows stays in capitals."""
        return self.fix.format_map({**{key: key.upper() for key in self.places}, **names})

    @property
    def places(self) -> set[str]:
        return set(re.findall(r"(?<!\{)\{(\w+)\}(?!\})", self.fix))


@cache
def runbooks() -> Mapping[str, Runbook]:
    """Return every runbook by its id: those of `why` in the order of the links, then those of the alerts."""
    entries = yaml.safe_load((Path(__file__).parent / "runbooks.yaml").read_text(encoding="utf-8"))
    return MappingProxyType({id_: _runbook(id_, **entry) for id_, entry in entries.items()})


def _runbook(id_: str, *, fix: str | list[str], check: tuple[str, ...] = (), **texts: str) -> Runbook:
    """Return a runbook of the file, where a fix may be a list of sentences, some of them shared."""
    return Runbook(id_, fix=fix if isinstance(fix, str) else " ".join(fix), check=tuple(check), **texts)


def page() -> str:
    """Return docs/why-runbooks.md."""
    lines = [
        "# What breaks, link by link",
        "",
        "Made of the texts that [`./inv why`](why.md) prints, by `./inv docs.generate`. Words in capitals stand for the"
        " names that the command fills in.",
    ]
    for link, title in LINKS.items():
        lines += ["", f"## {title[0].upper()}{title[1:]}", "", "| broken | means | fix |", "|---|---|---|"]
        for book in runbooks().values():
            if book.link == link:
                fix = book.fix_for(_USUAL).replace("|", "\\|")
                lines.append(f"| **{book.title}** (`{book.id}`) | {book.means} | {fix} |")
    return "\n".join(lines) + "\n"
