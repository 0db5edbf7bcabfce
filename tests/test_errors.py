from __future__ import annotations

import pytest

from paddock.errors import Problem, did_you_mean


@pytest.mark.parametrize(
    ("word", "hint"),
    [("max_pods", "did you mean maxPods?"), ("MaxPod", "did you mean maxPods?"), ("zzz", "one of maxPods, min")],
)
def test_a_hint_names_the_nearest_or_the_alternative(word: str, hint: str) -> None:
    assert did_you_mean(word, ["maxPods", "min"], "one of maxPods, min") == hint


def test_a_problem_has_its_place_and_no_control_characters() -> None:
    problem = Problem(("pools", "t4", 0), "bad \x1b[31m", expected="good", fix="mend it", file="a.yaml", line=3)
    assert str(problem) == "a.yaml:3: pools.t4[0]: bad \\x1b[31m\n    expected: good\n    fix: mend it"
