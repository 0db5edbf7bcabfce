"""Continuous batching, with real models of random weights on the processor."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import pytest

from tests.support.packages import need

need("torch", "transformers", "safetensors")

import torch

from paddock.models.shapes import Shape
from paddock.modes.config import ResourceConfig
from paddock.serve.engine.limits import Priority
from paddock.serve.engine.loop import Loop, Token
from paddock.serve.engine.pace import Pace
from paddock.serve.engine.rows import OutOfMemory, warm_up
from paddock.serve.engine.torch_rows import TorchRows
from paddock.serve.errors import ServeError
from paddock.serve.own.protocol import Spec
from paddock.serve.own.torch_engine import TorchEngine
from tests.support.answers import SMALL

pytestmark = pytest.mark.usefixtures("one_thread")
LENGTH = 64
DEADLINE_S = 120
PROMPTS = [[7, 3, 9, 1], [100], list(range(20, 50)), [5, 5, 5, 8, 2, 11, 40]]


def loaded(model: Shape = SMALL, dtype: str = "fp32") -> TorchEngine:
    engine = TorchEngine()
    engine.load(Spec(model, dtype, "cpu", 1, LENGTH, seed=3))
    return engine


def alone(engine: TorchEngine, ids: Sequence[int], count: int) -> list[int]:
    token = engine.prefill(torch.tensor([list(ids)]))
    tokens = [int(token)]
    while len(tokens) < count:
        token = engine.decode(token)
        tokens.append(int(token))
    return tokens


@dataclass
class Answer:
    """Caller that keeps what it is given."""

    events: queue.Queue[Token | ServeError] = field(default_factory=queue.Queue)

    def tokens(self) -> list[int]:
        tokens = []
        while True:
            event = self.events.get(timeout=DEADLINE_S)
            if isinstance(event, ServeError):
                raise event
            tokens.append(event.id)
            if event.finish:
                return tokens


def ask(loop: Loop, ids: Sequence[int], most: int, end: Sequence[int] = ()) -> Answer:
    answer = Answer()
    loop.submit(ids, most, answer.events.put, end)
    return answer


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "olmo2"])  # the last has no step of Paddock's own
def test_rows_of_a_batch_answer_as_alone(architecture: str) -> None:
    engine = loaded(replace(SMALL, architecture=architecture))
    expected = [alone(engine, ids, 12 + number) for number, ids in enumerate(PROMPTS)]
    loop = Loop(TorchRows(engine, 3, LENGTH))
    answers = [ask(loop, ids, 12 + number) for number, ids in enumerate(PROMPTS)]
    assert [answer.tokens() for answer in answers] == expected
    loop.close()


def test_a_row_that_joins_later_changes_no_other() -> None:
    engine = loaded()
    expected = [alone(engine, ids, 20) for ids in PROMPTS]
    rows = TorchRows(engine, 3, LENGTH)
    warm_up(rows)
    tokens: dict[int, list[int]] = {}
    order: list[int] = []
    for step in range(40):
        for number, start in enumerate((0, 3, 3, 20)):
            if step == start:
                tokens[number] = [rows.join(PROMPTS[number])]
                order.append(number)
        if not order:
            break
        for number, token in zip(order, rows.decode([tokens[number][-1] for number in order]), strict=True):
            tokens[number].append(token)
        for row in reversed(range(len(order))):
            if len(tokens[order[row]]) == 20:
                rows.leave(row)
                last = order.pop()
                if row < len(order):
                    order[row] = last
    assert [tokens[number] for number in range(4)] == expected


class Chained:
    """Rows of two stages in this process."""

    def __init__(self, *stages: TorchRows) -> None:
        self._stages = stages
        self.slots = min(stage.slots for stage in stages)

    def join(self, ids: Sequence[int]) -> int | None:
        token: int | None = reduce(lambda x, stage: stage.join(x), self._stages, list(ids))
        return token

    def decode(self, tokens: Sequence[int]) -> Sequence[int | None]:
        following: list[int | None] = reduce(lambda x, stage: stage.decode(x), self._stages, list(tokens))
        return following

    def leave(self, row: int) -> None:
        for stage in self._stages:
            stage.leave(row)


@pytest.mark.parametrize("dtype", ["fp32", "int8", "fp16"])  # the last has no step of Paddock's own
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_rows_of_stages_answer_as_one_device(architecture: str, dtype: str) -> None:
    model = replace(SMALL, architecture=architecture, layers=3)
    expected = [alone(loaded(model, dtype), ids, 12) for ids in PROMPTS]
    engines = [TorchEngine(), TorchEngine()]
    for engine, layers in zip(engines, ((0, 2), (2, 3)), strict=True):
        engine.load(Spec(model, dtype, "cpu", 1, LENGTH, seed=3, layers=layers))
    rows = Chained(*(TorchRows(engine, 3, LENGTH) for engine in engines))
    warm_up(rows)
    loop = Loop(rows)
    answers = [ask(loop, ids, 12) for ids in PROMPTS]
    assert [answer.tokens() for answer in answers] == expected
    loop.close()


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_a_stage_takes_hidden_states_of_a_gpus_format(narrow: Any) -> None:
    engine = TorchEngine()
    engine.load(Spec(replace(SMALL, layers=2), "int8", "cpu", 1, LENGTH, seed=3, layers=(1, 2)))
    stages = [TorchRows(engine, 2, LENGTH) for _ in range(2)]
    prompt, token = torch.randn(1, 5, SMALL.hidden).to(narrow), torch.randn(1, 1, SMALL.hidden).to(narrow)
    before = token.clone()
    assert stages[0].join(prompt) == stages[1].join(prompt.float())
    assert stages[0].decode(token) == stages[1].decode(token.float()) != [None]
    assert torch.equal(token, before)


def test_an_end_token_ends_the_answer_and_frees_the_row() -> None:
    engine = loaded()
    tokens = alone(engine, PROMPTS[0], 12)
    end = tokens[5]
    loop = Loop(TorchRows(engine, 1, LENGTH))
    first, second = ask(loop, PROMPTS[0], 12, [end]), ask(loop, PROMPTS[1], 4)
    assert first.tokens() == tokens[: tokens.index(end) + 1]
    assert len(second.tokens()) == 4
    loop.close()


class Gated:
    """Stand-in for the rows of a model: steps on demand, and errors when it is given some."""

    def __init__(self, slots: int = 2) -> None:
        self.slots, self.count, self.left = slots, 0, 0
        self.gate = threading.Semaphore(0)
        self.join_errors: list[Exception] = []
        self.step_errors: list[Exception] = []
        self.invalid: set[int] = set()

    def join(self, ids: Sequence[int]) -> int | None:
        if self.join_errors:
            raise self.join_errors.pop()
        self.count += 1
        return 1

    def decode(self, tokens: Sequence[int]) -> list[int | None]:
        assert self.gate.acquire(timeout=DEADLINE_S)
        if self.step_errors:
            raise self.step_errors.pop()
        return [None if row in self.invalid else 2 for row in range(self.count)]

    def leave(self, row: int) -> None:
        self.count -= 1
        self.left += 1

    def steps(self, count: int) -> None:
        self.gate.release(count)


def test_a_cancelled_request_frees_its_row_for_the_next() -> None:
    rows = Gated(slots=1)
    loop = Loop(rows)
    gone = Answer()
    job = loop.submit([1], 1000, gone.events.put)
    waits = ask(loop, [1], 2)
    gone.events.get(timeout=DEADLINE_S)
    loop.cancel(job)
    rows.steps(3)
    assert waits.tokens() == [1, 2]
    loop.close()
    statistics = loop.statistics()
    assert (statistics["answered"], statistics["cancelled"], statistics["running"]) == (1, 1, 0)


def test_a_prompt_without_memory_fails_and_others_go_on_in_a_stand_in() -> None:
    rows = Gated()
    loop = Loop(rows)
    runs = ask(loop, [1], 3)
    first = runs.events.get(timeout=DEADLINE_S)
    rows.join_errors.append(OutOfMemory("the device has no memory for a prompt of 9 tokens"))
    refused = ask(loop, [1] * 9, 3)
    rows.steps(9)
    with pytest.raises(OutOfMemory, match="prompt of 9 tokens"):
        refused.tokens()
    assert [first.id, *runs.tokens()] == [1, 2, 2]
    loop.close()
    assert loop.statistics()["out_of_memory"] == 1
    assert [alert["name"] for alert in loop.statistics()["alerts"]] == ["InferenceVramLimitErrors"]


def test_a_step_without_memory_ends_the_newest_in_a_stand_in() -> None:
    rows = Gated()
    loop = Loop(rows)
    old = ask(loop, [1], 4)
    old.events.get(timeout=DEADLINE_S)
    rows.steps(1)
    old.events.get(timeout=DEADLINE_S)
    new = ask(loop, [1], 4)
    rows.steps(1)
    new.events.get(timeout=DEADLINE_S)
    rows.step_errors.append(OutOfMemory("the device has no memory for a step of 2 rows"))
    rows.steps(9)
    with pytest.raises(OutOfMemory, match="a step of 2 rows"):
        new.tokens()
    assert len(old.tokens()) == 2
    loop.close()


def test_an_engine_that_fails_ends_its_requests_only_in_a_stand_in() -> None:
    rows = Gated()
    loop = Loop(rows)
    rows.step_errors.append(ValueError("broken"))
    rows.steps(9)
    with pytest.raises(ServeError, match="the engine failed: ValueError: broken"):
        ask(loop, [1], 3).tokens()
    assert ask(loop, [1], 3).tokens() == [1, 2, 2]
    loop.close()


def test_a_row_of_invalid_logits_fails_alone_in_a_stand_in() -> None:
    rows = Gated()
    rows.invalid = {1}
    loop = Loop(rows)
    answers = [ask(loop, [1], 3), ask(loop, [1], 3)]
    rows.steps(9)
    assert answers[0].tokens() == [1, 2, 2]
    with pytest.raises(ServeError, match="not finite"):
        answers[1].tokens()
    loop.close()


def test_closing_ends_requests_with_an_error() -> None:
    rows = Gated(slots=1)
    loop = Loop(rows)
    answers = [ask(loop, [1], 5), ask(loop, [1], 5)]
    answers[0].events.get(timeout=DEADLINE_S)
    closing = threading.Thread(target=loop.close)
    closing.start()
    rows.steps(9)
    closing.join(DEADLINE_S)
    with pytest.raises(ServeError, match="being ended"):
        answers[1].tokens()
    with pytest.raises(ServeError, match="being ended"):
        loop.submit([1], 1, answers[0].events.put)


class Busy:
    """Rows whose prompts and steps take set times of their clock, and none of this test's."""

    slots = 2

    def __init__(self) -> None:
        self.taken, self.count = 0.0, 0
        self.steps: list[tuple[float, float]] = []

    def clock(self) -> float:
        return time.monotonic() + self.taken

    def join(self, ids: Sequence[int]) -> int | None:
        self._take(len(ids) / 50)
        self.count += 1
        return 1

    def decode(self, *_: object) -> list[int | None]:
        self._take(0.01)
        return [1] * self.count

    def leave(self, row: int) -> None:
        self.count -= 1

    def _take(self, seconds: float) -> None:
        began = self.clock()
        self.taken += seconds
        self.steps.append((began, self.clock()))


def half(**values: Any) -> ResourceConfig:
    return ResourceConfig(max_compute_usage_percent=0.5, min_request_interval_ms=0, **values)


def test_a_step_after_a_long_prompt_waits_for_its_pause() -> None:
    rows = Busy()
    loop = Loop(rows, Pace(half), rows.clock)
    assert len(ask(loop, [1] * 10, 3).tokens()) == 3
    loop.close()
    for (began, ended), (following, _) in pairwise(rows.steps):
        assert following - ended >= ended - began
    statistics = loop.statistics()
    assert statistics["busy_seconds"] >= 0.22
    assert statistics["paused_seconds"] >= 0.2


def test_a_pause_while_nothing_waits_is_not_counted() -> None:
    pace = Pace(half)
    pace.end(10.0, 10.5)
    assert pace.due(joining=False) == pytest.approx(11.0)
    assert (pace.busy_seconds, pace.paused_seconds) == (pytest.approx(0.5), 0)
    pace.waited(0.2)
    assert pace.paused_seconds == pytest.approx(0.2)


def test_pauses_add_up_where_one_begins_before_the_last_is_over() -> None:
    pace = Pace(half)
    pace.end(10.0, 11.0)
    pace.end(11.0, 11.01)
    assert pace.due(joining=False) == pytest.approx(12.01)


def test_a_wait_for_a_row_is_no_throttling() -> None:
    rows = Gated(slots=1)
    loop = Loop(rows, Pace(lambda: ResourceConfig(max_compute_usage_percent=1, min_request_interval_ms=50)))
    answers = [ask(loop, [1], 2) for _ in range(2)]
    time.sleep(0.2)  # the interval is over long before the row is free
    rows.steps(2)
    assert [answer.tokens() for answer in answers] == [[1, 2], [1, 2]]
    loop.close()
    assert loop.statistics()["throttled"] == 0


def test_an_interval_that_holds_a_request_back_is_throttling() -> None:
    rows = Gated(slots=2)
    loop = Loop(rows, Pace(lambda: ResourceConfig(max_compute_usage_percent=1, min_request_interval_ms=1000)))
    rows.steps(9)
    answers = [ask(loop, [1], 2) for _ in range(2)]
    assert [answer.tokens() for answer in answers] == [[1, 2], [1, 2]]
    loop.close()
    statistics = loop.statistics()
    assert (statistics["throttled"], statistics["throttle_rate"]) == (1, 0.5)
    assert statistics["paused_seconds"] > 0.1


def test_priority_follows_the_schedule_with_the_threads_that_came_since() -> None:
    need("psutil")
    import psutil

    config = [ResourceConfig(process_priority=1), ResourceConfig(process_priority=5)]
    seen: queue.Queue[tuple[int, int]] = queue.Queue()
    over = threading.Event()

    def compute() -> None:
        priority = Priority()
        priority.follow(config[0])
        helper = threading.Thread(target=over.wait)
        helper.start()
        for mode in (config[0], config[1]):
            priority.follow(mode)
            own, other = (psutil.Process(pid).nice() for pid in (threading.get_native_id(), helper.native_id))
            seen.put((own, other))
        over.set()
        helper.join()

    before = psutil.Process().nice()
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert [seen.get(), seen.get()] == [(1, 1), (5, 5)]
    assert psutil.Process().nice() == before


def test_a_request_whose_caller_has_its_end_counts_as_answered() -> None:
    rows = Gated(slots=1)
    loop = Loop(rows)
    answer = Answer()
    job = loop.submit([1], 1000, answer.events.put)
    answer.events.get(timeout=DEADLINE_S)
    loop.finish(job)
    loop.cancel(job)
    waits = ask(loop, [1], 2)
    rows.steps(3)
    assert waits.tokens() == [1, 2]
    loop.close()
    statistics = loop.statistics()
    assert (statistics["answered"], statistics["cancelled"], statistics["running"]) == (2, 0, 0)


def test_requests_start_an_interval_apart_and_steps_go_on() -> None:
    pace = Pace(lambda: ResourceConfig(max_compute_usage_percent=1, min_request_interval_ms=500))
    pace.begin(10.0)
    pace.end(10.0, 10.1)
    assert pace.due(joining=True) == pytest.approx(10.5)
    assert pace.due(joining=False) <= 10.1
