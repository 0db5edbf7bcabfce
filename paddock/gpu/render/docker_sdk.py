"""Keyword arguments of the Docker SDK's `containers.run`, as JSON."""

from __future__ import annotations

import json
from typing import Any

from paddock.gpu.render.access import Access, access
from paddock.gpu.render.rendered import File, Rendered
from paddock.gpu.render.request import Order


def render(order: Order) -> Rendered:
    """DeviceRequests are in the form of the Engine's API, which the SDK takes too."""
    given = access(order)
    text = json.dumps(keywords(given), indent=2) + "\n"
    return Rendered("docker-sdk", (File("docker-sdk.json", text),), given.notes, given.warnings)


def keywords(given: Access) -> dict[str, Any]:
    found: dict[str, Any] = {"runtime": given.runtime} if given.runtime else {}
    if given.request:
        which = {"DeviceIDs": list(given.request.device_ids)} if given.request.device_ids else {"Count": -1}
        found["device_requests"] = [{"Driver": "nvidia", **which, "Capabilities": [given.request.flags]}]
    if given.devices:
        found["devices"] = [f"{path}:{path}:rwm" for path in given.devices]
        found |= {"group_add": list(given.groups)} if given.groups else {}
        found["security_opt"] = list(given.security)
    return found | {"environment": given.environment}
