"""`gpu.allocate`: lease GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.gpu.commands.criteria import LeaseTerms
from paddock.gpu.commands.inputs import OfMachine
from paddock.gpu.report import DocumentReport


@dataclass(frozen=True, kw_only=True)
class Allocate(OfMachine, LeaseTerms):
    """Parameters of `gpu.allocate`."""

    source: Path | None = parameter(
        None,
        "show what would be chosen of a saved inventory (gpu.list --json), and lease nothing",
        flag="from",
        only="flags",
    )


@dataclass(frozen=True, kw_only=True)
class Allocated(DocumentReport):
    """The lease, why each GPU was taken or refused, and the variables that show the GPUs to a program."""

    def text(self) -> Iterator[str]:
        from paddock.gpu.leases.allocation import exports

        yield from exports(self.found["environment"]).splitlines()

    def notes(self) -> Iterator[str]:
        yield from (f"{gpu['uuid']}: {gpu['reason']}" for gpu in self.found["taken"])
        yield from (f"note: {note}" for note in self.found["notes"])


@dataclass(frozen=True, kw_only=True)
class Chosen(DocumentReport):
    """The GPUs of a saved inventory that would be taken if nothing of it were leased."""

    summary: str

    def text(self) -> Iterator[str]:
        yield self.summary
        yield "nothing was leased: these are another machine's"


@command()
def allocate(parameters: Allocate) -> Allocated | Chosen:
    """Lease GPUs. Raises NoneFree, GpuError and GpuInputError."""
    from paddock.gpu.leases import allocation

    request = parameters.request()
    if parameters.source is None:
        return Allocated(found=allocation.allocate(request, **parameters.terms()))

    from paddock.gpu.leases.manager import NoneFree
    from paddock.gpu.leases.request import within_limit
    from paddock.gpu.leases.selection import choose

    within_limit(request)
    choice = choose(parameters.inventory(), request)
    if not choice.satisfied:
        raise NoneFree(choice)
    return Chosen(found={"schema": Chosen.SCHEMA, "lease": None, **choice.document()}, summary=str(choice))
