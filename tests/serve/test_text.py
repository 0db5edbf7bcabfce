"""Text of an answer as its tokens come, with tokenizers of the two common kinds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.serve.engine.text import AnswerText
from paddock.serve.engine.tokens import ByteTokens, FileTokens, Tokens
from tests.support.packages import need

need("transformers")

from tests.support.tokenizers import write_tokenizer

KINDS = ("bytes", "pieces")
LENGTH = 10**6


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokens]:
    return {kind: FileTokens(write_tokenizer(tmp_path_factory.mktemp(kind), kind)) for kind in KINDS}


def streamed(tokens: Tokens, ids: Sequence[int], stop: Sequence[str] = ()) -> str:
    answer, text = AnswerText(tokens, stop), ""
    for number, id in enumerate(ids, 1):
        text += answer.add(id, number == len(ids))
        if answer.stopped:
            break
    return text


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=60))
def test_a_text_comes_as_it_was_encoded(tokenizers: dict[str, Tokens], kind: str, text: str) -> None:
    tokens = tokenizers[kind]
    ids = tokens.encode(text, (), LENGTH)
    assert streamed(tokens, ids) == tokens.decode(ids)


@given(numbers=st.lists(st.integers(0, 419), max_size=60))
def test_ids_of_no_text_come_as_they_are_decoded(tokenizers: dict[str, Tokens], numbers: list[int]) -> None:
    tokens = tokenizers["bytes"]
    shown, whole = streamed(tokens, numbers), tokens.decode(numbers)
    assert shown.replace("\ufffd", "") == whole.replace("\ufffd", "") or "\ufffd" in whole
    assert "\ufffd" in shown or shown == whole


@pytest.mark.parametrize("kind", KINDS)
def test_a_character_of_several_tokens_is_shown_once_it_is_whole(tokenizers: dict[str, Tokens], kind: str) -> None:
    tokens = tokenizers[kind]
    ids = tokens.encode("a \N{ROCKET} b", (), LENGTH)
    answer = AnswerText(tokens)
    pieces = [answer.add(id, number == len(ids)) for number, id in enumerate(ids, 1)]
    assert "".join(pieces) == "a \N{ROCKET} b"
    assert not any("\ufffd" in piece for piece in pieces)


class Counting(ByteTokens):
    """Tokenizer that counts the ids it decodes, of which every one is part of a character that never ends."""

    count = 0

    def __init__(self, text: str) -> None:
        super().__init__(4096)
        self._text = text

    def decode(self, ids: Sequence[int]) -> str:
        self.count += len(ids)
        return self._text * len(ids)


@pytest.mark.parametrize("text", ["a", "\ufffd", ""])
def test_a_token_costs_the_same_at_the_end_of_a_long_answer(text: str) -> None:
    tokens = Counting(text)
    assert streamed(tokens, range(4000)) == text * 4000
    assert tokens.count < 4000 * 40


def until_stop(text: str, stop: Sequence[str]) -> str:
    """Return the text before the stop that is complete first, the longest of those that end there."""
    for end in range(len(text) + 1):
        if found := [word for word in stop if text[:end].endswith(word)]:
            return text[: end - max(map(len, found))]
    return text


@given(
    parts=st.lists(st.text("ab ", min_size=1, max_size=4), min_size=1, max_size=12),
    stop=st.lists(st.text("ab ", min_size=1, max_size=5), max_size=4),
)
@settings(max_examples=500)
def test_an_answer_ends_before_its_stop_however_it_is_cut(parts: list[str], stop: list[str]) -> None:
    class Parts(ByteTokens):
        def decode(self, ids: Sequence[int]) -> str:
            return "".join(parts[id] for id in ids)

    assert streamed(Parts(4096), range(len(parts)), stop) == until_stop("".join(parts), stop)


def test_what_may_be_a_stop_is_held_back_until_it_is_none() -> None:
    answer = AnswerText(ByteTokens(4096), ["END"])
    letters = [ord(letter) - 32 for letter in "aENbEND"]
    assert [answer.add(id) for id in letters] == ["a", "", "", "ENb", "", "", ""]
    assert answer.stopped
