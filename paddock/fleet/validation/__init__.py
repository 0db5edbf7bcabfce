"""Checks between the parts of a fleet, one module a part. Each check yields its problems; none stops at the first.

A part's own consistency is the model's, and its position in a file the stack file's.
"""

from __future__ import annotations

from collections.abc import Iterator

from paddock.fleet.errors import FleetError, Problem
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.validation import cluster, images, monitoring, network, pools, runners, serving


def problems(fleet: Fleet) -> Iterator[Problem]:
    """Yield every problem of the fleet; none depends on the day, so that an old stack still loads."""
    for part in (cluster, network, pools, runners, serving, monitoring, images):
        yield from part.problems(fleet)


def check(fleet: Fleet) -> Fleet:
    """Return the fleet if it has no problems. Raises FleetError with all of them."""
    if mistakes := list(problems(fleet)):
        raise FleetError(mistakes)
    return fleet
