from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from paddock.validation import problems


class Card(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    memory: int = 0


class Machine(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    cards: dict[str, Card] = {}


@dataclass
class Host:
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)

    cards: tuple[Card, ...]


UNKNOWN = """\
cards.a.memry: unknown key "memry"
    expected: one of name, memory
    fix: did you mean "memory"?"""


@pytest.mark.parametrize(("card", "message"), [
    ({"name": 5}, 'cards.a.name: 5 is a number\n    expected: text\n    fix: write it in quotes: "5"'),
    ({"name": "t4", "memory": []}, "cards.a.memory: this is a list\n    expected: a whole number"),
    (
        {"nam": "t4"},
        'cards.a.nam: unknown key "nam"\n    expected: one of name, memory\n    fix: did you mean "name"?',
    ),
    ({}, "cards.a: name is missing\n    expected: name: and its value"),
    (7, "cards.a: 7 is a number\n    expected: an object"),
])  # fmt: skip
def test_one_problem_for_each_mistake_in_json(card: Any, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Machine.model_validate({"cards": {"a": card}})
    assert [str(problem) for problem in problems(caught.value.errors(), Machine, json=True)] == [message]


def test_a_wrong_entry_is_not_a_missing_one_too() -> None:
    class Rack(BaseModel):
        cards: Annotated[tuple[Card, ...], Field(min_length=1)]

    for cards, messages in (
        ([{"name": 5}], ["cards[0].name: 5 is a number"]),
        ([7], ["cards[0]: 7 is a number"]),
        ([], ["cards: it is empty"]),
    ):
        with pytest.raises(ValidationError) as caught:
            Rack.model_validate_json(json.dumps({"cards": cards}), strict=True)
        assert [str(found).partition("\n")[0] for found in problems(caught.value.errors(), Rack, json=True)] == messages


def test_a_dataclass_knows_its_fields() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Host).validate_json('{"cards": [], "card": 1}')
    (problem,) = problems(caught.value.errors(), Host, json=True)
    assert (problem.expected, problem.fix) == ("one of cards", 'did you mean "cards"?')
