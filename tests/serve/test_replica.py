"""A replica of a model of random weights, on the processor, as Ray Serve calls it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import need

need("torch", "transformers", "safetensors")

import torch

from paddock.gpu.leases.manager import Leases
from paddock.models.shapes import shape
from paddock.openai.answers import Piece
from paddock.serve.admission.refusal import RequestError
from paddock.serve.deployment import workers
from paddock.serve.deployment.gang import Rank
from paddock.serve.deployment.replica import Replica
from paddock.serve.deployment.workers import load_rows
from paddock.serve.engine.rows import Rows
from paddock.serve.errors import PromptTooLong, ServeError
from paddock.serve.own.protocol import Info, Spec
from tests.support.answers import SMALL
from tests.support.generations import generation
from tests.support.nvml import Driver, card, installed
from tests.support.waiting import until

DEADLINE_S = 120


@pytest.fixture(scope="module")
def replica(one_thread: None) -> Replica:
    return Replica(Spec(SMALL, "fp32", "cpu", 3, 128))


async def answer(replica: Replica, prompt: str, most: int, stop: Sequence[str] = ()) -> list[Piece]:
    return [piece async for piece in replica.generate(generation(prompt, most, stop=stop))]


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
        pieces = replica.generate(generation("gone", 100))
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


def test_a_temperature_and_a_seed_of_the_request_are_kept(replica: Replica) -> None:
    async def drawn(**options: float) -> str:
        return whole([piece async for piece in replica.generate(generation("draw", 30, **options))])[0]

    greedy = run(drawn())
    warm = [run(drawn(temperature=1.5, seed=seed)) for seed in (1, 1, 2)]
    assert warm[0] == warm[1]
    assert len({greedy, *warm}) == 3
    assert run(drawn(temperature=1.5, top_p=0)) == greedy


@pytest.mark.parametrize("options", [{"tools": [{"type": "function"}]}, {"presence_penalty": 0.5}])
def test_an_option_that_the_engine_does_not_have_is_refused(replica: Replica, options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"{next(iter(options))}: it is not supported by this model"):
        run(anext(replica.generate(generation("x", 3, **options))))


def test_pieces_that_wait_for_a_slow_caller_go_together(replica: Replica) -> None:
    async def slow() -> list[Piece]:
        pieces = []
        async for piece in replica.generate(generation("slow", 60)):
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


class OnProcessor(Replica):
    """Replica of a GPU whose engine computes on the processor, since there is no GPU."""

    loaded: Spec

    def _load(self, spec: Spec) -> tuple[Info, Rows]:
        self.loaded = spec
        return super()._load(replace(spec, device="cpu"))


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the UUIDs of two GPUs of a simulated driver; this process sees the second."""
    with installed(Driver([card("T4", bus=0x1E), card("A10G", bus=0x1F)])) as driver:
        uuids = [card.uuid for card in driver.cards]
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuids[1])
        monkeypatch.setenv("PADDOCK_GPU_LEASES", str(tmp_path / "leases"))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (22 * 2**30, 23028 * 2**20))
        yield uuids


def test_a_replica_of_a_gpu_holds_its_lease_and_its_part_of_the_memory(gpus: list[str]) -> None:
    replica = OnProcessor(Spec(SMALL, "fp32", "cuda", 1, 64), "conservative")
    (lease,) = Leases().held()
    assert (lease.id, lease.share) == (replica.statistics()["lease"], 0.5)
    assert [device.uuid for device in lease.devices] == [gpus[1]]
    assert replica.loaded.memory_fraction == 0.5
    replica.__del__()
    assert Leases().held() == ()


def test_a_rank_of_a_gang_holds_the_lease_of_its_gpu(gpus: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "load_rows", lambda spec: load_rows(replace(spec, device="cpu")))
    rank = Rank()
    rank.load(Spec(SMALL, "fp32", "cuda", 1, 64), "conservative", 2)
    (lease,) = Leases().held()
    assert ([device.uuid for device in lease.devices], lease.share) == ([gpus[1]], 0.5)


def test_a_model_larger_than_the_modes_memory_is_refused_before_it_loads(gpus: list[str]) -> None:
    large = Spec(shape("llama-3.1-8b"), "bf16", "cuda", 1, 1024)
    with pytest.raises(ServeError, match=r"needs \d+\.\d GiB.*11\.2 GiB are allowed"):
        OnProcessor(large, "conservative")
    with pytest.raises(ServeError, match=r"GiB are (free|allowed)"):  # of an idle machine more is free than allowed
        Replica(replace(large, shape=shape("llama-3.1-70b"), dtype="fp32", device="cpu", batch=64, length=8192))


def test_a_replica_pauses_as_its_mode_says() -> None:
    replica = Replica(Spec(SMALL, "fp32", "cpu", 2, 64), "conservative")
    run(answer(replica, "hello", 48))  # of a few steps a busy machine may sleep through each pause itself
    busy, paused = (replica.statistics()[f"{name}_seconds"] for name in ("busy", "paused"))
    assert 0 < paused < busy


class BrokenRows:
    """Rows of a device that has failed, until it is mended."""

    slots = 1

    def __init__(self, rows: Rows) -> None:
        self._rows, self.broken = rows, False

    def join(self, ids: Sequence[int]) -> int | None:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self._rows.join(ids)

    def decode(self, tokens: Sequence[int]) -> Sequence[int | None]:
        return self._rows.decode(tokens)

    def leave(self, row: int) -> None:
        self._rows.leave(row)


class Breaking(Replica):
    rows: BrokenRows

    def _load(self, spec: Spec) -> tuple[Info, Rows]:
        info, rows = super()._load(spec)
        self.rows = BrokenRows(rows)
        return info, self.rows


def test_a_replica_whose_engine_always_fails_is_unhealthy() -> None:
    replica = Breaking(Spec(SMALL, "fp32", "cpu", 1, 64))
    replica.rows.broken = True

    def fail(count: int) -> None:
        for _ in range(count):
            with pytest.raises(ServeError, match="illegal memory access"):
                run(answer(replica, "hello", 2))

    fail(2)
    replica.rows.broken = False
    run(answer(replica, "hello", 2))
    replica.rows.broken = True
    fail(2)
    replica.check_health()
    fail(1)
    with pytest.raises(ServeError, match="the last 3 requests failed in the engine"):
        replica.check_health()


def test_an_unloaded_replica_ends_its_streams_with_the_reason() -> None:
    replica = Replica(Spec(SMALL, "fp32", "cpu", 1, 128))

    async def unload() -> None:
        running, waiting = replica.generate(generation("one", 100)), replica.generate(generation("two", 100))
        await anext(running)
        late = asyncio.ensure_future(anext(waiting))
        await asyncio.sleep(0)
        replica.unload()
        for ending in (drain(running), late, anext(replica.generate(generation("three", 1)))):
            with pytest.raises(RequestError, match="the model has been unloaded") as end:
                await ending
            assert end.value.code == "model_unloaded"

    async def drain(pieces: Any) -> None:
        async for _ in pieces:
            pass

    run(unload())
    replica.check_health()


def test_a_replica_of_a_file_has_its_weights_and_its_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("gguf")
    import gguf

    from paddock.models.gguf import read
    from paddock.models.shapes import Shape
    from paddock.serve.cli.models import model_source
    from tests.support.gguf_files import write

    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
    answers = []
    for name, kind in (("m.gguf", "F32"), ("other.gguf", "BF16")):
        file = write(tmp_path / name, gguf.GGMLQuantizationType[kind], tokenizer=True)
        source = model_source(name)
        assert source == str(file)
        replica = Replica(Spec(Shape.of(read(file)), "fp32", "cpu", 1, 64, source))
        pieces = run(answer(replica, "hello you", 12))
        assert pieces[-1].prompt_tokens == 11, "each character is a token, after the one that begins a text"
        answers.append("".join(piece.text for piece in pieces))
    assert answers[0] == answers[1], "the same weights, rounded otherwise"
    assert model_source("tiny") == ""
