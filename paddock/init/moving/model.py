"""Runners as another program's file describes them, with what cannot be taken over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["changed", "left out"]


@dataclass(frozen=True, slots=True)
class Note:
    """Outcome of a key: its meaning changed, or it is left out."""

    runner: str
    key: str
    kind: Kind
    text: str


@dataclass(slots=True)
class Found:
    """One set of runners. `keys` are those of `runners.NAME` in a stack file, `taken` where each comes from."""

    name: str
    keys: dict[str, Any] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    gpu: str = ""
    """Key of the catalogue, where the file says which GPU."""
    instances: tuple[str, ...] = ()
    """Instance types, where the file says which."""
    capacity: Literal["spot", "on-demand", ""] = ""
    named: bool = False
    """Whether workflows may ask for it by its name, as for a scale set."""
    place: str = ""
    """Where they register: `acme`, `acme/project`, or `` where the file does not say."""
    region: str = ""
    """AWS region, where the file says it."""
    elsewhere: str = ""
    """Reason for which the stack cannot have them; `` where it may."""
    key: str = ""
    """Name in the stack file, once they have one."""

    @property
    def gpus(self) -> int:
        """GPUs of a job; 0 where they have none."""
        return 0 if self.elsewhere else int(self.keys.get("gpus", 0))

    def take(self, key: str, value: Any, source: str) -> None:
        self.keys[key] = value
        self.taken[key] = source

    def changed(self, key: str, text: str) -> None:
        self.notes.append(Note(self.name, key, "changed", text))

    def leave(self, key: str, text: str) -> None:
        self.notes.append(Note(self.name, key, "left out", text))

    def leave_others(self, mapping: Mapping[str, Any], known: Iterable[str], at: str, text: str) -> None:
        """Say of each other key that it is left out: none is lost without a word."""
        for key in sorted(set(map(str, mapping)) - set(known)):
            self.leave(f"{at}.{key}" if at else key, text)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Runners of a file. `program` is whose they are; `others` are things in it that are not runners."""

    program: str
    runners: tuple[Found, ...]
    others: tuple[Note, ...] = ()

    def notes(self) -> Iterator[Note]:
        for runner in self.runners:
            yield from runner.notes
        yield from self.others
