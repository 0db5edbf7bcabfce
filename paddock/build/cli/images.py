"""Implementations of `inv images.list`, `inv images.check` and `inv images.size`, without Invoke."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Any

from paddock import clock
from paddock.build.docker import Docker
from paddock.build.errors import BuildError, BuildInputError
from paddock.build.images import check as image_check
from paddock.build.images import image_inventory, size
from paddock.build.images.image_inventory import Engine, ImageRecord
from paddock.build.recipes import labels
from paddock.errors import did_you_mean
from paddock.fleet import load
from paddock.image_reference import Reference
from paddock.terminal import NO_JSON, JsonOutput, console, json_errors


class TooOld(BuildError):
    """Some image of the fleet must be built anew or does not fit its nodes. `document` is the check as JSON."""

    def __init__(self, message: str, document: dict[str, Any]) -> None:
        super().__init__(message)
        self.document = document


@json_errors
def list_images(root: Path, stack: str, *, json: JsonOutput = NO_JSON, engine: Engine | None = None) -> None:
    """Prints the images that a stack names, and those of ours in the engine. Raises FleetError."""
    fleet = load(root, stack).fleet
    engine, missing = (engine, "") if engine else _engine()
    pinned = image_inventory.of_fleet(fleet, engine)
    local = image_inventory.of_engine(engine, pinned) if engine else ()
    program = tuple(image_inventory.of_program(fleet))
    json.write(
        {
            "stack": stack,
            "engine": missing or None,
            "runners": [image.document() for image in pinned],
            "program": [image.document() for image in program],
            "local": [image.document() for image in local],
        }
    )
    if json.replaces_text:
        return
    lines = [line for image in (*pinned, *local) for line in _lines(image)]
    lines += ["", "installed by the program", *(f"  {image.reference:40}  {image.pinned[0]}" for image in program)]
    lines += ["", f"Ages and sizes are not known: {missing}"] if missing else []
    sys.stdout.write("\n".join(lines) + "\n")


def _lines(image: ImageRecord) -> Iterator[str]:
    """The name on a line of its own, so that it can be copied whole."""
    yield image.reference
    facts = [
        f"CUDA {image.cuda}" if image.cuda else "",
        f"runner {image.runner}" if image.runner else "",
        f"built {image.built}" if image.built else "",
        size.format_bytes(image.size_bytes) if image.size_bytes is not None else "",
    ]
    yield f"    {', '.join(filter(None, facts)) or 'nothing more is known of it'}"
    yield f"    pinned by {', '.join(image.pinned)}" if image.pinned else "    only in this machine's engine"


@json_errors
def check(
    root: Path, stack: str, *, today: date | None = None, json: JsonOutput = NO_JSON, engine: Engine | None = None
) -> None:
    """Prints how the images of a stack's runners are pinned, how old they are and whether their CUDA fits.

    Raises TooOld (exit 1) where something is wrong, FleetError.
    """
    today = today or clock.today()
    fleet = load(root, stack).fleet
    engine, missing = (engine, "") if engine else _engine()
    images = image_inventory.of_fleet(fleet, engine)
    base = engine.image if engine else lambda _: None
    findings = [
        finding
        for image in images
        for finding in image_check.image(image, image_inventory.processors(fleet, image.runners), base, today)
    ]
    findings += image_check.cuda(fleet, images)
    findings = [replace(finding, fix=finding.fix.replace("--pin STACK", f"--pin {stack}")) for finding in findings]
    document = {
        "stack": stack,
        "date": today.isoformat(),
        "engine": missing or None,
        "max_age_days": image_check.MAX_DAYS,
        "findings": [asdict(finding) for finding in findings],
    }
    if not json.replaces_text:
        _show(findings, missing)
    if wrong := sum(finding.verdict == "wrong" for finding in findings):
        summary = f"{wrong} of {len(findings)} answers about the images of stack {stack}"
        raise TooOld(f"{summary} {'is' if wrong == 1 else 'are'} wrong; each says what mends it", document)
    json.write(document)


@json_errors
def show_size(image: str, *, json: JsonOutput = NO_JSON, engine: Engine | None = None) -> None:
    """Prints the layers of an image by size: of a reference, or of the newest of ours with that name.

    Raises BuildError where there is no engine or no such image.
    """
    store: Engine = engine or Docker.find(os.environ)
    reference = _reference(store, image)
    layers = store.layers(reference)
    total = size.total(layers)
    largest = sorted(layers, key=lambda layer: -layer.size_bytes)
    rows = [{"size_bytes": layer.size_bytes, "made_by": size.made_by(layer)} for layer in largest]
    json.write({"image": reference, "size_bytes": total, "layers": rows})
    if json.replaces_text:
        return
    sys.stdout.write(
        "\n".join([reference, f"{size.format_bytes(total):>9}  in all, unpacked", *size.lines(layers)]) + "\n"
    )


def _reference(engine: Engine, image: str) -> str:
    """The newest image of ours with that name, else the image as it is named."""
    Reference.parse(image)
    references = engine.images(labels.CONTENT)
    names = [reference.rpartition(":")[0].rpartition("/")[2] for reference in references]
    if image in names:
        return references[names.index(image)]
    if engine.image(image) is None:
        build = "" if ":" in image else f"./inv images.build {image}, or "
        raise BuildInputError(
            f"the engine of this machine has no image {image}"
            f"\n    expected: {', '.join([*sorted(set(names)), 'NAME:TAG of any image'])}"
            f"\n    fix: {did_you_mean(image, names) or f'{build}docker pull {image}'}"
        )
    return image


def _engine() -> tuple[Engine | None, str]:
    """The engine, or why there is none: what the stack file says can be reported without."""
    try:
        return Docker.find(os.environ), ""
    except BuildError as error:
        return None, str(error).splitlines()[0]


def _show(findings: Sequence[image_check.Finding], missing: str) -> None:
    screen, subject = console(), ""
    colors = {"ok": "green", "unknown": "yellow", "warning": "yellow", "wrong": "red"}
    for finding in findings:
        if finding.subject != subject:
            subject = finding.subject
            screen.print(f"\n{subject}", markup=False, style="bold", soft_wrap=True)
        screen.print(f"  {finding.verdict:<8}", style=colors[finding.verdict], end="")
        screen.print(f"{finding.about:<8} {finding.evidence}", markup=False, soft_wrap=True)
        if finding.fix and finding.verdict != "ok":
            screen.print(f"{'':19}fix: {finding.fix}", markup=False, soft_wrap=True)
    if missing:
        screen.print(f"\nWhat only the engine knows is left out: {missing}", markup=False, soft_wrap=True)
