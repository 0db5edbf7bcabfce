"""`gpu.deallocate`: give leased GPUs back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paddock.console.command import command
from paddock.console.parameters import Parameters, parameter
from paddock.gpu.report import DocumentReport


@dataclass(frozen=True, kw_only=True)
class Deallocate(Parameters):
    """Parameters of `gpu.deallocate`."""

    leases: tuple[str, ...] = parameter(
        (), "ids of leases, or UUIDs of GPUs that one lease alone has", positional=True, required=True, min_length=1
    )


@dataclass(frozen=True, kw_only=True)
class Deallocated(DocumentReport):
    """The leases that have ended."""

    def text(self) -> Iterator[str]:
        return (f"{lease['id']} is given back" for lease in self.found["released"])


@command()
def deallocate(parameters: Deallocate) -> Deallocated:
    """Give GPUs back. Raises GpuInputError for a lease that does not exist."""
    from paddock.gpu.leases import allocation

    return Deallocated(found=allocation.deallocate(parameters.leases))
