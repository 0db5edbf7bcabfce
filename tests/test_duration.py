"""Lengths of time on command lines."""

from __future__ import annotations

import pytest

from paddock.duration import Hours, Minutes, NoDuration, Seconds


@pytest.mark.parametrize(("kind", "text", "number", "shown"), [
    (Seconds, "30s", 30.0, "30s"),
    (Seconds, "20m", 1200.0, "20m"),
    (Seconds, "2h", 7200.0, "2h"),
    (Seconds, "90", 90.0, "90s"),
    (Seconds, "1.5", 1.5, "1.5s"),
    (Seconds, "250ms", 0.25, "0.25s"),
    (Minutes, "2h", 120.0, "2h"),
    (Minutes, "30", 30.0, "30m"),
    (Minutes, "30s", 0.5, "30s"),
    (Hours, "1d", 24.0, "24h"),
    (Seconds, "0", 0.0, "0s"),
])  # fmt: skip
def test_a_length_of_time_is_read_in_the_unit_of_its_flag(
    kind: type[Seconds], text: str, number: float, shown: str
) -> None:
    assert (kind(text), str(kind(text))) == (number, shown)


@pytest.mark.parametrize("text", ["", "x", "5 weeks", "-5s", "m", "1h30m", "٣s"])
def test_other_text_is_refused_with_the_forms_that_are_read(text: str) -> None:
    with pytest.raises(NoDuration, match="expected: 30s, 20m or 2h; a bare number is in minutes"):
        Minutes(text)
