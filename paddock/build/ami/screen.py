"""Builds and machine images for people, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from paddock.build.ami.fit import Fit
from paddock.build.ami.follow import Failure, Followed
from paddock.build.ami.images import MachineImage, usd_month
from paddock.build.ami.pipeline import Step
from paddock.build.ami.prune import Removal, Removed
from paddock.build.ami.voice import duration
from paddock.terminal import console

FACTS = ("driver", "cuda", "kubernetes", "kernel", "toolkit", "release", "runner-image")


def build_document(followed: Followed, known: Mapping[str, MachineImage], failure: Failure | None) -> dict[str, Any]:
    """A build that has ended. `facts` are null for an image that is not `known`, such as one of another region."""
    build = followed.build
    return {
        "execution": build.arn,
        "name": build.name,
        "version": build.version,
        "status": build.status,
        "reason": build.reason,
        "steps": [_step(step) for step in followed.steps],
        "images": [
            {"id": made.id, "region": made.region, "facts": facts(known[made.id]) if made.id in known else None}
            for made in build.made
        ],
        **({"failed_step": failure.step.name if failure.step else None, "log": failure.log} if failure else {}),
    }


def image_document(image: MachineImage, uses: Mapping[str, Sequence[str]] | None, region: str) -> dict[str, Any]:
    """`in_use_by` is null where that could not be read."""
    return {
        "id": image.id,
        "name": image.name,
        "state": image.state,
        "created": image.created.isoformat(),
        "facts": facts(image),
        "root_gib": image.root_gib,
        "snapshots": dict(image.snapshots),
        "gib": image.gib,
        "usd_month_at_most": usd_month(image.gib, region),
        "in_use_by": None if uses is None else list(uses.get(image.id, ())),
    }


def removal_document(removal: Removal, region: str, done: Removed | None) -> dict[str, Any]:
    return {
        "dry_run": done is None,
        "images": [
            {"id": image.id, "name": image.name, "created": image.created.isoformat(), "gib": image.gib,
             "snapshots": removal.goes_with(image)}
            for image in removal.images
        ],
        "snapshots": [{"id": each.id, "image": each.image, "gib": each.gib} for each in removal.snapshots],
        "gib": removal.gib,
        "usd_month_at_most": usd_month(removal.gib, region),
        "kept": [{"id": each.image.id, "why": each.why} for each in removal.kept],
        **({"removed": done.images, "deleted": done.snapshots, "failed": dict(done.failed)} if done else {}),
    }  # fmt: skip


def facts(image: MachineImage) -> dict[str, str | None]:
    return {name.replace("-", "_"): image.fact(name) for name in FACTS}


def show_images(images: Sequence[MachineImage], uses: Mapping[str, Sequence[str]] | None, region: str) -> None:
    """What each image has, costs, and is used by. No table: there is no room for one on a narrow terminal."""
    for image in images:
        has = ", ".join(f"{name} {fact}" for name in FACTS if (fact := image.fact(name)))
        _say(f"{image.id}  {_day(image.created)}  {image.state}  {image.name}")
        _say(f"    {has or 'no tag says what it has'}")
        _say(f"    {_size(image.gib, region)}")
        for use in ("?",) if uses is None else uses.get(image.id, ("nothing",)):
            _say(f"    used by {use}")


def show_fits(fits: Sequence[Fit]) -> None:
    words = {True: "fits", False: "does not fit", None: "unknown"}
    _table(("", "", ""), [(fit.subject, words[fit.fits], fit.text) for fit in fits], heads=False)


def show_removal(removal: Removal, region: str, done: Removed | None) -> None:
    """What would go, or has gone."""
    if not removal.images and not removal.snapshots:
        _say("nothing to remove")
    if removal.images:
        rows = [(image.id, _day(image.created), str(image.gib), image.name) for image in removal.images]
        _table(("goes", "created", "GiB", "name"), rows)
    if removal.snapshots:
        left = [(each.id, each.image, str(each.gib)) for each in removal.snapshots]
        _say("")
        _table(("left over", "of image", "GiB"), left)
    if removal.kept:
        _say("")
        _table(("stays", "why"), [(each.image.id, each.why) for each in removal.kept])
    if done is not None:
        _say(f"\nderegistered {len(done.images)}, deleted {len(done.snapshots)} snapshots")
    elif removal.images or removal.snapshots:
        _say(f"\n{_size(removal.gib, region)}. Nothing is removed without --yes")


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
    console().print(text, markup=False, soft_wrap=True)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], heads: bool = True) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=heads)
    for number, column in enumerate(columns):
        # An ID that is cut or broken over two lines cannot be copied.
        table.add_column(column, justify="right" if column == "GiB" else "left", overflow="fold", no_wrap=not number)
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)
