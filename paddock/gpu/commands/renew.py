"""`gpu.renew`: count the time to live of leases from now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.duration import Seconds
from paddock.gpu.commands.deallocate import Deallocate
from paddock.gpu.report import DocumentReport


@dataclass(frozen=True, kw_only=True)
class Renew(Deallocate):
    """Parameters of `gpu.renew`."""

    ttl: float | None = parameter(None, "time to live from now; by default the same as before", unit=Seconds, gt=0)


@dataclass(frozen=True, kw_only=True)
class Renewed(DocumentReport):
    """The leases that live on."""

    def text(self) -> Iterator[str]:
        return (f"{lease['id']} is renewed" for lease in self.found["renewed"])


@command()
def renew(parameters: Renew) -> Renewed:
    """Renew leases. Raises GpuInputError for one that has ended."""
    from paddock.gpu.leases import allocation

    return Renewed(found=allocation.renew(parameters.leases, parameters.ttl))
