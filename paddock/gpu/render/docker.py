"""Arguments of `docker run`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from paddock.gpu.render.access import Access, access
from paddock.gpu.render.rendered import File, Rendered
from paddock.gpu.render.request import RenderRequest

NAME = "docker-run.args"


def render(request: RenderRequest) -> Rendered:
    """Render one line, quoted for a shell: `eval docker run --rm "$(cat docker-run.args)" IMAGE`."""
    granted = access(request)
    return Rendered("docker", (File(NAME, line(arguments(granted))),), granted.notes, granted.warnings)


def line(arguments: Iterable[str]) -> str:
    return shlex.join(arguments) + "\n"


def arguments(granted: Access) -> list[str]:
    result = [f"--runtime={granted.runtime}"] if granted.runtime else []
    if granted.request:
        result += ["--gpus", _gpus(granted.request.device_ids, granted.request.capabilities)]
    for flag, values in (
        ("--device", granted.devices),
        ("--group-add", granted.groups),
        ("--security-opt", granted.security),
    ):
        result += [f"{flag}={value}" for value in values]
    for name, value in granted.environment.items():
        result += ["--env", f"{name}={value}"]
    return result


def _gpus(device_ids: Iterable[str], capabilities: Iterable[str]) -> str:
    """Return the value of --gpus, which Docker reads as CSV: values with commas are quoted."""
    ids, flags = list(device_ids), list(capabilities)
    if not ids and not flags:
        return "all"
    parts = [f'"device={",".join(ids)}"' if ids else "all"]
    return ",".join([*parts, *([f'"capabilities={",".join(flags)}"'] if flags else [])])
