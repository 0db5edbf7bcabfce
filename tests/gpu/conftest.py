"""Fixtures that tests of the GPU library share: simulated drivers, and a folder of leases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from paddock.gpu.leases.manager import Leases
from tests.support.nvml import PROFILES, Driver, installed


@pytest.fixture
def driver() -> Iterator[Callable[[str | Driver], Driver]]:
    """Install a simulated driver in this test, by name of a profile or as an object; the latest answers."""
    with ExitStack() as open_drivers:

        def install(profile: str | Driver) -> Driver:
            simulated = PROFILES[profile]() if isinstance(profile, str) else profile
            return open_drivers.enter_context(installed(simulated))

        yield install


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    return Leases(tmp_path / "leases", environ={})
