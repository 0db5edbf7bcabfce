"""A replica of a model of random weights, on the processor, as Ray Serve calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch in this environment")

from paddock.bench.engine.protocol import Spec  # noqa: E402
from paddock.bench.engine.shapes import shape  # noqa: E402
from paddock.serve.deployment.replica import Piece, Replica  # noqa: E402
from paddock.serve.errors import ServeError  # noqa: E402

SMALL = replace(shape("tiny"), hidden=64, intermediate=128, layers=2, heads=4, kv_heads=2, head_dim=16, vocabulary=512)
DEADLINE_S = 120


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Replica(Spec(SMALL, "fp32", "cpu", 3, 128, compiled=False))
    torch.set_num_threads(before)


async def answer(replica: Replica, prompt: str, most: int) -> list[Piece]:
    return [piece async for piece in replica.generate(prompt, [], most)]


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, DEADLINE_S))


def test_answers_side_by_side_are_those_of_one_by_one(replica: Replica) -> None:
    prompts = ["one", "another prompt", "x", "the fourth waits for a row", "five"]

    async def together() -> list[list[Piece]]:
        return await asyncio.gather(*(answer(replica, prompt, 20) for prompt in prompts))

    expected = [run(answer(replica, prompt, 20)) for prompt in prompts]
    assert run(together()) == expected
    assert [len(pieces) for pieces in expected] == [20] * 5
    assert {pieces[-1].finish for pieces in expected} == {"length"}


def test_a_caller_that_goes_away_frees_its_row(replica: Replica) -> None:
    async def leave() -> None:
        pieces = replica.generate("gone", [], 100)
        await anext(pieces)
        await pieces.aclose()
        while replica.statistics()["running"]:
            await asyncio.sleep(0.01)

    before = replica.statistics()["cancelled"]
    run(leave())
    assert replica.statistics()["cancelled"] == before + 1


def test_a_prompt_beyond_the_context_is_refused(replica: Replica) -> None:
    with pytest.raises(ServeError, match="the prompt has 200 tokens, and the context has 128"):
        run(answer(replica, "x" * 200, 5))


def test_an_answer_ends_with_the_context(replica: Replica) -> None:
    assert len(run(answer(replica, "x" * 120, 50))) == 8
