"""A replica of a model of random weights, on the processor, as Ray Serve calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch in this environment")

from paddock.bench.engine.protocol import Engine, Info, Spec  # noqa: E402
from paddock.bench.engine.shapes import shape  # noqa: E402
from paddock.bench.engine.torch_engine import TorchEngine  # noqa: E402
from paddock.gpu.leases.manager import Leases  # noqa: E402
from paddock.serve.admission.refusal import RequestError  # noqa: E402
from paddock.serve.deployment.gang import Rank  # noqa: E402
from paddock.serve.deployment.replica import Piece, Replica  # noqa: E402
from paddock.serve.engine.rows import Rows  # noqa: E402
from paddock.serve.errors import ServeError  # noqa: E402
from tests.support.nvml import Driver, card, installed  # noqa: E402

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


class OnProcessor(Replica):
    """Replica of a GPU whose engine computes on the processor, since there is no GPU."""

    loaded: Spec

    def _new_engine(self) -> Engine:
        replica = self

        class ProcessorEngine(TorchEngine):
            def load(self, spec: Spec) -> Info:
                replica.loaded = spec
                return super().load(replace(spec, device="cpu"))

        return ProcessorEngine()


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
    replica = OnProcessor(Spec(SMALL, "fp32", "cuda", 1, 64, compiled=False), "conservative")
    (lease,) = Leases().held()
    assert (lease.id, lease.share) == (replica.statistics()["lease"], 0.5)
    assert [device.uuid for device in lease.devices] == [gpus[1]]
    assert replica.loaded.memory_fraction == 0.5
    replica.__del__()
    assert Leases().held() == ()


def test_a_rank_of_a_gang_holds_the_lease_of_its_gpu(gpus: list[str]) -> None:
    class ProcessorEngine(TorchEngine):
        def load(self, spec: Spec) -> Info:
            return super().load(replace(spec, device="cpu"))

    rank = Rank()
    rank._engine = ProcessorEngine()
    rank.load(Spec(SMALL, "fp32", "cuda", 1, 64, compiled=False), 0.5)
    (lease,) = Leases().held()
    assert ([device.uuid for device in lease.devices], lease.share) == ([gpus[1]], 0.5)


def test_a_model_larger_than_the_modes_memory_is_refused_before_it_loads(gpus: list[str]) -> None:
    large = Spec(shape("llama-3.1-8b"), "bf16", "cuda", 1, 1024, compiled=False)
    with pytest.raises(ServeError, match=r"needs \d+\.\d GiB.*11\.2 GiB are allowed"):
        OnProcessor(large, "conservative")
    with pytest.raises(ServeError, match="GiB are free"):
        Replica(replace(large, shape=shape("llama-3.1-70b"), dtype="fp32", device="cpu", batch=64, length=8192))


def test_a_replica_pauses_as_its_mode_says() -> None:
    replica = Replica(Spec(SMALL, "fp32", "cpu", 2, 64, compiled=False), "conservative")
    run(answer(replica, "hello", 4))
    busy, paused = (replica.statistics()[f"{name}_seconds"] for name in ("busy", "paused"))
    assert paused == pytest.approx(busy * (1 / 0.6 - 1), rel=0.1)


class BrokenRows:
    """Rows of a device that has failed, until it is mended."""

    slots = 1

    def __init__(self, rows: Rows) -> None:
        self._rows, self.broken = rows, True

    def join(self, ids: Sequence[int]) -> int | None:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return self._rows.join(ids)

    def decode(self) -> list[int | None]:
        return self._rows.decode()

    def leave(self, row: int) -> None:
        self._rows.leave(row)


class Breaking(Replica):
    rows: BrokenRows

    def _rows(self, engine: Any) -> Rows:
        self.rows = BrokenRows(super()._rows(engine))
        return self.rows


def test_a_replica_whose_engine_always_fails_is_unhealthy() -> None:
    replica = Breaking(Spec(SMALL, "fp32", "cpu", 1, 64, compiled=False))

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
    replica = Replica(Spec(SMALL, "fp32", "cpu", 1, 128, compiled=False))

    async def unload() -> None:
        running, waiting = replica.generate("one", [], 100), replica.generate("two", [], 100)
        await anext(running)
        late = asyncio.ensure_future(anext(waiting))
        await asyncio.sleep(0)
        replica.unload()
        for ending in (drain(running), late, anext(replica.generate("three", [], 1))):
            with pytest.raises(RequestError, match="the model has been unloaded") as end:
                await ending
            assert end.value.code == "model_unloaded"

    async def drain(pieces: Any) -> None:
        async for _ in pieces:
            pass

    run(unload())
    replica.check_health()


def test_a_replica_of_a_file_has_its_weights_and_its_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf = pytest.importorskip("gguf")
    from paddock.bench.engine.gguf_file import inspect
    from paddock.serve.cli.models import model_source
    from tests.support.gguf_files import write

    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
    answers = []
    for name, kind in (("m.gguf", "F32"), ("other.gguf", "BF16")):
        file = write(tmp_path / name, gguf.GGMLQuantizationType[kind], tokenizer=True)
        source = model_source(name)
        assert source == str(file)
        replica = Replica(Spec(inspect(file).shape, "fp32", "cpu", 1, 64, source, compiled=False))
        pieces = run(answer(replica, "hello you", 12))
        assert pieces[-1].prompt_tokens == 11, "each character is a token, after the one that begins a text"
        answers.append("".join(piece.text for piece in pieces))
    assert answers[0] == answers[1], "the same weights, rounded otherwise"
    assert model_source("tiny") == ""
