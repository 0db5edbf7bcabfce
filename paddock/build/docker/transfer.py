"""Pushing and pulling, as the engine reports it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paddock.build.docker import api, credentials, problems
from paddock.build.docker.names import Reference
from paddock.build.docker.show import Progress, Show

_ENDED = {"Pushed": "pushed", "Pull complete": "pulled", "Layer already exists": "there", "Already exists": "there"}


@dataclass(slots=True)
class Moved:
    """How far the layers are."""

    verb: str
    name: str
    began: float = field(default_factory=time.monotonic)
    parts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Bytes moved and bytes in all, by layer."""

    def now(self) -> str:
        parts = list(self.parts.values())
        done, total = sum(part[0] for part in parts), sum(part[1] for part in parts)
        seconds = time.monotonic() - self.began
        rate = done / seconds / 1e6 if seconds > 0 else 0.0
        return f"{seconds:6.0f} s  {self.verb} {self.name}: {size(done)} of {size(total)}, {rate:.0f} MB/s"


def transfer(
    client: Sequence[str], environ: Mapping[str, str], image: Reference, path: str, verb: str, progress: Progress
) -> list[dict[str, Any]]:
    """What the engine reported of the image as a whole. It stops with this process. Raises BuildError."""
    kept = []
    moved = Moved(verb, image.name)
    reported = api.events(client, environ, path, credentials.header(environ, image.registry))
    with contextlib.closing(reported), Show(progress, moved.now) as show:
        for event in reported:
            if said := event.get("error"):
                raise problems.registry(str(said), f"cannot {verb} {image.written}", image.registry)
            layer, status = str(event.get("id", "")), str(event.get("status", ""))
            show.line(f"{layer} {event.get('progress', '')} {status}".strip())
            if not layer:
                kept.append(event)
            elif status in _ENDED:
                of = moved.parts.get(layer)
                show.ended(_ENDED[status], f"{layer}{f' {size(of[1])}' if of else ''}")
            elif status in ("Pushing", "Downloading") and "current" in (detail := event.get("progressDetail") or {}):
                moved.parts[layer] = int(detail["current"]), int(detail.get("total") or detail["current"])
    return kept


def size(amount: int) -> str:
    return f"{amount / 1e9:.2f} GB" if amount >= 1e9 else f"{amount / 1e6:.1f} MB"
