"""Arguments of `docker run`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from paddock.gpu.render.access import Access, access
from paddock.gpu.render.rendered import File, Rendered
from paddock.gpu.render.request import Order

NAME = "docker-run.args"


def render(order: Order) -> Rendered:
    """One line, quoted for a shell: `eval docker run --rm "$(cat docker-run.args)" IMAGE`."""
    given = access(order)
    return Rendered("docker", (File(NAME, line(arguments(given))),), given.notes, given.warnings)


def line(arguments: Iterable[str]) -> str:
    return shlex.join(arguments) + "\n"


def arguments(given: Access) -> list[str]:
    found = [f"--runtime={given.runtime}"] if given.runtime else []
    if given.request:
        found += ["--gpus", _gpus(given.request.device_ids, given.request.capabilities)]
    for flag, values in (
        ("--device", given.devices),
        ("--group-add", given.groups),
        ("--security-opt", given.security),
    ):
        found += [f"{flag}={value}" for value in values]
    for name, value in given.environment.items():
        found += ["--env", f"{name}={value}"]
    return found


def _gpus(device_ids: Iterable[str], capabilities: Iterable[str]) -> str:
    """Docker reads it as one line of CSV, so what holds commas is in quotes."""
    ids, flags = list(device_ids), list(capabilities)
    if not ids and not flags:
        return "all"
    said = [f'"device={",".join(ids)}"' if ids else "all"]
    return ",".join([*said, *([f'"capabilities={",".join(flags)}"'] if flags else [])])
