"""`images.push`: the runner image that was built from this checkout."""

from __future__ import annotations

from paddock.console.command import command
from paddock.images import runner
from paddock.images.commands.image import ImageDelivered, OfImage, Request, deliver


@command()
def push(parameters: OfImage) -> ImageDelivered:
    """Push the image, and pin it if asked. Raises BuildError, also where it was not built."""
    return deliver(Request(runner.NAME, parameters, build=False))
