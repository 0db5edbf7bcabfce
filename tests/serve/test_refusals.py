"""Models that a replica of Paddock's own engine would answer wrongly: each is refused by name before it serves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import need

need("torch", "transformers", "safetensors")

import torch
import transformers

from paddock.models import sources
from paddock.models.shapes import Shape
from paddock.modes.admission import Room
from paddock.modes.config import PRESETS
from paddock.serve.engine.limits import admit_model
from paddock.serve.engine.torch_rows import TorchRows
from paddock.serve.errors import ServeError, ServeInputError
from paddock.serve.own.protocol import Spec
from paddock.serve.own.torch_engine import TorchEngine

COMMON: Mapping[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 199, "max_position_embeddings": 64, "bos_token_id": None,
    "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
HALF = ["sliding_attention", "full_attention"] * 2
SLIDING: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mistral": ("mistral", {"sliding_window": 8}),
    "qwen2": ("qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}),
    "gemma3": ("gemma3_text", {"sliding_window": 8, "head_dim": 16, "query_pre_attn_scalar": 16, "layer_types": HALF}),
    "starcoder2": ("starcoder2", {"sliding_window": 8}),
}


def rope(**values: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 10000.0, "original_max_position_embeddings": 16, **values}}


DEPENDENT = {
    "longrope": ("phi3", rope(rope_type="longrope", short_factor=[1.0] * 8, long_factor=[4.0] * 8, factor=4.0)),
    "dynamic": ("llama", rope(rope_type="dynamic", factor=4.0)),
}


def spec(folder: Path, kind: str, changes: Mapping[str, Any], length: int = 40) -> Spec:
    """Write a checkpoint of random weights, and return what loads it."""
    torch.manual_seed(7)
    config = transformers.AutoConfig.for_model(kind, **{**COMMON, **changes})
    transformers.AutoModelForCausalLM.from_config(config).eval().save_pretrained(folder)
    return Spec(Shape.of(sources.checkpoint(folder)), "fp32", "cpu", 1, length, str(folder))


@pytest.mark.parametrize("name", SLIDING)
def test_sliding_windows_are_refused_in_rows_and_right_in_bench(name: str, tmp_path: Path) -> None:
    wanted = spec(tmp_path, *SLIDING[name])
    with pytest.raises(ServeError, match=r"layers that see a window.*fix: vLLM has them"):
        admit_model(wanted, PRESETS["aggressive"], Room(2**40, 2**40))
    engine = TorchEngine()
    engine.load(wanted)
    with pytest.raises(ServeError, match="layers that see a window"):
        TorchRows(engine, 2, 40)
    ids = torch.randint(3, 190, (1, 12), generator=torch.Generator().manual_seed(3))
    expected = engine.model.generate(ids, max_new_tokens=10, do_sample=False)[0, 12:].tolist()
    tokens = [engine.prefill(ids)]
    while len(tokens) < 10:
        tokens.append(engine.decode(tokens[-1]))
    assert [int(token) for token in tokens] == expected


def test_layers_without_attention_are_refused_in_rows(tmp_path: Path) -> None:
    changes = {"layer_types": ["conv", "full_attention"] * 2, "block_auto_adjust_ff_dim": False}
    engine = TorchEngine()
    engine.load(spec(tmp_path, "lfm2", changes))
    with pytest.raises(ServeError, match="layers without attention"):
        TorchRows(engine, 2, 40)


@pytest.mark.parametrize("name", DEPENDENT)
def test_positions_that_depend_on_length_are_refused_at_load(name: str, tmp_path: Path) -> None:
    with pytest.raises(ServeInputError, match=rf"depend on how long the text is \({name}\)"):
        TorchEngine().load(spec(tmp_path, *DEPENDENT[name]))


@pytest.mark.parametrize("kind", ["llama3", "linear", "yarn"])
def test_positions_of_other_kinds_are_loaded(kind: str, tmp_path: Path) -> None:
    more = {"low_freq_factor": 1.0, "high_freq_factor": 4.0} if kind == "llama3" else {}
    engine = TorchEngine()
    engine.load(spec(tmp_path, "llama", rope(rope_type=kind, factor=4.0, **more)))
    assert TorchRows(engine, 2, 40).slots == 2


def test_a_checkpoint_that_is_quantised_is_refused_at_load(tmp_path: Path) -> None:
    wanted = spec(tmp_path, "llama", {})
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    config.quantization_config = {"quant_method": "awq", "bits": 4, "group_size": 128}
    config.save_pretrained(tmp_path)
    with pytest.raises(ServeInputError, match=r"quantised already \(4-bit awq\).*\n.*\n.*--engine vllm"):
        TorchEngine().load(wanted)


def test_experts_are_timed_by_those_that_compute(tmp_path: Path) -> None:
    changes = {"moe_intermediate_size": 64, "num_experts": 8, "num_experts_per_tok": 2, "head_dim": 16}
    wanted = spec(tmp_path, "qwen3_moe", changes)
    model = sources.checkpoint(tmp_path)
    assert (model.experts, model.experts_active) == (8, 2)
    info = TorchEngine().load(wanted)
    assert info.weight_bytes == pytest.approx(model.weight_bytes("fp32"), rel=0.01)
    with pytest.raises(ServeInputError, match="experts are not packed here"):
        TorchEngine().load(Spec(wanted.shape, "int8", "cpu", 1, 40, str(tmp_path)))
