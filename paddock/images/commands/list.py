"""`images.list`: the images that a stack names and those built here, or the layers of one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddock.console.command import command
from paddock.console.output import BadFlag
from paddock.console.parameters import parameter
from paddock.console.project import OfStack, root
from paddock.console.report import Report
from paddock.errors import did_you_mean
from paddock.fleet import load
from paddock.image_reference import Reference
from paddock.images import image_inventory, size
from paddock.images.commands.image import folder_name
from paddock.images.docker import Docker
from paddock.images.errors import BuildInputError
from paddock.images.image_inventory import GATEWAY, Engine, ImageRecord, engine_here
from paddock.images.recipes import labels
from paddock.images.size import LayerSize


@dataclass(frozen=True, kw_only=True)
class ListImages(OfStack):
    """Parameters of `images.list`."""

    image: str = parameter(
        "",
        "show the layers of this one: any reference, or a folder of images/: the newest that was built of it",
        positional=True,
    )


@dataclass(frozen=True, kw_only=True)
class ImagesListed(Report):
    """The images of a stack, those that the program installs, and those of ours in the engine."""

    SCHEMA = 1
    stack: str
    missing: str
    """Why there is no engine; empty where there is one."""
    pinned: tuple[ImageRecord, ...]
    program: tuple[ImageRecord, ...]
    local: tuple[ImageRecord, ...]

    def document(self) -> dict[str, Any]:
        return {
            "schema": self.SCHEMA,
            "stack": self.stack,
            "engine": self.missing or None,
            "runners": [image.document() for image in self.pinned if image.pinned != (GATEWAY,)],
            "gateway": [image.document() for image in self.pinned if image.pinned == (GATEWAY,)],
            "program": [image.document() for image in self.program],
            "local": [image.document() for image in self.local],
        }

    def text(self) -> Iterator[str]:
        for image in (*self.pinned, *self.local):
            yield image.reference  # on a line of its own, so that it can be copied whole
            facts = [
                f"CUDA {image.cuda}" if image.cuda else "",
                f"runner {image.runner}" if image.runner else "",
                f"built {image.built}" if image.built else "",
                size.format_bytes(image.size_bytes) if image.size_bytes is not None else "",
            ]
            yield f"    {', '.join(filter(None, facts)) or 'nothing more is known of it'}"
            yield f"    pinned by {', '.join(image.pinned)}" if image.pinned else "    only in this machine's engine"
        yield from ("", "installed by the program")
        for image in self.program:
            yield f"  {image.reference:40}  {image.pinned[0]}"
        if self.missing:
            yield from ("", f"Ages and sizes are not known: {self.missing}")


@dataclass(frozen=True, kw_only=True)
class ImageLayers(Report):
    """An image by its layers, the largest first."""

    SCHEMA = 1
    image: str
    size_bytes: int
    layers: tuple[LayerSize, ...]

    def text(self) -> Iterator[str]:
        yield self.image
        yield f"{size.format_bytes(self.size_bytes):>9}  in all, unpacked"
        yield from size.lines(self.layers)


@command()
def list_images(parameters: ListImages, *, engine: Engine | None = None) -> ImagesListed | ImageLayers:
    """List images, or the layers of one. Raises FleetError, and BuildError for an image that is not here."""
    if parameters.image:
        if "stack" in parameters.changed():
            raise BadFlag(f"--stack does not apply to the layers of {parameters.image}\n    fix: leave --stack out")
        return _layers(engine or Docker.find(os.environ), folder_name(parameters.image))
    fleet = load(root(), parameters.stack).fleet
    engine, missing = (engine, "") if engine else engine_here()
    pinned = image_inventory.of_fleet(fleet, engine)
    return ImagesListed(
        stack=parameters.stack,
        missing=missing,
        pinned=pinned,
        program=tuple(image_inventory.of_program(fleet)),
        local=image_inventory.of_engine(engine, pinned) if engine else (),
    )


def _layers(engine: Engine, image: str) -> ImageLayers:
    reference = _reference(engine, image)
    layers = size.sizes(engine.layers(reference))
    largest = tuple(sorted(layers, key=lambda layer: -layer.size_bytes))
    return ImageLayers(image=reference, size_bytes=size.total(layers), layers=largest)


def _reference(engine: Engine, image: str) -> str:
    """Return the newest image of ours with that name, else the image as it is named."""
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
