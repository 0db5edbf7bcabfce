"""What rules read of resources' inputs."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.plan import fields
from paddock.plan.engine.values import UNKNOWN, Secret


@pytest.mark.parametrize(
    ("value", "unknown"),
    [
        (UNKNOWN, True),
        (Secret(UNKNOWN), True),
        ({"a": [{"b": Secret([UNKNOWN])}]}, True),
        (("x", {UNKNOWN: 1}), True),
        ("x", False),
        ({"a": [{"b": "x", "c": None}, 1, Secret("y")]}, False),
    ],
)
def test_what_is_not_known_is_found_at_any_depth(value: Any, unknown: bool) -> None:
    assert fields.has_unknown(value) is unknown
