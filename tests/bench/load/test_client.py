"""Messages of the client's process, and what it makes of a refusal."""

from __future__ import annotations

import json
from collections.abc import Sequence
from email.message import Message

import pytest

from paddock.bench.load.client.messages import Exchange, LoadPlan, Target
from paddock.bench.load.client.sender import LONGEST_PAUSE, REFUSAL_PAUSE, retry_after
from paddock.bench.load.workload import Lengths
from paddock.openai.errors import Failure


@pytest.mark.parametrize(("fields", "seconds"), [
    ({"Retry-After": "7"}, 7),
    ({"Retry-After": "86400"}, LONGEST_PAUSE),
    ({"Retry-After": "Mon, 23 Nov 2026 10:00:09 GMT", "Date": "Mon, 23 Nov 2026 10:00:00 GMT"}, 9),
    ({"Retry-After": "soon"}, REFUSAL_PAUSE),
    ({}, REFUSAL_PAUSE),
])  # fmt: skip
def test_a_refusal_says_how_long_to_wait(fields: dict[str, str], seconds: float) -> None:
    headers = Message()
    for name, value in fields.items():
        headers[name] = value
    assert retry_after(headers) == seconds


@pytest.mark.parametrize("pieces", [(), ((0.5, bytes(range(256))), (0.75, b"\r\n"))])
def test_messages_between_the_processes_lose_nothing(pieces: Sequence[tuple[float, bytes]]) -> None:
    sent = Exchange(3, 0.1, 0.2, 0.9, 8, True, 200, tuple(pieces), Failure("timeout", "why"))
    assert Exchange.from_json(json.loads(sent.line())) == sent
    plan = LoadPlan(Target("http://x", "/v1", {"n": 1}, True), Lengths(1, 2), Lengths(3, 3), (0.5, 1.5), warm_up=1)
    assert LoadPlan.from_line(plan.line()) == plan
