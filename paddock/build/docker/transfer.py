"""Pushing and pulling, as the engine reports it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from paddock.build.docker import api, credentials, problems
from paddock.build.docker.names import Reference
from paddock.build.docker.show import Progress, Show


def transfer(
    client: Sequence[str], environ: Mapping[str, str], image: Reference, path: str, verb: str, progress: Progress
) -> list[dict[str, Any]]:
    """What the engine answered, without the layers' progress. It stops with this process. Raises BuildError."""
    kept = []
    parts: dict[str, tuple[int, int]] = {}
    reported = api.events(client, environ, path, credentials.header(environ, image.registry))
    with Show(progress) as show, contextlib.closing(reported):
        for event in reported:
            if said := event.get("error"):
                raise problems.registry(str(said), f"cannot {verb} {image.name}", image.registry)
            if "id" not in event:
                kept.append(event)
            show.line(f"{event.get('id', '')} {event.get('status', '')}".strip())
            detail = event.get("progressDetail") or {}
            if "current" in detail:
                parts[str(event.get("id"))] = (int(detail["current"]), int(detail.get("total") or 0))
                done, total = map(sum, zip(*parts.values(), strict=True))
                show.now(f"{verb} {image.name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB")
    return kept
