"""`ami.promote`: pins a machine image in the stack file, if it fits every pool and runner image that would meet it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddock.aws.client import Aws
from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.console.project import OfStack, root
from paddock.console.report import Report
from paddock.fleet import Stack, load
from paddock.fleet.model.pool import Custom
from paddock.images.ami import promote as promotion
from paddock.images.ami.promote import Decision
from paddock.images.commands.ami import maker
from paddock.images.errors import BuildError


@dataclass(frozen=True, kw_only=True)
class PromoteAmi(OfStack):
    """Parameters of `ami.promote`."""

    id: str = parameter(..., "ami-...")
    pool: tuple[str, ...] = parameter(
        (), "only this pool; may be given again. By default all but Bottlerocket's", repeats=True
    )


@dataclass(frozen=True, kw_only=True)
class AmiPromoted(Report):
    """An image that the stack file names now, and what that changes."""

    SCHEMA = 1
    stack: Stack
    pin: Custom
    pools: tuple[str, ...]
    """Pools that it is for."""
    decided: Decision

    def document(self) -> dict[str, Any]:
        return {
            "schema": self.SCHEMA,
            "image": self.pin.custom,
            "stack_file": self.stack.path.name,
            "changed": list(self.decided.changing),
            "checks": [{"subject": fit.subject, "fits": fit.fits, "text": fit.text} for fit in self.decided.fits],
        }

    def text(self) -> Iterator[str]:
        for fit in self.decided.fits:
            yield f"{'fits' if fit.fits else 'note':<4}  {fit.subject}: {fit.text}"
        pin, changing, file = self.pin, self.decided.changing, self.stack.path.name
        if not changing:
            yield f"{file} names {pin.custom} already for {', '.join(self.pools)}"
            return
        yield (
            f"{file} names {pin.custom} for {', '.join(changing)} (driver {pin.driver}, Kubernetes {pin.kubernetes})"
        )
        yield "pulumi up makes a new version of each pool's launch template:"
        for name in changing:
            pool = self.stack.fleet.pools[name]
            first = "old ones stop first" if pool.update.strategy == "minimal" else "new ones start first"
            replaced = f"nodes that run are replaced, {pool.update.max_unavailable} at a time, {first}"
            if not isinstance(pool.ami, Custom):
                replaced = (
                    "from Amazon's image to yours takes a new node group: it is made, then the old one is removed"
                )
            yield f"    {name}: {replaced}"
        yield (
            "    A drained node evicts its jobs, which have under two minutes to end: run it while none do."
            " Pools without nodes change at once."
        )
        yield f"next: ./inv plan --stack {self.stack.name}"


@command()
def promote(parameters: PromoteAmi, *, aws: Aws | None = None) -> AmiPromoted:
    """Pin the image for the pools. Raises BuildError and FleetError, the file untouched, unless everything fits."""
    stack = load(root(), parameters.stack)
    chosen = promotion.pools(stack, parameters.pool)
    aws = aws or Aws(stack.fleet.region)
    image, pin = promotion.usable(aws, stack, parameters.id, maker(stack))
    decided = promotion.decide(stack, image, pin, chosen)
    if decided.refused:
        listed = "\n".join(f"    {fit.subject}: {fit.text}" for fit in decided.refused)
        raise BuildError(
            f"{parameters.id} does not fit {stack.path.name}, which stays as it is:\n{listed}\n"
            "    fix: choose the pools that it fits with --pool, or build an image that fits all"
        )
    promotion.write(stack, pin, decided.changing)
    return AmiPromoted(stack=stack, pin=pin, pools=chosen, decided=decided)
