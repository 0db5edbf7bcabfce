"""A Compose file."""

from __future__ import annotations

from typing import Any

from paddock.gpu.render.access import Access, access
from paddock.gpu.render.fields import image_reference, matching, wrong
from paddock.gpu.render.rendered import Rendered, headed
from paddock.gpu.render.request import RenderRequest


def render(
    request: RenderRequest, *, form: str = "deploy", service: str = "gpu", image: str = "ubuntu:24.04"
) -> Rendered:
    """Render a file in the `form` `deploy` (deploy.resources) or `gpus` (the short one of Compose 2.30).

    Without an image the file is an override for another one with that service.
    """
    if form not in ("deploy", "gpus"):
        raise wrong(f"form is {form!r}", "deploy or gpus")
    matching("service", service, r"[A-Za-z0-9][A-Za-z0-9._-]*", "a name of letters, digits, dots and dashes")
    if image:
        image_reference(image)
    import yaml

    granted = access(request)
    body = {**({"image": image} if image else {}), **_service(granted, form)}
    text = yaml.safe_dump({"services": {service: body}}, sort_keys=False, width=1000)
    notes = [*granted.notes]
    if not image:
        notes.append(f"Lay it over your file: docker compose -f compose.yaml -f {_name(image)} up")
    return Rendered("compose", (headed(_name(image), text),), tuple(notes), granted.warnings)


def _name(image: str) -> str:
    return "compose.yaml" if image else "compose.gpu.yaml"


def _service(granted: Access, form: str) -> dict[str, Any]:
    service: dict[str, Any] = {"runtime": granted.runtime} if granted.runtime else {}
    if granted.environment:
        service["environment"] = dict(granted.environment)
    if granted.devices:
        service["devices"] = [f"{path}:{path}" for path in granted.devices]
        service |= {"group_add": list(granted.groups)} if granted.groups else {}
        service["security_opt"] = [option.replace("=", ":", 1) for option in granted.security]
    if granted.request:
        selector = {"device_ids": list(granted.request.device_ids)} if granted.request.device_ids else {"count": "all"}
        device = {"driver": "nvidia", **selector, "capabilities": granted.request.flags}
        if form == "deploy":
            service["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
        else:
            service["gpus"] = "all" if not granted.request.device_ids and not granted.request.capabilities else [device]
    return service
