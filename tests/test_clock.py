from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from paddock import clock
from paddock.tasks.program import main


def test_the_environment_names_the_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_TODAY", "2027-03-28")
    assert clock.today() == date(2027, 3, 28)


@pytest.mark.parametrize("text", ["", None])
def test_without_a_name_it_is_the_day_in_utc(text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDOCK_TODAY")
    if text is not None:
        monkeypatch.setenv("PADDOCK_TODAY", text)
    before = datetime.now(UTC).date()
    assert before <= clock.today() <= datetime.now(UTC).date()


@pytest.mark.parametrize("text", ["tomorrow", "2027-02-30", "20270328", "2027-W12-7", "2027-03-28T10:00", "28.3.2027"])
def test_no_other_form_is_a_date(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_TODAY", text)
    with pytest.raises(clock.BadDay, match=r"expected: YYYY-MM-DD.*\n.*unset PADDOCK_TODAY"):
        clock.today()


def test_a_task_refuses_a_day_that_is_none(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PADDOCK_TODAY", "never")
    assert main(["inv", "plan"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.partition("\n")[0]) == ("", "PADDOCK_TODAY is 'never', which is not a date")
