"""Selection and removal of the fleet's machine images that nothing needs any more."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from paddock.aws.client import Aws
from paddock.aws.errors import AwsError
from paddock.images.ami.images import PRUNED_TAG, MachineImage, Snapshot
from paddock.images.ami.pipeline import FLEET_TAG

_NOT_FOUND = {"InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidSnapshot.NotFound"}


@dataclass(frozen=True, slots=True)
class RetainedImage:
    """An image that stays, and why."""

    image: MachineImage
    why: str


@dataclass(frozen=True, slots=True)
class Removal:
    """A planned removal. `snapshots` belong to images that no longer exist, after an interrupted or manual removal."""

    images: tuple[MachineImage, ...]
    snapshots: tuple[Snapshot, ...]
    retained: tuple[RetainedImage, ...]
    held: frozenset[str]
    """Snapshots that an image which stays is made of too."""

    def goes_with(self, image: MachineImage) -> tuple[str, ...]:
        """Snapshots that are deleted with an image."""
        return tuple(id for id in image.snapshots if id not in self.held)

    @property
    def gib(self) -> int:
        """GiB of volumes behind the snapshots that go, each counted once."""
        sizes = {id: image.snapshots[id] for image in self.images for id in self.goes_with(image)}
        return sum((sizes | {snapshot.id: snapshot.gib for snapshot in self.snapshots}).values())


@dataclass(frozen=True, slots=True)
class Removed:
    """The result of a removal; `failed` has AWS's refusals by ID."""

    images: tuple[str, ...]
    snapshots: tuple[str, ...]
    failed: Mapping[str, str]


def decide(
    own: Sequence[MachineImage],
    images: Sequence[MachineImage],
    snapshots: Sequence[Snapshot],
    uses: Mapping[str, Sequence[str]],
    shared: Mapping[str, Sequence[str]],
    keep: int,
    named: Collection[str] = (),
    minors: Collection[str] = (),
) -> Removal:
    """Return the removal of those of `own`, the fleet's, that nothing uses, except the newest `keep` that are tested.

    `minors` are Kubernetes minors of the nodes, whose newest `keep` stay as well: while an upgrade is under way, the
    way back of nodes is not the newest image. `images` are all of the account. With `named` only those count: their age
    and whether they are shared do not keep them, a use still does.
    """
    own = sorted(own, key=lambda image: (image.created, image.id), reverse=True)
    tested = [image for image in own if image.state == "available" and image.tested]
    of_minors = ([image for image in tested if image.fact("kubernetes") == minor] for minor in minors)
    newest = {image.id for group in (tested, *of_minors) for image in group[:keep]}
    going, retained = [], []
    for image in own:
        if why := _keeps(image, newest, uses.get(image.id, ()), shared.get(image.id, ()), named):
            retained.append(RetainedImage(image, why))
        else:
            going.append(image)
    removed_ids = {image.id for image in going}
    held = frozenset(id for image in images if image.id not in removed_ids for id in image.snapshots)
    there = {image.id for image in images}
    orphans = [snapshot for snapshot in snapshots if snapshot.image not in there and snapshot.id not in held]
    return Removal(tuple(going), () if named else tuple(orphans), tuple(retained), held)


def _keeps(
    image: MachineImage, newest: Collection[str], uses: Sequence[str], shared: Sequence[str], named: Collection[str]
) -> str:
    """Return the reason to keep an image; empty where there is none."""
    if uses:
        return f"in use: {', '.join(uses)}"
    if image.state in {"pending", "transient"}:
        return f"it is {image.state}"
    if image.protected:
        return f"protected; aws ec2 disable-image-deregistration-protection --image-id {image.id}"
    if named:
        return "" if image.id in named else "not named"
    if image.id in newest:
        return "one of the newest"
    return f"shared with {', '.join(shared)}; --image {image.id} removes it anyway" if shared else ""


def carry_out(aws: Aws, fleet: str, removal: Removal) -> Removed:
    """Deregisters images and deletes their snapshots, one image at a time; continues where AWS refuses one."""
    images: list[str] = []
    snapshots: list[str] = []
    failed: dict[str, str] = {}
    for image in removal.images:
        going = removal.goes_with(image)
        try:
            if going:
                # First: once the image is gone nothing else says whose they were.
                tags = [{"Key": FLEET_TAG, "Value": fleet}, {"Key": PRUNED_TAG, "Value": image.id}]
                aws.change("ec2", "create_tags", Resources=list(going), Tags=tags)
            _unless_gone(aws, "deregister_image", ImageId=image.id)
        except AwsError as error:
            failed[image.id] = _first_line(error)
            continue
        images.append(image.id)
        _delete(aws, going, snapshots, failed)
    _delete(aws, [snapshot.id for snapshot in removal.snapshots], snapshots, failed)
    return Removed(tuple(images), tuple(snapshots), failed)


def _delete(aws: Aws, ids: Sequence[str], deleted: list[str], failed: dict[str, str]) -> None:
    for id in ids:
        try:
            _unless_gone(aws, "delete_snapshot", SnapshotId=id)
        except AwsError as error:
            failed[id] = _first_line(error)
        else:
            deleted.append(id)


def _unless_gone(aws: Aws, operation: str, **parameters: str) -> None:
    """Done, or done before by a removal that did not hear of it."""
    try:
        aws.change("ec2", operation, **parameters)
    except AwsError as error:
        if error.code not in _NOT_FOUND:
            raise


def _first_line(error: AwsError) -> str:
    return str(error).splitlines()[0]
