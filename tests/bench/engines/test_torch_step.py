"""The decode step of a GPU, compiled over a cache of fixed size: here on the processor, without a CUDA graph."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.cells import job
from tests.support.packages import need

need("torch", "transformers", "safetensors")

import torch
import transformers

from paddock.bench.engines.torch_engine import TorchEngine
from paddock.bench.errors import BenchError
from paddock.models.shapes import shape

pytestmark = pytest.mark.explore

TINY = replace(shape("tiny"), layers=1, vocabulary=512, tied=False)  # tied, a model repeats its prompt


def loaded(**options: Any) -> TorchEngine:
    engine = TorchEngine(**options)
    engine.load(job(TINY, "fp32", 3, seed=5))
    return engine


def tokens(engine: TorchEngine, batch: int, prompt: int, new: int) -> list[list[int]]:
    token = engine.prefill(torch.arange(1, batch * prompt + 1).view(batch, prompt))
    result = [token]
    for _ in range(new - 1):
        token = engine.decode(token)
        result.append(token)
    engine.check()
    return torch.cat(result, 1).tolist()


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.e2e)])
def test_a_compiled_step_says_the_tokens_of_the_eager_one(backend: str) -> None:
    eager, graphed = loaded(graphed=False), loaded(graphed=True, backend=backend)
    for batch, prompt, new in ((1, 1, 3), (3, 20, 6)):  # the shortest prompt and answer have their places
        prepared = graphed.prepare(batch, prompt + new)
        assert (prepared.step, prepared.eager_because) == ("compiled", "")
        expected = tokens(eager, batch, prompt, new)
        assert [tokens(graphed, batch, prompt, new) for _ in range(3)] == [expected] * 3
    graphed.unload()


def test_a_step_is_compiled_and_timed_once_for_each_batch_and_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 1)
    engine = loaded(graphed=True, backend="aot_eager")
    for batch, length in ((1, 8), (1, 12), (2, 12)):  # more than torch compiles of one function without a reset
        first, again = engine.prepare(batch, length), engine.prepare(batch, length)
        assert (first.step, again.step) == ("compiled", "compiled")
        assert first.compile_s > 0 == again.compile_s
        tokens(engine, batch, 4, 4)
    with pytest.raises(RuntimeError, match="recompile"):
        engine.decode(torch.ones(4, 1, dtype=torch.long))
    engine.unload()


def test_numbers_that_are_none_are_seen_in_the_graph_and_unloading_ends_it() -> None:
    engine = loaded(graphed=True, backend="aot_eager")
    token = engine.prefill(torch.ones(1, 4, dtype=torch.long))
    engine.check()
    engine._model.lm_head.weight.data[0, 0] = float("nan")
    engine.decode(token)
    with pytest.raises(BenchError, match="not finite"):
        engine.check()
    model = weakref.ref(engine._model)
    engine.unload()
    assert model() is None
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))  # others may compile again


def test_attention_that_slides_stays_eager_and_says_so(tmp_path: Path) -> None:
    arguments = TINY.config()
    del arguments["model_type"]
    config = transformers.MistralConfig(**arguments, sliding_window=6)
    torch.manual_seed(0)
    model = transformers.MistralForCausalLM(config).eval()
    model.save_pretrained(tmp_path)
    engine = TorchEngine(graphed=True, backend="aot_eager")
    engine.load(job(replace(TINY, architecture="mistral"), "fp32", source=str(tmp_path)))
    prepared = engine.prepare(1, 20)
    assert prepared.step == "eager"
    assert "a sliding window" in prepared.eager_because
    ids = torch.arange(1, 11)[None]
    expected = model.generate(ids, max_new_tokens=8, min_new_tokens=8, do_sample=False, pad_token_id=0)
    assert tokens(engine, 1, 10, 8) == expected[:, 10:].tolist()


def test_a_model_that_does_not_compile_stays_eager_and_says_so() -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no such kernel")

    engine = loaded(graphed=True, backend=refuse)
    prepared = engine.prepare(1, 20)
    assert prepared.step == "eager"
    assert "no such kernel" in prepared.eager_because
    assert tokens(engine, 1, 10, 8) == tokens(loaded(graphed=False), 1, 10, 8)
