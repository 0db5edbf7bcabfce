"""A stand-in for GitHub: the Actions service that runner scale sets talk to, and the lab's control of it."""

from paddock.lab.github.control import Control, start, url_of

__all__ = ["Control", "start", "url_of"]
