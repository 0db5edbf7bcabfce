"""`ami.prune`: machine images and snapshots that nothing uses, shown, and removed where that is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.aws.client import Aws
from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.console.project import OfStack, root
from paddock.console.report import Report
from paddock.fleet import Stack
from paddock.images.ami import images, pipeline, usage
from paddock.images.ami import prune as removals
from paddock.images.ami.images import MachineImage
from paddock.images.ami.prune import Removal, Removed
from paddock.images.commands.ami import with_pipeline
from paddock.images.errors import BuildInputError


@dataclass(frozen=True, kw_only=True)
class PruneAmis(OfStack):
    """Parameters of `ami.prune`."""

    keep: int = parameter(2, "how many of the newest stay, used or not", ge=0)
    image: tuple[str, ...] = parameter(
        (),
        "look at this one only, and remove it even if another account may start it; may be given again",
        repeats=True,
    )
    yes: bool = parameter(False, "do it")


@dataclass(frozen=True, kw_only=True)
class AmisPruned(Report):
    """A planned removal, or the result of one. Exit code 1 where AWS refused to remove something."""

    SCHEMA = 1
    region: str
    removal: Removal
    removed: Removed | None

    @property
    def exit_code(self) -> int:
        return 1 if self.removed and self.removed.failed else 0

    def document(self) -> dict[str, Any]:
        removal, removed = self.removal, self.removed
        return {
            "schema": self.SCHEMA,
            "dry_run": removed is None,
            "images": [
                {"id": image.id, "name": image.name, "created": image.created.isoformat(), "gib": image.gib,
                 "snapshots": removal.goes_with(image)}
                for image in removal.images
            ],
            "snapshots": [{"id": orphan.id, "image": orphan.image, "gib": orphan.gib} for orphan in removal.snapshots],
            "gib": removal.gib,
            "usd_month_at_most": images.usd_month(removal.gib, self.region),
            "kept": [{"id": retained.image.id, "why": retained.why} for retained in removal.retained],
            **(
                {"removed": removed.images, "deleted": removed.snapshots, "failed": dict(removed.failed)}
                if removed else {}
            ),
        }  # fmt: skip

    def text(self) -> Iterator[str]:
        removal = self.removal
        for image in removal.images:
            created = images.minute(image.created.isoformat())
            yield f"goes   {image.id}  {created}  {image.gib} GiB  {image.name}"
        for snapshot in removal.snapshots:
            yield f"goes   {snapshot.id}  {snapshot.gib} GiB, left over of {snapshot.image}"
        for retained in removal.retained:
            yield f"stays  {retained.image.id}  {retained.why}"
        if not removal.images and not removal.snapshots:
            yield "nothing to remove"
        elif self.removed is None:
            yield f"{images.snapshots_cost(removal.gib, self.region)}. Nothing is removed without --yes"
        else:
            yield f"deregistered {len(self.removed.images)}, deleted {len(self.removed.snapshots)} snapshots"

    def notes(self) -> Iterator[str]:
        if self.removed and self.removed.failed:
            yield from (f"{id} stays: {why}" for id, why in self.removed.failed.items())
            yield "the next ami.prune continues from here"


@command()
def prune(parameters: PruneAmis, *, aws: Aws | None = None) -> AmisPruned:
    """Decide what goes, and remove it with `yes`. Raises BuildError and FleetError."""
    named, stack = parameters.image, with_pipeline(parameters.stack)
    fleet, aws = stack.fleet.name, aws or Aws(stack.fleet.region)
    # Before the images: one that comes meanwhile with its snapshots is not yet among these.
    snapshots = images.made_for_images(aws, fleet)
    owned = images.owned(aws)
    own = images.of_fleet(owned, fleet, pipeline.lost(aws, fleet))
    _check_named(named, own, stack)
    in_use = usage.used(aws, {image.id for image in own}, root())
    # EC2 refuses to say it of an image that failed or is not ready, and nobody can launch those.
    shareable = [image.id for image in own if image.id not in in_use and image.state == "available" and not named]
    shared = {id: images.shared_with(aws, id) for id in shareable}
    minors = {stack.fleet.kubernetes(pool) for pool in stack.fleet.pools.values()}
    removal = removals.decide(own, owned, snapshots, in_use, shared, parameters.keep, named, minors)
    removed = removals.carry_out(aws, fleet, removal) if parameters.yes else None
    return AmisPruned(region=aws.region, removal=removal, removed=removed)


def _check_named(named: Sequence[str], own: Sequence[MachineImage], stack: Stack) -> None:
    for id in named:
        if id not in {image.id for image in own}:
            raise BuildInputError(
                f"--image: {id[:100]!r} is not an image of {stack.fleet.name} in {stack.fleet.region}\n"
                f"    expected: one of {', '.join(image.id for image in own) or 'none: there are no images'}\n"
                f"    fix: take one that ./inv ami.list --stack {stack.name} shows, or leave --image out"
            )
