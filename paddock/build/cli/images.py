"""What `inv images.list`, `inv images.check` and `inv images.size` do, without Invoke."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from paddock.build.cli.output import print_json, told
from paddock.build.docker import Docker
from paddock.build.docker.names import Reference
from paddock.build.errors import BuildError, BuildInputError
from paddock.build.images import check as judge
from paddock.build.images import image_inventory, size
from paddock.build.images.image_inventory import Engine, Known
from paddock.build.recipes import labels
from paddock.fleet import load
from paddock.fleet.errors import did_you_mean
from paddock.terminal import console


class TooOld(BuildError):
    """Some image of the fleet must be built anew or does not fit its nodes. `document` is the check as JSON."""

    def __init__(self, message: str, document: dict[str, Any]) -> None:
        super().__init__(message)
        self.document = document


@told
def list_images(root: Path, stack: str, *, as_json: bool = False, engine: Engine | None = None) -> None:
    """Prints the images that a stack names, and those of ours in the engine. Raises FleetError."""
    fleet = load(root, stack).fleet
    engine, missing = (engine, "") if engine else _engine()
    pinned = image_inventory.of_fleet(fleet, engine)
    local = image_inventory.of_engine(engine, pinned) if engine else ()
    program = tuple(image_inventory.of_program(fleet))
    if as_json:
        print_json(
            {
                "stack": stack,
                "engine": missing or None,
                "runners": [each.document() for each in pinned],
                "program": [each.document() for each in program],
                "local": [each.document() for each in local],
            }
        )
        return
    lines = [line for each in (*pinned, *local) for line in _lines(each)]
    lines += ["", "installed by the program", *(f"  {each.reference:40}  {each.pinned[0]}" for each in program)]
    lines += ["", f"Ages and sizes are not known: {missing}"] if missing else []
    sys.stdout.write("\n".join(lines) + "\n")


def _lines(image: Known) -> Iterator[str]:
    """The name on a line of its own, so that it can be copied whole."""
    yield image.reference
    facts = [
        f"CUDA {image.cuda}" if image.cuda else "",
        f"runner {image.runner}" if image.runner else "",
        f"built {image.built}" if image.built else "",
        size.shown(image.size_bytes) if image.size_bytes is not None else "",
    ]
    yield f"    {', '.join(filter(None, facts)) or 'nothing more is known of it'}"
    yield f"    pinned by {', '.join(image.pinned)}" if image.pinned else "    only in this machine's engine"


@told
def check(
    root: Path, stack: str, *, today: date | None = None, as_json: bool = False, engine: Engine | None = None
) -> None:
    """Prints how the images of a stack's runners are pinned, how old they are and whether their CUDA fits.

    Raises TooOld (exit 1) where something is wrong, FleetError.
    """
    today = today or date.today()
    fleet = load(root, stack, today).fleet
    engine, missing = (engine, "") if engine else _engine()
    images = image_inventory.of_fleet(fleet, engine)
    base = engine.image if engine else lambda _: None
    found = [
        finding
        for image in images
        for finding in judge.image(image, image_inventory.processors(fleet, image.runners), base, today)
    ]
    found += judge.cuda(fleet, images)
    found = [replace(finding, fix=finding.fix.replace("--pin STACK", f"--pin {stack}")) for finding in found]
    document = {
        "stack": stack,
        "date": today.isoformat(),
        "engine": missing or None,
        "max_age_days": judge.MAX_DAYS,
        "findings": [finding.document() for finding in found],
    }
    if not as_json:
        _show(found, missing)
    if wrong := sum(finding.verdict == "wrong" for finding in found):
        what = f"{wrong} of {len(found)} answers about the images of stack {stack}"
        raise TooOld(f"{what} {'is' if wrong == 1 else 'are'} wrong; each says what mends it", document)
    if as_json:
        print_json(document)


@told
def show_size(image: str, *, as_json: bool = False, engine: Engine | None = None) -> None:
    """Prints the layers of an image by size: of a reference, or of the newest of ours with that name.

    Raises BuildError where there is no engine or no such image.
    """
    asked: Engine = engine or Docker.find(os.environ)
    reference = _reference(asked, image)
    layers = asked.layers(reference)
    total = size.total(layers)
    if as_json:
        largest = sorted(layers, key=lambda layer: -layer.size_bytes)
        rows = [{"size_bytes": each.size_bytes, "made_by": size.made_by(each)} for each in largest]
        print_json({"image": reference, "size_bytes": total, "layers": rows})
        return
    sys.stdout.write("\n".join([reference, f"{size.shown(total):>9}  in all, unpacked", *size.lines(layers)]) + "\n")


def _reference(engine: Engine, image: str) -> str:
    """The newest image of ours with that name, else the image as it is named."""
    Reference.read(image)
    ours = engine.images(labels.CONTENT)
    names = [each.rpartition(":")[0].rpartition("/")[2] for each in ours]
    if image in names:
        return ours[names.index(image)]
    if engine.image(image) is None:
        build = "" if ":" in image else f"./inv build-image {image}, or "
        raise BuildInputError(
            f"the engine of this machine has no image {image}"
            f"\n    expected: {', '.join([*sorted(set(names)), 'NAME:TAG of any image'])}"
            f"\n    fix: {did_you_mean(image, names) or f'{build}docker pull {image}'}"
        )
    return image


def _engine() -> tuple[Engine | None, str]:
    """The engine, or why there is none: what the stack file says can be told without."""
    try:
        return Docker.find(os.environ), ""
    except BuildError as error:
        return None, str(error).splitlines()[0]


def _show(found: Sequence[judge.Finding], missing: str) -> None:
    screen, subject = console(), ""
    colors = {"ok": "green", "unknown": "yellow", "warning": "yellow", "wrong": "red"}
    for finding in found:
        if finding.subject != subject:
            subject = finding.subject
            screen.print(f"\n{subject}", markup=False, style="bold", soft_wrap=True)
        screen.print(f"  {finding.verdict:<8}", style=colors[finding.verdict], end="")
        screen.print(f"{finding.about:<8} {finding.evidence}", markup=False, soft_wrap=True)
        if finding.fix and finding.verdict != "ok":
            screen.print(f"{'':19}fix: {finding.fix}", markup=False, soft_wrap=True)
    if missing:
        screen.print(f"\nWhat only the engine knows is left out: {missing}", markup=False, soft_wrap=True)
