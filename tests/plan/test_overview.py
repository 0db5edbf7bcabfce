"""The picture of a plan that stands alone."""

from __future__ import annotations

import pytest

from paddock.plan.output.html.overview import render
from tests.support.documents import NAMES, document, full, of, seed
from tests.support.drawings import words_of


@pytest.mark.parametrize("name", NAMES)
def test_every_fleet_has_a_picture_with_its_pools_and_runners(name: str) -> None:
    words = words_of(render(of(name)))
    assert {pool.name for pool in of(name).pools} <= set(words)
    priced = {runner.runner for runner in of(name).cost.runners} if of(name).cost else set()
    assert priced <= set(words)


def test_the_worst_fleet_says_what_does_not_fit() -> None:
    words = words_of(render(full(seed())))
    assert any(text.startswith("Not ready: 1 error") for text in words)
    assert "does not fit" in words
    assert "lacks 265m of 4 CPU, 1352Mi of 16Gi memory" in words


def test_an_empty_plan_has_a_picture() -> None:
    assert "sample" in words_of(render(document()))
