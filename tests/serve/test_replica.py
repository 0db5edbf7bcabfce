"""A replica of a model of random weights, on the processor, as Ray Serve calls it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch in this environment")

from paddock.bench.engine.protocol import Spec  # noqa: E402
from paddock.bench.engine.shapes import shape  # noqa: E402
from paddock.serve.deployment.replica import Piece, Replica  # noqa: E402
from paddock.serve.errors import PromptTooLong  # noqa: E402
from tests.support.waiting import until  # noqa: E402

SMALL = replace(shape("tiny"), hidden=64, intermediate=128, layers=2, heads=4, kv_heads=2, head_dim=16, vocabulary=512)
DEADLINE_S = 120


@pytest.fixture(scope="module")
def replica() -> Iterator[Replica]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Replica(Spec(SMALL, "fp32", "cpu", 3, 128, compiled=False))
    torch.set_num_threads(before)


async def answer(replica: Replica, prompt: str, most: int, stop: Sequence[str] = ()) -> list[Piece]:
    return [piece async for piece in replica.generate(prompt, [], most, stop)]


def whole(pieces: list[Piece]) -> tuple[str, int, str]:
    """Return the text of an answer, its tokens, and why it ends."""
    return "".join(piece.text for piece in pieces), pieces[-1].new_tokens, pieces[-1].finish


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, DEADLINE_S))


def test_answers_side_by_side_are_those_of_one_by_one(replica: Replica) -> None:
    prompts = ["one", "another prompt", "x", "the fourth waits for a row", "five"]

    async def together() -> list[list[Piece]]:
        return await asyncio.gather(*(answer(replica, prompt, 20) for prompt in prompts))

    expected = [whole(run(answer(replica, prompt, 20))) for prompt in prompts]
    assert [whole(pieces) for pieces in run(together())] == expected
    assert [(len(text), *rest) for text, *rest in expected] == [(20, 20, "length")] * 5


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
    with pytest.raises(PromptTooLong, match="the prompt has 128 tokens, and the context has 128"):
        run(answer(replica, "x" * 128, 5))


def test_an_answer_ends_with_the_context(replica: Replica) -> None:
    assert whole(run(answer(replica, "x" * 120, 50)))[1] == 8


def test_an_answer_ends_before_its_stop_and_frees_its_row(replica: Replica) -> None:
    text, _, _ = whole(run(answer(replica, "stop", 40)))
    stop = text[10:14]
    before = replica.statistics()
    assert whole(run(answer(replica, "stop", 100, [stop])))[::2] == (text[: text.index(stop)], "stop")
    until(lambda: not replica.statistics()["running"])
    after = replica.statistics()
    assert (after["answered"] - before["answered"], after["cancelled"] - before["cancelled"]) == (1, 0)


def test_pieces_that_wait_for_a_slow_caller_go_together(replica: Replica) -> None:
    async def slow() -> list[Piece]:
        pieces = []
        async for piece in replica.generate("slow", [], 60):
            pieces.append(piece)
            if len(pieces) == 1:
                while replica.statistics()["running"]:
                    await asyncio.sleep(0.01)
        return pieces

    pieces = run(slow())
    assert len(pieces) == 2
    assert whole(pieces) == whole(run(answer(replica, "slow", 60)))


def test_a_long_prompt_is_encoded_beside_the_streams(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    release, threads = threading.Event(), list[int]()

    class Slow:
        def encode(self, prompt: str, messages: object, length: int) -> list[int]:
            threads.append(threading.get_ident())
            assert release.wait(DEADLINE_S)
            raise PromptTooLong("too long")

    async def beside() -> None:
        own = replica._tokens
        monkeypatch.setattr(replica, "_tokens", Slow())
        long = asyncio.create_task(answer(replica, "x" * 10_000, 5))
        while not threads:
            await asyncio.sleep(0)
        monkeypatch.setattr(replica, "_tokens", own)
        assert whole(await answer(replica, "short", 5))[1] == 5
        release.set()
        with pytest.raises(PromptTooLong):
            await long

    run(beside())
    assert threads != [threading.get_ident()]
