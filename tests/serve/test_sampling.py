"""Drawing of tokens, and answers that are drawn beside others, with a model of random weights on the processor."""

from __future__ import annotations

import math
import queue
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.packages import need

need("torch", "transformers", "safetensors")

import torch

from paddock.serve.admission.sampling import GREEDY, Sampling
from paddock.serve.engine.loop import Loop
from paddock.serve.engine.rows import OutOfMemory
from paddock.serve.engine.sampling import Draw, Sampler, drawn
from paddock.serve.engine.torch_rows import TorchRows
from paddock.serve.errors import ServeError
from paddock.serve.own.protocol import Spec
from paddock.serve.own.torch_engine import TorchEngine
from tests.support.answers import SMALL, WARM

PROMPT, OTHER, NEW = [7, 3, 9, 1], list(range(20, 50)), 24
DEADLINE_S = 120


def reference(logits: Sequence[float], draw: Draw) -> set[int]:
    """Return the tokens that may be drawn at that place; two at the border of both, where rounding decides."""
    order = sorted(range(len(logits)), key=lambda token: -logits[token])
    weights = [math.exp((logits[token] - logits[order[0]]) / draw.scale) for token in order]
    kept, reached = [], 0.0
    for token, weight in zip(order, weights, strict=True):
        if kept and reached >= draw.top_p * sum(weights) * (1 + 1e-12):
            break
        kept.append((token, weight))
        reached += weight
    place, found, before = draw.at * reached, set(), 0.0
    for token, weight in kept:
        if before - 1e-9 * reached <= place <= before + weight + 1e-9 * reached:
            found |= {other for other in range(len(logits)) if logits[other] == logits[token]}
        before += weight
    return found


@given(
    logits=st.lists(st.floats(-8, 8, width=32), min_size=1, max_size=30),
    scale=st.floats(0.05, 2),
    top_p=st.floats(0.05, 1),
    at=st.floats(0, 1, exclude_max=True),
)
def test_a_token_is_drawn_of_those_that_add_up_to_top_p(
    logits: list[float], scale: float, top_p: float, at: float
) -> None:
    draw = Draw(scale, top_p, at)
    assert int(drawn(torch.tensor(logits), draw)) in reference(logits, draw)


def test_tokens_are_as_frequent_as_they_are_probable() -> None:
    logits = torch.tensor([0.0, math.log(2), math.log(5), -math.inf])
    sampler = Sampler(Sampling(temperature=1, seed=1))
    counts = Counter(int(drawn(logits, draw)) for _ in range(4000) if (draw := sampler.draw()))
    for token, expected in enumerate([500, 1000, 2500, 0]):
        assert abs(counts[token] - expected) <= 4 * math.sqrt(expected), counts


@pytest.mark.parametrize("draw", [Draw(1e-300, 1, 0.99), Draw(2, 1e-9, 0.99), Draw(1, 1, 0.0)])
def test_an_extreme_draw_takes_the_most_probable_token(draw: Draw) -> None:
    assert int(drawn(torch.tensor([0.1, 3.0, 2.9]), draw)) == 1


@pytest.fixture(scope="module")
def engine(one_thread: None) -> TorchEngine:
    engine = TorchEngine()
    engine.load(Spec(SMALL, "fp32", "cpu", 1, 64, seed=3))
    return engine


def answers(rows: Any, *asked: tuple[Sequence[int], Sampling]) -> list[list[int]]:
    """Return the tokens of requests side by side."""
    loop = Loop(rows)
    events: list[queue.Queue[Any]] = [queue.Queue() for _ in asked]
    for (prompt, sampling), own in zip(asked, events, strict=True):
        loop.submit(prompt, NEW, own.put, (), sampling)
    tokens: list[list[int]] = [[] for _ in asked]
    for own, answer in zip(events, tokens, strict=True):
        while len(answer) < NEW:
            event = own.get(timeout=DEADLINE_S)
            if isinstance(event, ServeError):
                raise event
            answer.append(event.id)
    loop.close()
    return tokens


@pytest.mark.parametrize("architecture", ["llama", "olmo2"])  # the last has no step of Paddock's own
def test_a_seed_repeats_its_answer_alone_and_beside_others(architecture: str) -> None:
    engine = TorchEngine()
    engine.load(Spec(replace(SMALL, architecture=architecture), "fp32", "cpu", 1, 64, seed=3))
    (alone,) = answers(TorchRows(engine, 1, 64), (PROMPT, WARM))
    (greedy,) = answers(TorchRows(engine, 1, 64), (OTHER, GREEDY))
    beside = answers(TorchRows(engine, 3, 64), (OTHER, GREEDY), (PROMPT, WARM), (PROMPT, replace(WARM, seed=8)))
    assert beside[:2] == [greedy, alone]
    assert beside[2] != alone
    assert len(set(alone)) > NEW // 2


def test_without_a_seed_answers_differ(engine: TorchEngine) -> None:
    first, second = answers(TorchRows(engine, 2, 64), *[(PROMPT, Sampling(temperature=1.5))] * 2)
    assert first != second


def test_a_temperature_of_nearly_nothing_answers_as_none(engine: TorchEngine) -> None:
    cold, none = answers(TorchRows(engine, 2, 64), (PROMPT, Sampling(1e-9, 1, 3)), (PROMPT, GREEDY))
    assert cold == none


def test_a_step_that_is_tried_again_draws_the_same(engine: TorchEngine) -> None:
    class Failing(TorchRows):
        """Rows whose fifth step finds no memory while two run."""

        steps = 0

        def decode(self, tokens: Any, draws: Any = ()) -> Any:
            self.steps += 1
            if self.steps == 5 and len(tokens) == 2:
                raise OutOfMemory("the device has no memory for a step of 2 rows")
            return super().decode(tokens, draws)

    (alone,) = answers(TorchRows(engine, 1, 64), (PROMPT, WARM))
    loop = Loop(Failing(engine, 2, 64))
    kept: queue.Queue[Any] = queue.Queue()
    left: queue.Queue[Any] = queue.Queue()
    loop.submit(PROMPT, NEW, kept.put, (), WARM)
    loop.submit(OTHER, NEW, left.put, (), WARM)
    assert [kept.get(timeout=DEADLINE_S).id for _ in range(NEW)] == alone
    loop.close()
    assert any(isinstance(event, OutOfMemory) for event in left.queue)
