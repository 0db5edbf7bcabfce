"""Every task has a test that comes in by its door."""

from __future__ import annotations

from pathlib import Path

from paddock.tasks.program import contents
from tests.support import door


def test_every_task_is_called_as_a_user_calls_it(root: Path) -> None:
    called = {row.task for row in door.rows(root)}
    assert sorted(set(contents().entries) - called) == [], "write a test with @pytest.mark.door(task, counterpart)"
    assert sorted(called - set(contents().entries)) == [], "no such task"


def test_every_row_says_what_the_task_meets(root: Path) -> None:
    assert [row for row in door.rows(root) if not row.counterpart] == []
