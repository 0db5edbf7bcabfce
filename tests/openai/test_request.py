"""Requests as servers take them, and the dialect that a refusal asks for."""

from __future__ import annotations

import pytest

from paddock.openai.errors import OpenAIInputError
from paddock.openai.request import ENGINES, OPENAI, Dialect, asks_for, dialect_of, passed_on

# Words of servers, from issues in public repositories.
USE = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
EXTRA = '[{"type":"extra_forbidden","loc":["body","%s"],"msg":"Extra inputs are not permitted"}]'
REFUSALS: list[tuple[str, Dialect | None]] = [
    # decolua/9router, issue 560
    (USE, OPENAI),
    # OpenHands/OpenHands, issue 4131
    ("Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value.", OPENAI),
    # Bike4Mind/bike4mind, pull request 1089
    ("invalid temperature: only 1 is allowed for this model", OPENAI),
    # repowise-dev/repowise, issue 987
    ("max_tokens is too large: 20000. This model supports at most 16384 completion tokens.", None),
    # vLLM
    ("'max_tokens' or 'max_completion_tokens' is too large: 99. The maximum context length is 64 tokens.", None),
    (EXTRA % "max_completion_tokens", ENGINES),
    (EXTRA % "ignore_eos", None),
    ("busy", None),
]  # fmt: skip


@pytest.mark.parametrize(("words", "dialect"), REFUSALS)
def test_a_refusal_asks_for_the_dialect_that_it_names(words: str, dialect: Dialect | None) -> None:
    assert asks_for(words) is dialect


def test_a_dialect_is_found_by_its_name() -> None:
    assert dialect_of("openai").limit == "max_completion_tokens"
    with pytest.raises(OpenAIInputError, match=r"no dialect 'engine'\n    expected: did you mean engines\?"):
        dialect_of("engine")


def test_a_request_is_passed_on_with_what_nobody_knows() -> None:
    document = {"model": "ours", "prompt": "x", "stream": None, "tomorrow": {"a": [None]}, "stream_options": None}
    assert passed_on(document, "theirs") == {
        "model": "theirs", "prompt": "x", "tomorrow": {"a": [None]}, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
