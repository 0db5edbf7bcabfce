"""A Compose file."""

from __future__ import annotations

from typing import Any

from paddock.gpu.render.access import Access, access
from paddock.gpu.render.problems import matching, wrong
from paddock.gpu.render.rendered import Rendered, headed
from paddock.gpu.render.request import Order


def render(order: Order, *, form: str = "deploy", service: str = "gpu", image: str = "ubuntu:24.04") -> Rendered:
    """`form` is `deploy` (deploy.resources) or `gpus` (the short one of Compose 2.30). Without an image the file is
    one to lay over another that has that service."""
    if form not in ("deploy", "gpus"):
        raise wrong(f"form is {form!r}", "deploy or gpus")
    matching("service", service, r"[A-Za-z0-9][A-Za-z0-9._-]*", "a name of letters, digits, dots and dashes")
    matching("image", image, r"\S*", "the name of an image")
    import yaml

    given = access(order)
    body = {**({"image": image} if image else {}), **_service(given, form)}
    text = yaml.safe_dump({"services": {service: body}}, sort_keys=False, width=1000)
    notes = [*given.notes]
    if not image:
        notes.append(f"Lay it over your file: docker compose -f compose.yaml -f {_name(image)} up")
    return Rendered("compose", (headed(_name(image), text),), tuple(notes), given.warnings)


def _name(image: str) -> str:
    return "compose.yaml" if image else "compose.gpu.yaml"


def _service(given: Access, form: str) -> dict[str, Any]:
    found: dict[str, Any] = {"runtime": given.runtime} if given.runtime else {}
    if given.environment:
        found["environment"] = dict(given.environment)
    if given.devices:
        found["devices"] = [f"{path}:{path}" for path in given.devices]
        found |= {"group_add": list(given.groups)} if given.groups else {}
        found["security_opt"] = [one.replace("=", ":", 1) for one in given.security]
    if given.request:
        which = {"device_ids": list(given.request.device_ids)} if given.request.device_ids else {"count": "all"}
        device = {"driver": "nvidia", **which, "capabilities": given.request.flags}
        if form == "deploy":
            found["deploy"] = {"resources": {"reservations": {"devices": [device]}}}
        else:
            found["gpus"] = "all" if not given.request.device_ids and not given.request.capabilities else [device]
    return found
