"""The engine on torch, on the processor: formats of weights, checkpoints, and what is measured beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.cells import job
from tests.support.packages import need

need("numpy", "torch", "torchao", "transformers", "safetensors")

import numpy as np
import torch
import transformers
from torch import nn

from paddock.bench.engines import torch_roof
from paddock.bench.engines.door import BenchJob
from paddock.bench.engines.torch_engine import TorchEngine
from paddock.bench.engines.torch_roof import TorchRoof
from paddock.bench.engines.torch_weights import Fp8Linear, Packing
from paddock.bench.errors import BenchError, BenchInputError
from paddock.models import sources
from paddock.models.shapes import Shape, shape
from tests.bench.engines.cuda_stand_in import Stream

pytestmark = pytest.mark.explore

TINY = replace(shape("tiny"), layers=2, vocabulary=512, tied=False)
CPU = torch.device("cpu")
NEW = 12


def spec(dtype: str, model: Shape = TINY, **more: Any) -> BenchJob:
    return job(model, dtype, 2, **more)


def tokens(engine: TorchEngine, count: int = NEW) -> list[list[int]]:
    engine.prepare(2, 10 + count)
    token = engine.prefill(np.arange(1, 21).reshape(2, 10))
    answers = [token, *(token := engine.decode(token) for _ in range(count - 1))]
    engine.check()
    assert engine.finish() == {}
    return torch.cat(answers, 1).tolist()


def checkpoint(folder: Path, damage: Any = lambda model: None) -> tuple[str, Any]:
    """Write a checkpoint of random weights larger than a model begins with, so that its tokens are not all alike."""
    torch.manual_seed(1)
    arguments = TINY.config()
    config = transformers.AutoConfig.for_model(arguments.pop("model_type"), **arguments, initializer_range=0.1)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    damage(model)
    model.save_pretrained(folder)
    return str(folder), model


def test_a_checkpoint_says_the_tokens_of_transformers(tmp_path: Path) -> None:
    source, model = checkpoint(tmp_path)
    ids = torch.arange(1, 21).view(2, 10)
    expected = model.generate(ids, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=False, pad_token_id=0)
    engine = TorchEngine()
    engine.load(spec("fp32", source=source))
    assert tokens(engine) == expected[:, 10:].tolist()


@pytest.mark.parametrize(("dtype", "computed", "error"), [
    ("fp32", "fp32", 1e-5), ("bf16", "bf16", 0.03), ("int8", "bf16", 0.06), ("fp8", "fp8", 0.3),
])  # fmt: skip
def test_every_format_computes_what_the_checkpoint_does(
    dtype: str, computed: str, error: float, tmp_path: Path
) -> None:
    source, model = checkpoint(tmp_path)
    engine, ids = TorchEngine(), torch.arange(1, 21).view(2, 10)
    info = engine.load(spec(dtype, source=source))
    with torch.inference_mode():
        logits, expected = engine._model(ids).logits.float(), model(ids).logits
    assert float((logits - expected).pow(2).mean().sqrt() / expected.std()) < error
    assert (info.computed, info.cache_element) == (computed, 4 if dtype == "fp32" else 2)
    assert len(tokens(engine)[0]) == NEW
    engine.unload()


def test_random_weights_are_those_of_their_seed() -> None:
    answers = []
    for seed in (0, 0, 1):
        engine = TorchEngine()
        engine.load(spec("bf16", seed=seed))
        answers.append(tokens(engine, 4))
    assert answers[0] == answers[1] != answers[2]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", ["bf16", "int8", "fp8"])
def test_a_step_reads_the_bytes_of_the_shape(dtype: str, tied: bool) -> None:
    model = replace(TINY, tied=tied)
    info = TorchEngine().load(spec(dtype, model))
    assert info.weight_bytes == pytest.approx(model.model.weight_bytes("int8" if dtype == "fp8" else dtype), rel=0.03)


def test_experts_that_a_token_does_not_use_are_not_read(tmp_path: Path) -> None:
    arguments = TINY.config()
    del arguments["model_type"]
    config = transformers.MixtralConfig(**arguments, num_local_experts=8, num_experts_per_tok=2)
    transformers.MixtralForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path)
    model = sources.of_path(tmp_path, where="--model")
    engine = TorchEngine()
    info = engine.load(spec("bf16", Shape.of(model), source=str(tmp_path)))
    assert info.weight_bytes == pytest.approx(model.step_bytes, rel=0.01)
    assert info.weight_bytes < 0.6 * model.bytes
    assert len(tokens(engine)[0]) == NEW


def test_a_product_in_fp8_is_the_plain_one_within_its_rounding() -> None:
    torch.manual_seed(0)
    for bias in (True, False):
        layer = nn.Linear(96, 32, bias=bias)
        packed = Fp8Linear(layer)
        for sizes in ((1,), (2, 5), (17,)):
            x = torch.randn(*sizes, 96)
            with torch.inference_mode():
                result, expected = packed(x), layer(x)
            assert result.shape == expected.shape
            # Each factor is within 2^-4 of itself, the products' signs are random: 2^-4 x sqrt(2 / 3) of the whole.
            assert float((result - expected).pow(2).mean().sqrt() / expected.std()) < 0.05
    packed(torch.zeros(1, 96))  # no scale of zero


def test_what_a_format_does_not_fit_stays_and_is_said() -> None:
    packing = Packing("fp8", CPU)
    model = nn.ModuleDict({"odd": nn.Linear(100, 32), "even": nn.Linear(96, 32)})
    for name in ("odd", "even"):
        packing.pack(model, name)
    assert [type(layer) for layer in model.values()] == [nn.Linear, Fp8Linear]
    assert list(packing.notes()) == ["1 odd stays in 16 bits: fp8 does not fit the size"]


@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_a_weight_that_is_not_finite_is_named_at_load(dtype: str, tmp_path: Path) -> None:
    def damage(model: Any) -> None:
        model.model.layers[1].self_attn.q_proj.weight.data[5, 7] = float("nan")

    source, _ = checkpoint(tmp_path, damage)
    with pytest.raises(BenchError, match=r"layers\.1\.self_attn\.q_proj\.\S+ holds what is not a finite number"):
        TorchEngine().load(spec(dtype, source=source))


@pytest.mark.parametrize("damage", ["truncated", "no config", "no weights"])
def test_a_damaged_checkpoint_is_a_sentence(damage: str, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    weights = tmp_path / "model.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif damage == "no config":
        (tmp_path / "config.json").write_text("{")
    else:
        weights.unlink()
    with pytest.raises(BenchInputError, match=r"cannot read .*\n.*expected: a folder"):
        TorchEngine().load(spec("bf16", source=str(tmp_path)))


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp8"])
def test_the_roof_of_the_processor_is_measured(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(torch_roof._READ_BYTES, "cpu", 2**24)
    monkeypatch.setitem(torch_roof._SIZE, "cpu", 256)
    roof = TorchRoof(CPU)
    passes = roof.read_gbs()
    assert (roof.nbytes, len(passes), passes) == (2**24, 4, sorted(passes))
    assert 0.01 < passes[0] < 10_000
    assert 0 < roof.tflops(dtype) < 1000


def test_a_gpu_is_timed_by_its_own_events(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream()
    monkeypatch.setattr(torch, "cuda", stream.cuda)
    seconds = torch_roof.CudaTimer().timed(lambda: stream.launch(0.001, 0.01), 3)
    assert seconds == pytest.approx([0.011, 0.01, 0.01], abs=1e-9)


def test_where_a_model_fills_a_gpu_less_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ones(count: int, **_: object) -> str:
        asked.append(4 * count)
        if 4 * count > 2**30:
            raise torch.OutOfMemoryError("full")
        return "buffer"

    monkeypatch.setattr(torch, "ones", ones)
    assert torch_roof._largest_buffer(torch.device("cuda")) == "buffer"
    assert asked == [2**32, 2**31, 2**30]
    monkeypatch.setattr(torch_roof, "_LEAST_READ", 2**31)
    assert torch_roof._largest_buffer(torch.device("cuda")) is None
