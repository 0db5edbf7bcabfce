"""Leases of the benchmark's tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_leases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Give each test leases of its own: those of the machine are shared by tests that run at once."""
    monkeypatch.setenv("PADDOCK_GPU_LEASES", str(tmp_path / "leases"))
