"""Answers written by us, which the reader of others' answers reads."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paddock.openai.answers import END, AnswerWriter, Piece
from tests.support.explore import examples

from .forms import read

FIELDS = st.dictionaries(st.sampled_from(["reasoning_content", "reasoning", "mood"]), st.text(min_size=1), max_size=2)
PIECES = st.lists(st.tuples(st.text(), FIELDS), min_size=1, max_size=5)


def pieces(said: list[tuple[str, Any]]) -> list[Piece]:
    return [
        Piece(text, 4, number + 1, "stop" if number == len(said) - 1 else "", delta=fields)
        for number, (text, fields) in enumerate(said)
    ]


@given(PIECES, st.booleans())
@examples(60, 2000)
def test_a_stream_and_the_whole_answer_say_the_same(said: list[tuple[str, Any]], chat: bool) -> None:
    writer, answer = AnswerWriter("m", chat=chat), pieces(said)
    stream = writer.first() + "".join(map(writer.chunk, answer)) + writer.usage(answer[-1]) + END
    streamed = read([stream.encode()])
    document = json.loads(json.dumps(writer.whole(answer)))
    (choice,) = document["choices"]
    content = choice["message"] if chat else choice
    assert streamed.failure is None
    assert streamed.text == content["content" if chat else "text"] == "".join(text for text, _ in said)
    if chat:
        for name in ("reasoning_content", "reasoning", "mood"):
            assert streamed.said(name) == content.get(name, "")
    assert streamed.reader.usage is not None
    assert (streamed.reader.usage.prompt, streamed.reader.usage.completion) == (4, len(said))
    assert document["usage"]["total_tokens"] == 4 + len(said)


def test_calls_of_tools_are_put_together_from_their_parts() -> None:
    parts: list[Any] = [
        {"index": 1, "id": "c2", "function": {"name": "go", "arguments": "{}"}},
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a"'}},
        {"index": 0, "function": {"arguments": ": 1}"}},
    ]
    answer = [Piece("", 1, 1, tool_calls=(part,)) for part in parts] + [Piece("", 1, 3, "tool_calls")]
    (choice,) = AnswerWriter("m", chat=True).whole(answer)["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    assert choice["message"]["tool_calls"] == [
        {"type": "function", "id": "c1", "function": {"name": "look", "arguments": '{"a": 1}'}},
        {"type": "function", "id": "c2", "function": {"name": "go", "arguments": "{}"}},
    ]
