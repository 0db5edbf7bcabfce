"""The pictures of the documentation: current, and fit to be shown as an image."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.site.pictures import FOLDER, PICTURES
from tests.support.drawings import words_of


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_the_one_that_the_code_draws(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_TODAY", "2031-01-01")
    drawn = PICTURES[name](root)
    assert (root / FOLDER / name).read_text(encoding="utf-8") == drawn, "run ./inv docs.generate"
    assert words_of(drawn)


def test_the_folder_holds_no_other_picture(root: Path) -> None:
    assert {path.name for path in (root / FOLDER).glob("*.svg")} == set(PICTURES)
