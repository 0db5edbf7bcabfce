"""Files of models on this machine: fetched from a hub, made of random numbers, or packed in fewer bits."""

from paddock.models.local.files import weights

__all__ = ["weights"]
