"""Which of the fleet's machine images nobody needs any more, and their removal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from paddock.build.ami.images import PRUNED_TAG, MachineImage, Snapshot
from paddock.build.ami.pipeline import FLEET_TAG
from paddock.build.aws import Aws, AwsError
from paddock.build.errors import BuildError

_GONE = {"InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidSnapshot.NotFound"}


@dataclass(frozen=True, slots=True)
class Kept:
    """An image that stays, and why."""

    image: MachineImage
    why: str


@dataclass(frozen=True, slots=True)
class Removal:
    """What goes. `snapshots` are those of images that are gone already: a removal was interrupted, or done by hand."""

    images: tuple[MachineImage, ...]
    snapshots: tuple[Snapshot, ...]
    kept: tuple[Kept, ...]
    held: frozenset[str]
    """Snapshots that an image which stays is made of too."""

    def goes_with(self, image: MachineImage) -> tuple[str, ...]:
        """Snapshots that are deleted with an image."""
        return tuple(id for id in image.snapshots if id not in self.held)

    @property
    def gib(self) -> int:
        """GiB of volumes behind the snapshots that go, each counted once."""
        sizes = {id: image.snapshots[id] for image in self.images for id in self.goes_with(image)}
        return sum((sizes | {each.id: each.gib for each in self.snapshots}).values())


@dataclass(frozen=True, slots=True)
class Removed:
    """What was done; `failed` says by ID what AWS refused."""

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
) -> Removal:
    """What of `own`, the fleet's, goes: what nothing uses, older than the newest `keep` that passed their tests.

    `images` are all of the account. With `named` only those are looked at: their age and whether they are shared do not
    keep them, a use still does.
    """
    own = sorted(own, key=lambda image: (image.created, image.id), reverse=True)
    newest = [image.id for image in own if image.state == "available" and image.tested][:keep]
    going, kept = [], []
    for image in own:
        if why := _keeps(image, newest, uses.get(image.id, ()), shared.get(image.id, ()), named):
            kept.append(Kept(image, why))
        else:
            going.append(image)
    gone = {image.id for image in going}
    held = frozenset(id for image in images if image.id not in gone for id in image.snapshots)
    there = {image.id for image in images}
    left = [each for each in snapshots if each.image not in there and each.id not in held]
    return Removal(tuple(going), () if named else tuple(left), tuple(kept), held)


def _keeps(
    image: MachineImage, newest: Collection[str], uses: Sequence[str], shared: Sequence[str], named: Collection[str]
) -> str:
    """Why an image stays; empty where nothing keeps it."""
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
    return f"shared with {', '.join(shared)}; --image {image.id} removes it all the same" if shared else ""


def carry_out(aws: Aws, fleet: str, removal: Removal) -> Removed:
    """Deregisters images and deletes their snapshots, one image at a time; goes on where AWS refuses one."""
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
            _gone_or(aws, "deregister_image", ImageId=image.id)
        except BuildError as error:
            failed[image.id] = _first_line(error)
            continue
        images.append(image.id)
        _delete(aws, going, snapshots, failed)
    _delete(aws, [each.id for each in removal.snapshots], snapshots, failed)
    return Removed(tuple(images), tuple(snapshots), failed)


def _delete(aws: Aws, ids: Sequence[str], deleted: list[str], failed: dict[str, str]) -> None:
    for id in ids:
        try:
            _gone_or(aws, "delete_snapshot", SnapshotId=id)
        except BuildError as error:
            failed[id] = _first_line(error)
        else:
            deleted.append(id)


def _gone_or(aws: Aws, operation: str, **asked: str) -> None:
    """Done, or done before by a removal that did not hear of it."""
    try:
        aws.change("ec2", operation, **asked)
    except AwsError as error:
        if error.code not in _GONE:
            raise


def _first_line(error: BuildError) -> str:
    return str(error).splitlines()[0]
