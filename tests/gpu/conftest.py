"""What tests of the GPU library share: made-up drivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.nvml import PROFILES, Driver, installed


@pytest.fixture
def driver() -> Iterator[Callable[[str | Driver], Driver]]:
    """Makes a driver answer in this test, by name of a profile or as given; the last one made answers."""
    with ExitStack() as open_drivers:

        def install(which: str | Driver) -> Driver:
            made = PROFILES[which]() if isinstance(which, str) else which
            return open_drivers.enter_context(installed(made))

        yield install
