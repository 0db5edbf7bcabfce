"""The documentation."""

from __future__ import annotations

from invoke.context import Context

from paddock.tasks.common import ROOT, task


@task(name="pictures")
def docs_pictures(c: Context) -> None:
    """Draw the pictures in docs/pictures anew, from the example stacks."""
    from paddock.site import pictures

    pictures.write_all(ROOT)
