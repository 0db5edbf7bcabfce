"""How far a run looks: as far as finds what a change breaks, or on and on for what nobody has met (`--explore`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

EXPLORING = os.environ.get("PADDOCK_EXPLORE") == "1"


def count(few: int, many: int) -> int:
    """Return how many cases a test tries: `few` in every run, `many` where the suite explores."""
    return many if EXPLORING else few


def examples(few: int, many: int, **other: Any) -> Callable[[Any], Any]:
    """Run a property on `few` made-up examples in every run, and on `many` where the suite explores."""

    def decorate(function: Any) -> Any:
        return pytest.mark.at_length(settings(max_examples=count(few, many), **other)(function))

    return decorate
