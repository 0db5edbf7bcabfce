"""Configurations: what a class takes by default, values of another kind, and formats of weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.models import config, formula, sources
from paddock.models.errors import ModelError
from paddock.models.model import Model
from tests.models.configurations import CONFIGURATIONS
from tests.support.explore import examples
from tests.support.model_files import LLAMA


def sized(values: Any) -> Model:
    return formula.model(config.of(values, "config.json"), "m")


def published(name: str, **changes: Any) -> dict[str, Any]:
    return {**CONFIGURATIONS[name].config, **changes}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads: 0 is not valid\n    expected: 1 to "),
        ({"num_hidden_layers": -3}, "num_hidden_layers: -3 is not valid"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers: 1000000000 is not valid"),
        ({"hidden_size": "big"}, "hidden_size: 'big' is not a whole number"),
        ({"hidden_size": True}, "hidden_size: 'True' is not a whole number"),
        ({"hidden_size": None}, "it has no hidden_size"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: 'yes' is neither true nor false"),
        ({"model_type": None}, "it has no model_type"),
        ({"text_config": 3}, "text_config: it is not a mapping"),
        ({"rope_scaling": [1]}, "rope_scaling: it is not a mapping"),
        ({"layer_types": ["full_attention"]}, "layer_types: it does not list 2 layers"),
        ({"quantization_config": "awq"}, "quantization_config is not a mapping"),
        ({"quantization_config": {"bits": 4}}, "quantization_config.quant_method: None is not a name"),
        ({"quantization_config": {"quant_method": "aqlm"}}, "the size of weights in aqlm is not known"),
        ({"is_encoder_decoder": True}, "has an encoder next to its decoder"),
        ({"model_type": "lama"}, "a lama is not of a kind that is sized by formula\n    expected: did you mean llama?"),
    ],
)
def test_a_value_that_cannot_be_is_named(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError) as refused:
        sized({**LLAMA, **changes})
    assert why in str(refused.value)


@pytest.mark.parametrize("content", ["{", "[]", '{"a": NaN', "[" * 100_000, "\xff"])
def test_a_file_that_is_not_json_is_a_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content, encoding="latin-1")
    with pytest.raises(ModelError, match=r"config\.json"):
        sources.checkpoint(tmp_path)


def test_a_quantised_configuration_is_sized_in_its_format() -> None:
    awq, fp8 = sized(published("Qwen2.5-7B-Instruct-AWQ")), sized(published("Llama-3.1-8B-Instruct-FP8-dynamic"))
    assert (awq.format, round(awq.bytes / 2**30, 1)) == ("4-bit awq", 5.2)
    assert round(fp8.bytes / 2**30, 1) == 8.5
    assert awq.loaded_bytes("bf16") == awq.bytes, "it stays as it is"


@pytest.mark.parametrize(
    ("packed", "least", "most"),
    [
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 5.2, 5.7),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8.2, 8.6),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, 5.1, 5.4),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8.2, 8.6),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["mlp"]}, 13.0, 13.2),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}, 5.2, 5.7),
        ({"quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*self_attn.*"], "config_groups": {
            "g": {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}}}}, 7.0, 7.5),
    ],
)  # fmt: skip
def test_formats_take_their_bits(packed: dict[str, Any], least: float, most: float) -> None:
    model = sized(published("Llama-3.1-8B", quantization_config=packed))
    assert least <= model.bytes / 2**30 <= most
    assert model.quantised


def test_mxfp4_packs_experts_alone() -> None:
    model = sized(published("gpt-oss-120b"))
    assert round(model.bytes / 2**30) == 61, "as the published files"
    assert dict(model.types)["mxfp4"] > 0.95 * model.parameters


def test_a_pattern_that_would_run_for_ever_does_not() -> None:
    packed = {"quant_method": "awq", "ignore": ["re:(a+)+$", "re:" + "(.*)*" * 50]}
    assert sized(published("Llama-3.1-8B", quantization_config=packed)).quantised


@pytest.mark.parametrize(
    ("name", "changes", "kinds"),
    [
        ("Mistral-7B-v0.1", {}, "32 layers: 32 sliding (4096 tokens)"),
        ("Mistral-7B-v0.3", {}, "32 layers"),
        ("Qwen2.5-7B", {}, "28 layers"),
        (
            "Qwen2.5-7B", {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 8},
            "28 layers: 8 full, 20 sliding (4096 tokens)",
        ),
        ("gemma-3-4b", {}, "34 layers: 29 sliding (1024 tokens), 5 full"),
        ("gpt-oss-20b", {"layer_types": None}, "24 layers: 12 sliding (128 tokens), 12 full"),
        ("DeepSeek-V3", {}, "61 layers: 61 with a latent cache"),
        ("Phi-3.5-mini", {}, "32 layers"),
    ],
)  # fmt: skip
def test_layers_slide_where_their_class_says(name: str, changes: dict[str, Any], kinds: str) -> None:
    assert sized(published(name, **changes)).layer_kinds == kinds


def test_numbers_of_each_layer_and_letters_are_read() -> None:
    values = published("Llama-3.1-8B", intermediate_size=[8, 16], sliding_window=512, sliding_window_pattern="LLLG")
    model = config.model(config.of({**values, "num_kv_shared_layers": 12}, "c"), "m")
    assert (model.intermediate, model.layer_kinds) == (16, "32 layers: 24 sliding (512 tokens), 8 full")
    assert sum(bool(layer.cached) for layer in model.layers) == 20, "the last ones read the cache of others"
    one = config.model(config.of(published("Llama-3.1-8B", multi_query=True), "c"), "m")
    assert one.kv_heads == 1


def test_layers_of_a_hybrid_have_a_state() -> None:
    names = ["full_attention", "conv"] * 8
    layers = config.model(config.of(published("LFM2-1.2B", layer_types=names), "c"), "m").layers
    assert [layer.kind for layer in layers[:2]] == ["full", "recurrent"]
    assert layers[1].numbers(10**6) == 2048 * 2
    mixed = config.model(config.of(published("Llama-3.1-8B", layer_types=["rwkv"] * 32), "c"), "m")
    assert "state of its recurrent layers is not known" in mixed.notes[0]


@pytest.mark.parametrize(
    ("changes", "context", "type"),
    [
        ({}, 131072, "llama3"),
        ({"max_position_embeddings": 32768, "rope_scaling": {
            "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, 131072, "yarn"),
        ({"rope_scaling": None}, 131072, "default"),
        ({"rope_scaling": {"rope_type": "longrope"}}, 131072, "longrope"),
    ],
)  # fmt: skip
def test_stretched_positions_are_counted_in_the_context(changes: dict[str, Any], context: int, type: str) -> None:
    model = sized(published("Llama-3.1-8B", **changes))
    assert (model.context, model.rope.type) == (context, type)


KEYS = sorted({*LLAMA, "head_dim", "rope_scaling", "rope_parameters", "text_config", "vision_config", "layer_types",
               "sliding_window", "quantization_config", "num_local_experts", "kv_lora_rank", "v_head_dim",
               "sliding_window_pattern", "tie_word_embeddings", "dtype"})  # fmt: skip
ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=6)
    | st.sampled_from(["awq", "yarn", "full_attention", "sliding_attention", "gemma3_text", "deepseek_v3"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["quant_method", "bits", "rope_type", "factor", "ignore", "model_type"]), inner),
    max_leaves=6,
)  # fmt: skip


@examples(300, 3000, deadline=None)
@given(st.sampled_from(sorted(CONFIGURATIONS)), st.dictionaries(st.sampled_from(KEYS), ODD, max_size=4))
def test_any_configuration_is_a_model_or_a_sentence(name: str, changes: dict[str, Any]) -> None:
    values = json.loads(json.dumps({**CONFIGURATIONS[name].config, **changes}))
    try:
        model = sized(values)
    except ModelError:
        return
    assert model.parameters > 0
    assert model.cache_bytes(100, 2) >= 0
    assert model.bytes >= 0
