"""The fleet's machine images in EC2: what they are, by their tags, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from paddock import catalog
from paddock.aws.client import Aws
from paddock.images.ami.pipeline import FLEET_TAG

PRUNED_TAG = "paddock:pruned-image"
"""On a snapshot: the image that was being removed with it, so that an interrupted removal can be finished."""
BUILD_TAG = "Ec2ImageBuilderArn"
"""Image Builder's own tag, on an image as soon as it is made. The fleet's come when it is distributed, once tested."""
_FACTS = ("driver", "cuda", "kubernetes", "kernel", "toolkit", "release", "runner-image")
_MADE_FOR = re.compile(r"(?:Created by CreateImage\(i-[0-9a-f]+\) for|Copied for DestinationAmi) (ami-[0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class MachineImage:
    """An AMI. What it holds is what its tags say; None where a tag is missing."""

    id: str
    name: str
    state: str
    reason: str
    created: datetime
    arch: str
    root_gib: int
    snapshots: Mapping[str, int]
    """GiB of the volume behind each snapshot: the most that is stored."""
    protected: bool
    """True where EC2 refuses to deregister it."""
    tags: Mapping[str, str]

    def fact(self, name: str) -> str | None:
        """`driver`, `cuda`, `kubernetes`, `kernel`, `toolkit`, `release`, `runner-image` or `fleet`."""
        return self.tags.get(f"paddock:{name}") or None

    @property
    def tested(self) -> bool:
        """Return whether its build completed, which is when it gets the fleet's tags."""
        return self.fact("fleet") is not None

    @property
    def gib(self) -> int:
        return sum(self.snapshots.values())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot of the fleet that was made for an image."""

    id: str
    image: str
    gib: int


def owned(aws: Aws) -> tuple[MachineImage, ...]:
    """Every image of the account in this region, disabled ones too, newest first."""
    pages = aws.pages("ec2", "describe_images", "Images", Owners=["self"], IncludeDeprecated=True, IncludeDisabled=True)
    return tuple(sorted(map(_image, pages), key=lambda image: (image.created, image.id), reverse=True))


def of_fleet(images: Iterable[MachineImage], fleet: str, lost: Collection[str] = ()) -> tuple[MachineImage, ...]:
    """The fleet's, and what its builds left that are `lost`: an image without tags of ours that nobody may boot."""
    return tuple(
        image
        for image in images
        if image.fact("fleet") == fleet or (not image.tested and image.tags.get(BUILD_TAG) in lost)
    )


def read(aws: Aws, id: str) -> MachineImage | None:
    """Return one image of any owner; None where this account sees none of that ID in this region."""
    filters = [{"Name": "image-id", "Values": [id]}]
    pages = aws.pages("ec2", "describe_images", "Images", Filters=filters, IncludeDeprecated=True, IncludeDisabled=True)
    return next(map(_image, pages), None)


def shared_with(aws: Aws, id: str) -> tuple[str, ...]:
    """Accounts, organisations or `all` that may launch an image of ours."""
    answer = aws.ask("ec2", "describe_image_attribute", ImageId=id, Attribute="launchPermission")
    keys = ("UserId", "Group", "OrganizationArn", "OrganizationalUnitArn")
    return tuple(grant[key] for grant in answer.get("LaunchPermissions") or () for key in keys if grant.get(key))


def made_for_images(aws: Aws, fleet: str) -> tuple[Snapshot, ...]:
    """The fleet's snapshots that were made for an image; those of volumes are somebody's backups."""
    tagged = [{"Name": f"tag:{FLEET_TAG}", "Values": [fleet]}]
    snapshots = []
    for snapshot in aws.pages("ec2", "describe_snapshots", "Snapshots", OwnerIds=["self"], Filters=tagged):
        described = _MADE_FOR.match(snapshot.get("Description") or "")
        image = _tags(snapshot).get(PRUNED_TAG) or (described[1] if described else "")
        if image:
            snapshots.append(Snapshot(snapshot["SnapshotId"], image, snapshot.get("VolumeSize") or 0))
    return tuple(snapshots)


def usd_month(gib: int, region: str) -> float | None:
    """The most that snapshots of so many GiB cost a month; None where the catalogue has no price for the region."""
    price = catalog.fixed_price("ebs.snapshot", region)
    return None if price is None else round(price.value * gib, 2)


def snapshots_cost(gib: int, region: str) -> str:
    """Return the size of snapshots, and what they cost at most, as a sentence."""
    cost = usd_month(gib, region)
    money = f"{cost:.2f} USD a month" if cost is not None else f"what they cost in {region} the catalogue does not know"
    return f"at most {gib} GiB of snapshots; {money}"


def facts(image: MachineImage | None) -> dict[str, str | None] | None:
    """Return what the tags of an image say of its content; None of an image that was not read."""
    return {name.replace("-", "_"): image.fact(name) for name in _FACTS} if image else None


def minute(when: str) -> str:
    """Return a time of ISO 8601 to the minute, for a list."""
    return when[:16].replace("T", " ")


def _image(image: dict[str, Any]) -> MachineImage:
    disks = {mapping["DeviceName"]: mapping.get("Ebs") or {} for mapping in image.get("BlockDeviceMappings") or ()}
    return MachineImage(
        id=image["ImageId"],
        name=image.get("Name", ""),
        state=image["State"],
        reason=(image.get("StateReason") or {}).get("Message", ""),
        created=datetime.fromisoformat(image["CreationDate"]).astimezone(UTC),
        arch=image.get("Architecture", ""),
        root_gib=disks.get(image.get("RootDeviceName", ""), {}).get("VolumeSize") or 0,
        snapshots={disk["SnapshotId"]: disk.get("VolumeSize") or 0 for disk in disks.values() if "SnapshotId" in disk},
        protected=str(image.get("DeregistrationProtection") or "disabled") != "disabled",
        tags=_tags(image),
    )


def _tags(resource: dict[str, Any]) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in resource.get("Tags") or ()}
