"""The targets, and one function that renders for any of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

from paddock.gpu.errors import GpuError
from paddock.gpu.leases.lease import Lease
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Inventory
from paddock.gpu.render.fields import Connector, Docker, Fields, Kubernetes, Proxmox, is_fields, names, of
from paddock.gpu.render.problems import one_of, wrong
from paddock.gpu.render.rendered import Rendered
from paddock.gpu.render.request import order

_NOTHING: Mapping[str, str] = MappingProxyType({})
_REQUEST = tuple(Request.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Target:
    """`task`: it gives GPUs to one task, and not to a node that hands them on."""

    name: str
    about: str
    fields: type[Fields] | None = None
    task: bool = True

    @property
    def module(self) -> str:
        return f"paddock.gpu.render.{self.name.replace('-', '_')}"


TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        one.name: one
        for one in (
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
    wanted: Request | Fields | Mapping[str, Any] | None = None,
    *,
    request: Request | None = None,
    connector: Connector | Mapping[str, Any] | None = None,
    leases: Sequence[Lease] = (),
    environ: Mapping[str, str] = _NOTHING,
    **options: Any,
) -> Rendered:
    """The configuration that gives a machine's GPUs to that target; it reads nothing but the arguments.

    `wanted` is a request, the older connector's fields of that target, or either as names and values; None is every
    GPU that works. `request` chooses for fields that do not say which GPUs. `options` are the target's own.
    `proxmox` alone looks at files too, below its option `root`. Raises NoGpu, GpuInputError and GpuError.
    """
    one = _target(target)
    module = import_module(one.module)
    unknown = [name for name in options if name not in _options(one)]
    if unknown:
        raise wrong(
            f"{target} has no option {unknown[0]!r}", one_of(unknown[0], _options(one)) if _options(one) else "none"
        )
    given = _read(one, wanted)
    fields = None if isinstance(given, Request) else given
    if isinstance(given, Request):
        if request is not None:
            raise wrong("two requests", "one")
        request = given
    if any(gpu.vendor == "apple" for gpu in inventory.gpus) and one.name != "environment":
        raise GpuError(
            f"{target} cannot be given an Apple GPU: Metal is not passed on to containers, pods or virtual machines"
            "\n    fix: run the program on macOS itself; `environment` is the target for that"
        )
    plain = connector if isinstance(connector, Connector) else of(Connector, connector or {})
    made = order(
        inventory, fields, request, connector=plain, leases=leases, environ=environ, limited=one.task
    )  # fmt: skip
    rendered: Rendered = module.render(made, **options)
    return rendered


def options(target: str, given: Iterable[str]) -> dict[str, Any]:
    """Options written as `name=value`, for a command line. Raises GpuInputError."""
    known = _options(_target(target))
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or name not in known:
            raise wrong(f"option {text!r}", one_of(name, [f"{one}=…" for one in known]) if known else "none")
        found[name] = _typed(name, value.strip(), known[name])
    return found


def _target(name: str) -> Target:
    if name not in TARGETS:
        raise wrong(f"no target is called {name!r}", one_of(name, TARGETS))
    return TARGETS[name]


def _options(target: Target) -> dict[str, str]:
    """Names, and their types as they are written."""
    parameters = inspect.signature(import_module(target.module).render).parameters.values()
    return {one.name: str(one.annotation) for one in parameters if one.kind is one.KEYWORD_ONLY}


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


def _read(target: Target, wanted: Request | Fields | Mapping[str, Any] | None) -> Request | Fields | None:
    if isinstance(wanted, Mapping):
        own = names(target.fields) if target.fields else ()
        if target.fields and any(name in own for name in wanted):
            return of(target.fields, wanted)
        strange = [name for name in wanted if one_of(str(name), _REQUEST).startswith("one of")]
        if target.fields and strange and one_of(str(strange[0]), own).startswith("did"):
            raise wrong(f"{target.name} has no {strange[0]!r}", one_of(str(strange[0]), own))
        return Request.of(wanted)
    if is_fields(type(wanted)) and type(wanted) is not target.fields:
        expected = target.fields.__name__ if target.fields else "a request"
        raise wrong(f"{target.name} was given {type(wanted).__name__} fields", expected)
    return wanted
