"""Keyword arguments of the Docker SDK's `containers.run`, as JSON."""

from __future__ import annotations

import json
from typing import Any

from paddock.gpu.render.access import Access, access
from paddock.gpu.render.rendered import File, Rendered
from paddock.gpu.render.request import RenderRequest


def render(request: RenderRequest) -> Rendered:
    """Render keyword arguments; device requests have the form of the Engine's API, which the SDK accepts."""
    granted = access(request)
    text = json.dumps(keywords(granted), indent=2) + "\n"
    return Rendered("docker-sdk", (File("docker-sdk.json", text),), granted.notes, granted.warnings)


def keywords(granted: Access) -> dict[str, Any]:
    arguments: dict[str, Any] = {"runtime": granted.runtime} if granted.runtime else {}
    if granted.request:
        selector = {"DeviceIDs": list(granted.request.device_ids)} if granted.request.device_ids else {"Count": -1}
        arguments["device_requests"] = [{"Driver": "nvidia", **selector, "Capabilities": [granted.request.flags]}]
    if granted.devices:
        arguments["devices"] = [f"{path}:{path}:rwm" for path in granted.devices]
        arguments |= {"group_add": list(granted.groups)} if granted.groups else {}
        arguments["security_opt"] = list(granted.security)
    return arguments | {"environment": granted.environment}
