"""What a test needs to come in by the door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.door import Door


@pytest.fixture
def inv(root: Path, tmp_path: Path) -> Door:
    """Return what calls `./inv` from an empty folder with an empty HOME."""
    return Door(root, tmp_path)
