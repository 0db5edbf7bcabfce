"""Admission of a model before it is loaded."""

from __future__ import annotations

import pytest

from paddock.modes.admission import Demand, DoesNotFit, Room, admit
from paddock.modes.config import PRESETS

GIB = 1 << 30


def test_admission_says_the_numbers_and_what_fits() -> None:
    demand = Demand(8 * GIB, 131072, 16, 4096, "bf16", {"int8": 4 * GIB, "int4": 2 * GIB})
    room = Room(24 * GIB, 20 * GIB)
    admit(demand, room, PRESETS["aggressive"])  # (8 + 8) x 1.1 = 17.6 of 20 free
    with pytest.raises(DoesNotFit) as error:
        admit(demand, room, PRESETS["conservative"])
    text = str(error.value)
    assert "needs 17.6 GiB: weights in bf16 8.0, cache of 16 x 4096 tokens 8.0, and a tenth" in text
    assert "12.0 GiB are allowed (50% of 24.0 GiB)" in text
    assert "fix: a batch of 5; int8 weights with a batch of 13; int4 weights with a batch of 16" in text
    with pytest.raises(DoesNotFit, match=r"4\.0 GiB are free, of"):
        admit(demand, Room(24 * GIB, 4 * GIB), PRESETS["aggressive"])
