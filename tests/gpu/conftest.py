"""Fixtures that tests of the GPU library share: simulated drivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.nvml import PROFILES, Driver, installed


@pytest.fixture
def driver() -> Iterator[Callable[[str | Driver], Driver]]:
    """Install a simulated driver in this test, by name of a profile or as an object; the latest answers."""
    with ExitStack() as open_drivers:

        def install(profile: str | Driver) -> Driver:
            simulated = PROFILES[profile]() if isinstance(profile, str) else profile
            return open_drivers.enter_context(installed(simulated))

        yield install
