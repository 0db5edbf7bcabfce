"""Shortcuts through Pulumi's SDK: what a plan needs of its functions, without what only a deployment does.

Together they take two thirds of the CPU of a large program, and they change no graph: a test runs programs with and
without them. What they cannot take goes the SDK's own way. They rest on private names of the SDK, like the monitor.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paddock.plan.engine.sdk import outputs, registration, serialization


@contextmanager
def shortcuts() -> Iterator[None]:
    """Take the shortcuts while a program runs."""
    replacements = (*registration.replacements(), *outputs.REPLACEMENTS, *serialization.REPLACEMENTS)
    originals = [(owner, name, vars(owner)[name]) for owner, name, _ in replacements]
    try:
        for owner, name, replacement in replacements:
            setattr(owner, name, replacement)
        yield
    finally:
        for owner, name, original in originals:
            setattr(owner, name, original)
