"""`gpu.render`: write the configuration that gives GPUs to a program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from paddock.console.command import command
from paddock.console.parameters import Flag, parameter
from paddock.console.report import Report
from paddock.gpu.commands.criteria import Criteria
from paddock.gpu.commands.inputs import OfMachine, read_object

if TYPE_CHECKING:
    from paddock.gpu.render import Rendered


@dataclass(frozen=True, kw_only=True)
class Render(OfMachine, Criteria):
    """Parameters of `gpu.render`."""

    target: Literal["docker", "docker-sdk", "compose", "cdi", "kubernetes", "proxmox", "slurm", "environment"] = (
        parameter(..., "docker, docker-sdk, compose, cdi, kubernetes, proxmox, slurm or environment")
    )
    count: int = parameter(
        1,
        "how many",
        flag=Flag("gpus", "how many; by default every GPU that works", absent=0),
        aliases=("RequiredGPUs",),
        ge=1,
    )
    fields: dict[str, Any] = parameter(
        {}, "the older connector's fields of that target: Enabled, GPUIDs, Limit, ...", only="json"
    )
    fields_file: Path | None = parameter(
        None, "a JSON file of the target's own fields, in place of these flags", flag="fields", only="flags"
    )
    options: dict[str, str | int | bool] = parameter(
        {}, "the target's own options, such as image and name", only="json"
    )
    option: tuple[str, ...] = parameter(
        (), "name=value of the target's own; may be given again", repeats=True, only="flags"
    )
    output: Path | None = parameter(None, "write the files into this folder", only="flags")
    force: bool = parameter(False, "write over files that are not Paddock's or were edited", only="flags")

    def criteria(self) -> dict[str, Any]:
        """Return the criteria that were given. A count of 0, which a command line alone can leave, is not one."""
        given = super().criteria()
        return given if self.count else {name: value for name, value in given.items() if name != "count"}


@dataclass(frozen=True, kw_only=True)
class RenderReport(Report):
    """The rendered files; `written` are those that it wrote, where it was to write them."""

    SCHEMA = 1
    rendered: Rendered
    written: tuple[Path, ...] | None

    def document(self) -> dict[str, Any]:
        from paddock.gpu.render import to_document

        return to_document(self.rendered)

    def text(self) -> Iterator[str]:
        """Yield the files; the path of each is above it where there are several."""
        files = self.rendered.files if self.written is None else ()
        for number, file in enumerate(files):
            if len(files) > 1:
                yield f"{'' if not number else chr(10)}# {file.path}"
            yield file.text.removesuffix("\n")

    def notes(self) -> Iterator[str]:
        yield from (f"note: {note}" for note in self.rendered.notes)
        yield from (f"warning: {note}" for note in self.rendered.warnings)
        yield from (f"wrote {path}" for path in self.written or ())


@command()
def render(parameters: Render) -> RenderReport:
    """Render the configuration of a target, and write it where a folder is named. Raises GpuError, GpuInputError."""
    from paddock.gpu import render

    file = parameters.fields_file
    fields = read_object(file, "fields and their values") if file else parameters.fields
    options = render.options(parameters.target, [*parameters.option, *map(_option, parameters.options.items())])
    rendered = _rendered(parameters, fields, options)
    written = None if parameters.output is None else render.write(rendered, parameters.output, parameters.force)
    return RenderReport(rendered=rendered, written=written)


def _rendered(parameters: Render, fields: dict[str, Any], options: dict[str, Any]) -> Rendered:
    """Render for the GPUs here that nobody else has leased, or for those of a saved inventory."""
    from paddock.gpu import render
    from paddock.gpu.health.check import logged_events
    from paddock.gpu.leases.allocation import LEASE
    from paddock.gpu.leases.manager import Leases

    # A command line without a criterion is about every GPU that works; an agent's call has a count, by default 1.
    has_criteria = parameters.count or parameters.criteria().keys() - {"accept_degraded"}
    request = parameters.request() if has_criteria and not parameters.fields_file else None
    options = {"accept_degraded": parameters.accept_degraded, **options}
    subject, request = (fields, request) if fields else (request, None)
    if parameters.source is not None:
        return render.render(
            parameters.target, parameters.inventory(), subject, request=request, environ=os.environ, **options
        )
    if parameters.target == "slurm":
        from paddock.gpu.render.slurm import node

        options = {**node.installed(), **options}
    own_pids = {os.getpid(), os.getppid()}
    foreign = [
        lease
        for lease in Leases().held()
        if lease.id != os.environ.get(LEASE) and not any(owner.pid in own_pids for owner in lease.owners)
    ]
    inventory = parameters.inventory(processes=True, topology=True, programs=True)
    return render.render(
        parameters.target,
        inventory,
        subject,
        request=request,
        leases=foreign,
        environ=os.environ,
        xids=logged_events(),
        **options,
    )


def _option(item: tuple[str, str | int | bool]) -> str:
    name, value = item
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}"
