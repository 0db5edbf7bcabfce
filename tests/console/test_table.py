"""Tables at the widths of terminals, and questions where nobody can answer."""

from __future__ import annotations

import pytest

from paddock.console.output import NO_JSON, BadFlag
from paddock.console.question import agreed
from paddock.console.table import table

HEAD = ("name", "GPUs", "state", "where it runs")
ROWS = [("gpu-a100", "8", "ready", "us-west-2a, on a node that was bought a minute ago"), ("gpu-t4", "1", "lost", "-")]


@pytest.mark.parametrize(("limit", "lost"), [(140, ""), (80, ""), (60, "where it runs"), (16, "where it runs, state")])
def test_a_narrow_table_drops_columns_and_never_letters(limit: int, lost: str) -> None:
    lines = list(table(HEAD, ROWS, right=("GPUs",), limit=limit))
    assert lines[-1] == f"not shown for lack of width: {lost}" if lost else len(lines) == 3
    shown = [column for column in HEAD if column not in lost.split(", ")]
    for line, row in zip(lines[1:], ROWS, strict=False):
        assert [cell for cell, name in zip(row, HEAD, strict=True) if name in shown and cell not in line] == []
    assert max(len(line) for line in lines[:3]) <= limit


def test_the_columns_that_go_first_can_be_chosen() -> None:
    assert next(iter(table(HEAD, ROWS, drop=("GPUs", "state"), limit=66))).split() == ["name", "where", "it", "runs"]


def test_a_row_that_ends_early_is_as_wide_as_it_likes() -> None:
    lines = list(table(("a", "b"), [("1", "2"), ("    fix: a long sentence",)], limit=10))
    assert lines == ["a  b", "1  2", "    fix: a long sentence"]


def test_a_question_that_nobody_can_answer_says_how_to_agree(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadFlag, match="add --yes"):
        agreed("Delete it?", NO_JSON)
    assert agreed("Delete it?", NO_JSON, yes=True)
