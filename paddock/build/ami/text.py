"""Builds and machine images for people, and as JSON. No tables: IDs and reasons leave them no room."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from paddock.build.ami.fit import Fit
from paddock.build.ami.images import MachineImage, usd_month
from paddock.build.ami.pipeline import Step
from paddock.build.ami.progress import duration
from paddock.build.ami.prune import Removal, Removed
from paddock.build.ami.watch import Failure, FinishedBuild

FACTS = ("driver", "cuda", "kubernetes", "kernel", "toolkit", "release", "runner-image")


def build_document(
    finished: FinishedBuild, images: Mapping[str, MachineImage], failure: Failure | None
) -> dict[str, Any]:
    """A build that has ended. `facts` are null for an image that is not in `images`, such as one of another region."""
    build = finished.build
    return {
        "execution": build.arn,
        "name": build.name,
        "version": build.version,
        "status": build.status,
        "reason": build.reason,
        "steps": [_step(step) for step in finished.steps],
        "images": [
            {"id": built.id, "region": built.region, "facts": facts(images[built.id]) if built.id in images else None}
            for built in build.images
        ],
        **({"failed_step": failure.step.name if failure.step else None, "log": failure.log} if failure else {}),
    }


def image_document(image: MachineImage, uses: Mapping[str, Sequence[str]] | None, region: str) -> dict[str, Any]:
    """`in_use_by` is null where that could not be read."""
    return {
        "id": image.id,
        "name": image.name,
        "state": image.state,
        "tested": image.tested,
        "created": image.created.isoformat(),
        "facts": facts(image),
        "root_gib": image.root_gib,
        "snapshots": dict(image.snapshots),
        "gib": image.gib,
        "usd_month_at_most": usd_month(image.gib, region),
        "in_use_by": None if uses is None else list(uses.get(image.id, ())),
    }


def removal_document(removal: Removal, region: str, removed: Removed | None) -> dict[str, Any]:
    return {
        "dry_run": removed is None,
        "images": [
            {"id": image.id, "name": image.name, "created": image.created.isoformat(), "gib": image.gib,
             "snapshots": removal.goes_with(image)}
            for image in removal.images
        ],
        "snapshots": [{"id": orphan.id, "image": orphan.image, "gib": orphan.gib} for orphan in removal.snapshots],
        "gib": removal.gib,
        "usd_month_at_most": usd_month(removal.gib, region),
        "kept": [{"id": retained.image.id, "why": retained.why} for retained in removal.retained],
        **(
            {"removed": removed.images, "deleted": removed.snapshots, "failed": dict(removed.failed)}
            if removed else {}
        ),
    }  # fmt: skip


def facts(image: MachineImage) -> dict[str, str | None]:
    return {name.replace("-", "_"): image.fact(name) for name in FACTS}


def show_images(images: Sequence[MachineImage], uses: Mapping[str, Sequence[str]] | None, region: str) -> None:
    """Print the contents, cost and users of each image. `uses` is None where they are unknown."""
    for image in images:
        has = ", ".join(f"{name} {fact}" for name in FACTS if (fact := image.fact(name)))
        _say(f"{image.id}  {_day(image.created)}  {image.state}  {image.name}")
        nothing = "no tag says what it has" if image.tested else "left by a build that failed or was cancelled"
        _say(f"    {has or nothing}")
        _say(f"    {_size(image.gib, region)}")
        for use in ("?",) if uses is None else uses.get(image.id, ("nothing",)):
            _say(f"    used by {use}")


def show_fits(fits: Sequence[Fit]) -> None:
    """Print the comparisons, when all of them fit."""
    for fit in fits:
        _say(f"{'fits' if fit.fits else 'note':<4}  {fit.subject}: {fit.text}")


def show_removal(removal: Removal, region: str, removed: Removed | None) -> None:
    """Print a planned removal, or the result of one."""
    for image in removal.images:
        _say(f"goes   {image.id}  {_day(image.created)}  {image.gib} GiB  {image.name}")
    for snapshot in removal.snapshots:
        _say(f"goes   {snapshot.id}  {snapshot.gib} GiB, left over of {snapshot.image}")
    for retained in removal.retained:
        _say(f"stays  {retained.image.id}  {retained.why}")
    if not removal.images and not removal.snapshots:
        _say("nothing to remove")
    elif removed is None:
        _say(f"{_size(removal.gib, region)}. Nothing is removed without --yes")
    else:
        _say(f"deregistered {len(removed.images)}, deleted {len(removed.snapshots)} snapshots")


def _step(step: Step) -> dict[str, Any]:
    return {
        "workflow": step.workflow,
        "name": step.name,
        "status": step.status,
        "seconds": step.seconds,
        "took": duration(step.seconds),
        "message": step.message,
    }


def _size(gib: int, region: str) -> str:
    cost = usd_month(gib, region)
    money = f"{cost:.2f} USD a month" if cost is not None else f"what they cost in {region} the catalogue does not know"
    return f"at most {gib} GiB of snapshots; {money}"


def _day(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M}"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
