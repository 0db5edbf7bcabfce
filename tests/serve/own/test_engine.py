"""The engine on torch, with real architectures of transformers and random weights, on the processor."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import need

need("torch", "transformers", "safetensors")

import torch
import transformers

from paddock.models.shapes import Shape, shape
from paddock.serve.errors import ServeError, ServeInputError
from paddock.serve.own import loading
from paddock.serve.own.packing import convert, native, schemes
from paddock.serve.own.protocol import Spec
from paddock.serve.own.torch_engine import TorchEngine

pytestmark = pytest.mark.explore

TINY = replace(shape("tiny"), vocabulary=512)
CPU = torch.device("cpu")


def spec(dtype: str, model: Shape = TINY, **more: Any) -> Spec:
    return Spec(model, dtype, "cpu", 2, 64, **more)


def tokens(dtype: str, model: Shape = TINY, count: int = 12, **more: Any) -> list[list[int]]:
    engine = TorchEngine()
    engine.load(spec(dtype, model, **more))
    token = engine.prefill(torch.arange(1, 21).view(2, 10))
    result = [token]
    for _ in range(count - 1):
        token = engine.decode(token)
        result.append(token)
    engine.check()
    return torch.cat(result, 1).tolist()


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_tokens_are_those_of_transformers(architecture: str, tmp_path: Path) -> None:
    config = transformers.AutoConfig.for_model(architecture, **_arguments(replace(TINY, tied=False)))
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(tmp_path)
    with torch.inference_mode():
        expected = model.generate(
            torch.arange(1, 21).view(2, 10), max_new_tokens=12, min_new_tokens=12, do_sample=False, pad_token_id=0
        )
    assert tokens("fp32", source=str(tmp_path)) == expected[:, 10:].tolist()


def _arguments(shape: Shape) -> dict[str, Any]:
    arguments = shape.config()
    del arguments["model_type"]
    return arguments


def test_random_weights_are_those_of_their_seed() -> None:
    assert tokens("bf16", count=4) == tokens("bf16", count=4)
    assert tokens("bf16", count=4) != tokens("bf16", count=4, seed=1)


@pytest.mark.parametrize("rows", [1, 3, 16, 17])
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("dtype", "error"), [("bf16", 1e-5), ("int8", 0.015), ("int4", 0.015)])
def test_packed_products_are_those_of_the_unpacked_weights(
    dtype: str, error: float, compiled: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled and native.kernels() is None:
        pytest.skip("no C compiler")
    if not compiled:
        monkeypatch.setattr(native, "kernels", lambda: None)
    torch.manual_seed(0)
    layer = torch.nn.Linear(192, 146 if compiled else 144, bias=True)  # not all in blocks of four rows
    weight = {
        "bf16": lambda: layer.weight.bfloat16().float(),
        "int8": lambda: schemes.int8(layer.weight).dequantise(),
        "int4": lambda: schemes.int4(layer.weight).dequantise(),
    }[dtype]().detach()
    packed = convert.pack(layer, dtype, CPU)
    x = torch.randn(rows, 192)
    with torch.inference_mode():
        if packed is None:
            assert (compiled, dtype) == (False, "bf16")
            return
        result, expected = packed(x), x @ weight.T + layer.bias
    assert float((result - expected).pow(2).mean().sqrt() / expected.std()) < error


@pytest.mark.parametrize("columns", [100, 184, 200])
def test_torch_int8_products_are_right_at_any_width(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "kernels", lambda: None)
    layer = torch.nn.Linear(columns, 144, bias=False)
    packed, weight = convert.pack(layer, "int8", CPU), schemes.int8(layer.weight).dequantise()
    assert packed is not None
    with torch.inference_mode():
        for _ in range(50):  # numbers behind a row differ from time to time
            x = torch.randn(1, columns)
            assert float((packed(x) - x @ weight.T).abs().max()) < 0.05


@pytest.mark.parametrize("compiler", [True, False])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "int8", "int4"])
def test_every_format_decodes_with_odd_sizes_and_without_a_compiler(
    dtype: str, compiler: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiler:
        monkeypatch.setattr(native, "kernels", lambda: None)
    assert len(tokens(dtype, replace(TINY, intermediate=200), count=3)[0]) == 3  # 64 does not divide the columns


def test_the_compiled_products_leave_small_numbers_alone() -> None:
    if native.kernels() is None:
        pytest.skip("no C compiler")
    smallest = 5e-324
    assert smallest * 1.0 > 0.0, "a library that was compiled with -ffast-math rounds it to zero in every thread"


def test_quantised_weights_stay_within_half_a_step() -> None:
    weight = torch.randn(64, 256)
    int8, int4 = schemes.int8(weight), schemes.int4(weight)
    assert ((int8.dequantise() - weight).abs() <= int8.scale[:, None] * 0.501).all()
    groups = (int4.dequantise() - weight).abs().view(64, 4, 64)
    # A scale and zero in bf16 are up to 1/256 off, which 15 steps multiply.
    assert (groups <= int4.scale.float()[..., None] * 0.62).all()
    assert int4.values.max() <= 15


def test_int4_refuses_rows_that_groups_do_not_divide() -> None:
    with pytest.raises(ValueError, match="multiple of 64"):
        schemes.int4(torch.zeros(4, 100))
    assert convert.pack(torch.nn.Linear(100, 8), "int4", CPU) is None


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8", "int4"])
def test_a_weight_that_is_not_finite_is_named_at_load(dtype: str, tmp_path: Path) -> None:
    config = transformers.AutoConfig.for_model("llama", **_arguments(TINY))
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.model.layers[1].self_attn.q_proj.weight.data[5, 7] = float("nan")
    model.save_pretrained(tmp_path)
    with pytest.raises(ServeError, match=r"layers\.1\.self_attn\.q_proj\.\S+ holds what is not a finite number"):
        TorchEngine().load(spec(dtype, source=str(tmp_path)))


def test_logits_that_are_not_finite_are_an_error() -> None:
    engine = TorchEngine()
    engine.load(spec("fp32"))
    engine.model.get_output_embeddings().weight.data[5, 7] = float("nan")
    token = engine.prefill(torch.arange(10)[None])
    with pytest.raises(ServeError, match="not finite"):
        engine.check()
    engine._invalid.zero_()
    engine.decode(token)
    with pytest.raises(ServeError, match="not finite"):
        engine.check()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", ["bf16", "int8", "int4"])
def test_an_activation_that_is_no_number_spoils_its_own_row_alone(dtype: str, bad: float) -> None:
    if native.kernels() is None:
        pytest.skip("no C compiler")
    packed = convert.pack(torch.nn.Linear(192, 8), dtype, CPU)
    x = torch.randn(3, 192)
    x[1, 100] = bad
    finite = torch.isfinite(packed(x)).all(-1)
    assert finite.tolist() == [True, False, True]


def test_streamed_bytes_are_those_of_the_shape() -> None:
    untied = replace(TINY, tied=False)
    for model in (TINY, untied):
        for dtype in ("bf16", "int8", "int4"):
            info = TorchEngine().load(spec(dtype, model))
            assert info.weight_bytes == pytest.approx(model.model.weight_bytes(dtype), rel=0.02), (model.tied, dtype)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("ranks", [2, 4])
def test_loaded_bytes_of_a_rank_are_those_of_the_shape(ranks: int, tied: bool) -> None:
    shape = replace(TINY, tied=tied)
    model = loading.load(spec("fp16", shape), CPU, ranks - 1, ranks).model
    held = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters() if parameter.ndim > 1)
    assert held == pytest.approx(shape.model.loaded_bytes("fp16", ranks), rel=0.001), "but for norms"


@pytest.mark.parametrize("damage", ["truncated", "no config"])
def test_a_damaged_checkpoint_is_a_sentence(damage: str, tmp_path: Path) -> None:
    config = transformers.AutoConfig.for_model("llama", **_arguments(TINY))
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    if damage == "truncated":
        weights = tmp_path / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
    else:
        (tmp_path / "config.json").write_text("{")
    with pytest.raises(ServeInputError, match=r"cannot read .*\n.*expected: a folder"):
        TorchEngine().load(spec("bf16", source=str(tmp_path)))
