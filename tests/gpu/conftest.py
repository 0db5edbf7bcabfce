"""Fixtures that tests of the GPU library share: simulated drivers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import which

import pytest

from tests.support.nvml import PROFILES, Driver, installed, library


@pytest.fixture
def driver() -> Iterator[Callable[[str | Driver], Driver]]:
    """Install a simulated driver in this test, by name of a profile or as an object; the latest answers."""
    with ExitStack() as open_drivers:

        def install(profile: str | Driver) -> Driver:
            simulated = PROFILES[profile]() if isinstance(profile, str) else profile
            return open_drivers.enter_context(installed(simulated))

        yield install


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a made-up driver library for LD_LIBRARY_PATH of a program; libnvml.c says what it reads."""
    compiler = which("cc") or which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on PATH for the made-up driver library")
    return library(tmp_path_factory.mktemp("nvml"), compiler).parent
