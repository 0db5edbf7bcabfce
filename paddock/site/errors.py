"""Errors of the documentation's site."""

from __future__ import annotations

from paddock.errors import PaddockError


class SiteError(PaddockError):
    """The site cannot be built as it is."""
