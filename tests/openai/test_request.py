"""Requests as servers take them, and the dialect that a refusal asks for."""

from __future__ import annotations

import pytest

from paddock.openai.errors import OpenAIInputError
from paddock.openai.request import ENGINES, OPENAI, Dialect, asks_for, dialect_of, refuses_usage

# Words of servers, from issues in public repositories.
USE = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
EXTRA = '[{"type":"extra_forbidden","loc":["body","%s"],"msg":"Extra inputs are not permitted"}]'
TEMPERATURE = "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value."
REFUSALS: list[tuple[str, Dialect, str | None, bool]] = [
    (USE, ENGINES, "max_completion_tokens", True),  # decolua/9router, issue 560
    (TEMPERATURE, ENGINES, "max_tokens", False),  # OpenHands/OpenHands, issue 4131
    ("invalid temperature: only 1 is allowed for this model", ENGINES, "max_tokens", False),  # Bike4Mind, PR 1089
    (EXTRA % "max_completion_tokens", OPENAI, "max_tokens", False),
    (EXTRA % "ignore_eos", ENGINES, None, True),
    (TEMPERATURE, OPENAI, None, False),
    # repowise-dev/repowise, issue 987
    ("max_tokens is too large: 20000. This model supports at most 16384 completion tokens.", ENGINES, None, True),
    # vLLM
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 99. The context length is 64.",
        ENGINES,
        None,
        True,
    ),
    ("busy", ENGINES, None, True),
]


@pytest.mark.parametrize(("words", "dialect", "limit", "temperature"), REFUSALS)
def test_a_refusal_asks_for_what_it_names(words: str, dialect: Dialect, limit: str | None, temperature: bool) -> None:
    wanted = asks_for(words, dialect)
    assert (wanted and wanted.limit) == limit
    assert wanted is None or bool(wanted.body) == temperature


def test_two_refusals_lead_from_one_dialect_to_the_other() -> None:
    first = asks_for(USE, ENGINES)
    assert first is not None
    assert asks_for(TEMPERATURE, first) == OPENAI


def test_a_dialect_is_found_by_its_name() -> None:
    assert dialect_of("openai").limit == "max_completion_tokens"
    with pytest.raises(OpenAIInputError, match=r"no dialect 'engine'\n    expected: did you mean engines\?"):
        dialect_of("engine")


def test_a_refusal_of_the_streams_options_is_known() -> None:
    assert refuses_usage(EXTRA % "stream_options")
    assert not refuses_usage(EXTRA % "top_k")
    assert not refuses_usage("stream_options: busy")
