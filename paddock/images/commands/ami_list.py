"""`ami.list`: the fleet's machine images, newest first, with what uses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paddock.aws.client import Aws
from paddock.aws.errors import AwsError
from paddock.console.command import command
from paddock.console.project import OfStack, root
from paddock.console.report import Report
from paddock.fleet import load
from paddock.images.ami import images, pipeline, usage
from paddock.images.ami.images import MachineImage
from paddock.images.commands.ami import maker


@dataclass(frozen=True, kw_only=True)
class ListedAmi:
    """A machine image. What its tags do not say is None."""

    id: str
    name: str
    state: str
    tested: bool
    created: str
    facts: dict[str, str | None]
    root_gib: int
    snapshots: dict[str, int]
    gib: int
    usd_month_at_most: float | None
    in_use_by: tuple[str, ...] | None
    """None where that could not be read."""


@dataclass(frozen=True, kw_only=True)
class AmisListed(Report):
    """The machine images of a fleet in a region. No table: ids and uses leave it no room."""

    SCHEMA = 1
    fleet: str
    stack: str
    region: str
    images: tuple[ListedAmi, ...]
    uses_unknown: str | None
    """Why it is not known what uses them."""

    def document(self) -> dict[str, Any]:
        listed = [asdict(image) for image in self.images]
        head = {"schema": self.SCHEMA, "region": self.region}
        return {**head, "images": listed, "uses_unknown": self.uses_unknown}

    def text(self) -> Iterator[str]:
        if not self.images:
            yield f"no machine images of {self.fleet} in {self.region}; ./inv ami.build --stack {self.stack} makes one"
        for image in self.images:
            yield f"{image.id}  {images.minute(image.created)}  {image.state}  {image.name}"
            has = ", ".join(f"{name.replace('_', '-')} {fact}" for name, fact in image.facts.items() if fact)
            nothing = "no tag says what it has" if image.tested else "left by a build that failed or was cancelled"
            yield f"    {has or nothing}"
            yield f"    {images.snapshots_cost(image.gib, self.region)}"
            for use in ("?",) if image.in_use_by is None else image.in_use_by or ("nothing",):
                yield f"    used by {use}"
        if self.images and self.uses_unknown:
            yield f"what uses them is not known: {self.uses_unknown}"


@command()
def list_amis(parameters: OfStack, *, aws: Aws | None = None) -> AmisListed:
    """List the images of the fleet that makes the stack's. Raises BuildError and FleetError."""
    stack = load(root(), parameters.stack)
    aws = aws or Aws(stack.fleet.region)
    fleet = maker(stack)
    own = images.of_fleet(images.owned(aws), fleet, pipeline.lost(aws, fleet))
    in_use, unknown = dict[str, Sequence[str]](), None
    try:
        in_use = dict(usage.used(aws, {image.id for image in own}, root()))
    except AwsError as error:
        unknown = str(error)
    listed = tuple(_listed(image, None if unknown else in_use, aws.region) for image in own)
    return AmisListed(fleet=fleet, stack=stack.name, region=aws.region, images=listed, uses_unknown=unknown)


def _listed(image: MachineImage, uses: Mapping[str, Sequence[str]] | None, region: str) -> ListedAmi:
    return ListedAmi(
        id=image.id,
        name=image.name,
        state=image.state,
        tested=image.tested,
        created=image.created.isoformat(),
        facts=images.facts(image) or {},
        root_gib=image.root_gib,
        snapshots=dict(image.snapshots),
        gib=image.gib,
        usd_month_at_most=images.usd_month(image.gib, region),
        in_use_by=None if uses is None else tuple(uses.get(image.id, ())),
    )
