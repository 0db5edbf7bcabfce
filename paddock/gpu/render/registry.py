"""Targets of rendering, and the function that renders for any of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

from paddock.console.parameters import one_of
from paddock.errors import nearest
from paddock.gpu.errors import GpuError
from paddock.gpu.health.xid import Event
from paddock.gpu.leases.lease import Lease
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Inventory
from paddock.gpu.render.fields import Connector, Docker, Fields, Kubernetes, Proxmox, from_dict, is_fields, names, wrong
from paddock.gpu.render.rendered import Rendered
from paddock.gpu.render.request import build_request

_NOTHING: Mapping[str, str] = MappingProxyType({})
_REQUEST = tuple(Request.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Target:
    """Target of rendering. `task`: its GPUs go to one task, not to a node that distributes them."""

    name: str
    about: str
    fields: type[Fields] | None = None
    task: bool = True

    @property
    def module(self) -> str:
        return f"paddock.gpu.render.{self.name.replace('-', '_')}"


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        entry.name: entry
        for entry in (
            Target("docker", "arguments of `docker run`", Docker),
            Target("docker-sdk", "keyword arguments of the Docker SDK, with its DeviceRequests", Docker),
            Target("compose", "a Compose file", Docker),
            Target("cdi", "CDI device names and the commands that make them known", Docker),
            Target("kubernetes", "a pod, and the device plugin's configuration where GPUs are shared", Kubernetes),
            Target("proxmox", "a virtual machine with the GPU itself, and the host's files", Proxmox, task=False),
            Target("slurm", "slurm.conf and gres.conf of this node", task=False),
            Target("environment", "variables for a shell and for an env file"),
        )
    }
)


def render(
    target: str,
    inventory: Inventory,
    selection: Request | Fields | Mapping[str, Any] | None = None,
    *,
    request: Request | None = None,
    connector: Connector | Mapping[str, Any] | None = None,
    leases: Sequence[Lease] = (),
    environ: Mapping[str, str] = _NOTHING,
    xids: Sequence[Event] = (),
    accept_degraded: bool = False,
    **options: Any,
) -> Rendered:
    """Return the configuration that passes a machine's GPUs to that target; it reads only the arguments.

    `selection` is a request, the older connector's fields of that target, or either as names and values; None is every
    GPU that works. `request` chooses for fields that do not say which GPUs. `xids` are the
    driver's errors in the kernel log; a GPU that fails the health check is left out, or refused where it was named,
    unless `accept_degraded`. `options` are the target's own.
    Only `proxmox` reads files too, below its option `root`. Raises NoGpu, GpuInputError and GpuError.
    """
    entry = _target(target)
    module = import_module(entry.module)
    unknown = [name for name in options if name not in _options(entry)]
    if unknown:
        raise wrong(
            f"{target} has no option {unknown[0]!r}", one_of(unknown[0], _options(entry)) if _options(entry) else "none"
        )
    parsed = _read(entry, selection)
    fields = None if isinstance(parsed, Request) else parsed
    if isinstance(parsed, Request):
        if request is not None:
            raise wrong("two requests", "one")
        request = parsed
    if any(gpu.vendor == "apple" for gpu in inventory.gpus) and entry.name != "environment":
        raise GpuError(
            f"{target} cannot be given an Apple GPU: Metal is not passed on to containers, pods or virtual machines"
            "\n    fix: run the program on macOS itself; `environment` is the target for that"
        )
    plain = connector if isinstance(connector, Connector) else from_dict(Connector, connector or {})
    render_request = build_request(
        inventory, fields, request, connector=plain, leases=leases, environ=environ, limited=entry.task, xids=xids,
        accept_degraded=accept_degraded,
    )  # fmt: skip
    rendered: Rendered = module.render(render_request, **options)
    return rendered


def options(target: str, texts: Iterable[str]) -> dict[str, Any]:
    """Parse options written as `name=value` on a command line. Raises GpuInputError."""
    types = _options(_target(target))
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in types:
            raise wrong(f"option {text!r}", one_of(name, [f"{name}=…" for name in types]) if types else "none")
        values[name] = _typed(name, value.strip(), types[name])
    return values


def _target(name: str) -> Target:
    if name not in TARGETS:
        raise wrong(f"no target is called {name!r}", one_of(name, TARGETS))
    return TARGETS[name]


def _options(target: Target) -> dict[str, str]:
    """Return the names of the options and their annotations."""
    parameters = inspect.signature(import_module(target.module).render).parameters.values()
    return {
        parameter.name: str(parameter.annotation)
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def _typed(name: str, value: str, annotation: str) -> Any:
    if annotation.startswith("int"):
        if not value.isdecimal():
            raise wrong(f"{name} is {value!r}", "a whole number")
        return int(value)
    if annotation.startswith("bool"):
        if value.lower() not in ("true", "false"):
            raise wrong(f"{name} is {value!r}", "true or false")
        return value.lower() == "true"
    if annotation.startswith("Path"):
        from pathlib import Path

        return Path(value)
    return value


def _read(target: Target, selection: Request | Fields | Mapping[str, Any] | None) -> Request | Fields | None:
    if isinstance(selection, Mapping):
        own = names(target.fields) if target.fields else ()
        if target.fields and any(name in own for name in selection):
            return from_dict(target.fields, selection)
        unknown = [name for name in selection if not nearest(str(name), _REQUEST)]
        if target.fields and unknown and nearest(str(unknown[0]), own):
            raise wrong(f"{target.name} has no {unknown[0]!r}", one_of(str(unknown[0]), own))
        return Request.from_dict(selection)
    if is_fields(type(selection)) and type(selection) is not target.fields:
        expected = target.fields.__name__ if target.fields else "a request"
        raise wrong(f"{target.name} was given {type(selection).__name__} fields", expected)
    return selection
