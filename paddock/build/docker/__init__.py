"""The Docker engine: found, asked, told to build and to push, with progress that a person can follow."""

from paddock.build.docker.engine import ROOM, Docker
from paddock.build.docker.model import Built, Finished, Layer, Local
from paddock.build.docker.show import Progress

__all__ = ["ROOM", "Built", "Docker", "Finished", "Layer", "Local", "Progress"]
