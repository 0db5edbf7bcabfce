"""The Docker engine: find it, build, push and run images with it, and explain its failures.

Other packages use `Docker` and the values here, and know no other module but `folders`.
"""

from paddock.images.docker.engine import ROOM, Docker
from paddock.images.docker.model import Built, Finished, Layer, Local
from paddock.images.docker.show import Progress, progress_of

__all__ = ["ROOM", "Built", "Docker", "Finished", "Layer", "Local", "Progress", "progress_of"]
