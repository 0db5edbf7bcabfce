"""Tensors of a configuration by formula, for the architectures whose modules are known here; others by name not.

Each function lists what the class of that name in transformers 5.23 (models/*/modeling_*.py) makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from paddock.errors import did_you_mean
from paddock.models import config as configurations
from paddock.models.config import Configuration
from paddock.models.errors import error
from paddock.models.model import BITS, Model
from paddock.models.tensors import Tensor, weighed
from paddock.models.towers import TOWERS, Piece, Pieces

_Layer = Callable[[Configuration, Model, int], Pieces]
_TYPES = {"fp32": "F32", "fp16": "F16", "bf16": "BF16"}


def pieces(config: Configuration, model: Model) -> Pieces:
    """Yield the tensors of a model. Raises ModelError, with the name, for an architecture that is not known here."""
    layer = _LAYERS.get(config.architecture)
    towers = TOWERS.get(str(config.whole.get("model_type")))
    if layer is None or (config.is_multimodal and towers is None):
        name = str(config.whole.get("model_type") if layer else config.architecture)
        hint = did_you_mean(name, _LAYERS, f"one of {', '.join(sorted(_LAYERS))}")
        raise error(
            f"{config.where}: a {name} is not of a kind that is sized by formula",
            hint,
            "its .safetensors or .gguf files next to it, or torch and transformers here (pip install 'paddock[torch]')",
        )
    yield "model.embed_tokens.weight", model.vocabulary * model.hidden, True
    if not model.tied:
        yield "lm_head.weight", model.vocabulary * model.hidden, True
    for number in range(len(model.layers)):
        for name, count, matrix in layer(config, model, number):
            yield f"model.layers.{number}.{name}", count, matrix
    yield from _last(config, model)
    if towers is not None and config.is_multimodal:
        yield from towers(config, model)


def model(config: Configuration, name: str) -> Model:
    """Return the model of a configuration, its weights by formula. Raises ModelError for a kind that has none."""
    found = configurations.model(config, name)
    return weighed(found, tensors(config, pieces(config, found)), "formula", "formula")


def tensors(config: Configuration, pieces: Iterable[Piece]) -> Iterator[Tensor]:
    """Yield tensors with the bytes that they take in the configuration's format. Raises ModelError for one unknown."""
    packed, plain = config.quantisation, config.stored
    for name, count, matrix in pieces:
        tensor, bits = Tensor(name, count, 0, _TYPES[plain], matrix), BITS[plain]
        if packed is not None and packed.packs(name, matrix=matrix, expert=tensor.is_expert):
            if packed.bits is None:
                raise error(
                    f"{config.where}: quantization_config: the size of weights in {packed.method} is not known",
                    "awq, gptq, fp8, mxfp4, compressed-tensors, bitsandbytes or modelopt",
                    "its .safetensors files next to it, whose tables say their sizes",
                )
            bits, tensor = packed.bits, replace(tensor, type=packed.name)
        yield replace(tensor, bytes=round(count * bits / 8))


def knows(architecture: str) -> bool:
    """Return whether an architecture is sized by formula."""
    return architecture in _LAYERS


def _last(config: Configuration, model: Model) -> Pieces:
    biased = config.architecture in ("phi", "starcoder2", "gpt2", "gpt_neox", "phimoe", "stablelm")
    yield "model.norm.weight", model.hidden * (2 if biased else 1), False
    if config.architecture == "phi" or (config.architecture == "phimoe" and config.flag("lm_head_bias")):
        yield "lm_head.bias", model.vocabulary, False
    if config.architecture == "gpt2":
        yield "wpe.weight", config.number("max_position_embeddings") * model.hidden, True


def _linear(name: str, inputs: int, outputs: int, bias: bool = False) -> Pieces:
    yield f"{name}.weight", inputs * outputs, True
    if bias:
        yield f"{name}.bias", outputs, False


def _norms(width: int, *names: str) -> Pieces:
    for name in names:
        yield f"{name}.weight", width, False


def _attention(config: Configuration, model: Model, *, qkv: bool = False, out: bool = False) -> Pieces:
    queries = model.heads * model.head_dim
    keys = config.number("num_key_value_heads", model.heads) * model.head_dim
    yield from _linear("self_attn.q_proj", model.hidden, queries, qkv)
    yield from _linear("self_attn.k_proj", model.hidden, keys, qkv)
    yield from _linear("self_attn.v_proj", model.hidden, keys, qkv)
    yield from _linear("self_attn.o_proj", queries, model.hidden, out)


def _gated(name: str, hidden: int, inner: int, bias: bool = False) -> Pieces:
    yield from _linear(f"{name}.gate_proj", hidden, inner, bias)
    yield from _linear(f"{name}.up_proj", hidden, inner, bias)
    yield from _linear(f"{name}.down_proj", inner, hidden, bias)


def _experts(hidden: int, inner: int, count: int) -> Pieces:
    yield "mlp.experts.gate_up_proj", count * 2 * hidden * inner, True
    yield "mlp.experts.down_proj", count * hidden * inner, True


def _has(config: Configuration, said: str | bool) -> bool:
    """Return whether something is there: always, never, or where the key of that name is true."""
    return said if isinstance(said, bool) else config.flag(said)


def _layer(
    mlp: _Layer, *, qkv: str | bool = False, out: str | bool = False, biased: bool = False, heads: bool = False,
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm"),
) -> _Layer:  # fmt: skip
    """Return a layer of attention, an MLP and norms. `qkv` and `out` say whether those projections have a bias.

    `biased` norms have one, and `heads` says that queries and keys are normalised in each head.
    """

    def pieces(config: Configuration, model: Model, number: int) -> Pieces:
        yield from _attention(config, model, qkv=_has(config, qkv), out=_has(config, out))
        yield from mlp(config, model, number)
        yield from _norms(model.hidden * (2 if biased else 1), *norms)
        if heads:
            yield from _norms(model.head_dim, "self_attn.q_norm", "self_attn.k_norm")

    return pieces


def _dense(bias: str | bool = False) -> _Layer:
    def pieces(config: Configuration, model: Model, number: int) -> Pieces:
        yield from _gated("mlp", model.hidden, config.number("intermediate_size"), _has(config, bias))

    return pieces


def _two(up: str, down: str, bias: str | bool) -> _Layer:
    def pieces(config: Configuration, model: Model, number: int) -> Pieces:
        inner, biased = config.number("intermediate_size"), _has(config, bias)
        yield from _linear(up, model.hidden, inner, biased)
        yield from _linear(down, inner, model.hidden, biased)

    return pieces


def _sparse(inner: str, *, shared: bool = False) -> _Layer:
    """Return experts, or a dense MLP in the layers without; `shared` is one that every token uses behind a gate."""

    def pieces(config: Configuration, model: Model, number: int) -> Pieces:
        dense = config.text.get("mlp_only_layers")
        if (isinstance(dense, list) and number in dense) or (number + 1) % config.number("decoder_sparse_step", 1):
            yield from _gated("mlp", model.hidden, config.number("intermediate_size"))
            return
        yield from _linear("mlp.gate", model.hidden, model.experts)
        yield from _experts(model.hidden, config.number(inner), model.experts)
        if shared:
            yield from _gated("mlp.shared_expert", model.hidden, config.number("shared_expert_intermediate_size"))
            yield from _linear("mlp.shared_expert_gate", model.hidden, 1)

    return pieces


_FOUR = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
_plain = _layer(_dense())
_qwen2 = _layer(_dense(), qkv=True)
_llama = _layer(_dense("mlp_bias"), qkv="attention_bias", out="attention_bias")
_qwen3 = _layer(_dense("mlp_bias"), qkv="attention_bias", out="attention_bias", heads=True)
_gemma2 = _layer(_dense("mlp_bias"), qkv="attention_bias", out="attention_bias", norms=_FOUR)
_gemma3 = _layer(_dense("mlp_bias"), qkv="attention_bias", out="attention_bias", norms=_FOUR, heads=True)
_cohere = _layer(_dense(), qkv="attention_bias", out="attention_bias", norms=("input_layernorm",))
_starcoder2 = _layer(_two("mlp.c_fc", "mlp.c_proj", "use_bias"), qkv="use_bias", out="use_bias", biased=True)
_mixtral = _layer(_sparse("intermediate_size"))
_phimoe = _layer(_sparse("intermediate_size"), qkv="attention_bias", out="attention_bias", biased=True)
_qwen3_moe = _layer(_sparse("moe_intermediate_size"), qkv="attention_bias", out="attention_bias", heads=True)
_gated_moe = _sparse("moe_intermediate_size", shared=True)
_qwen2_moe = _layer(_gated_moe, qkv="qkv_bias")
_phi1 = _layer(_two("mlp.fc1", "mlp.fc2", bias=True), qkv=True, out=True, biased=True, norms=("input_layernorm",))


def _phi(config: Configuration, model: Model, number: int) -> Pieces:
    yield from _phi1(config, model, number)
    if config.flag("qk_layernorm"):
        yield from _norms(2 * model.head_dim, "self_attn.q_layernorm", "self_attn.k_layernorm")


def _deepseek(config: Configuration, model: Model, number: int) -> Pieces:
    """DeepSeek-V2 (arXiv 2405.04434, section 2): latent attention, and experts behind the first dense layers."""
    heads, hidden = model.heads, model.hidden
    nope, rope = config.number("qk_nope_head_dim"), config.number("qk_rope_head_dim")
    values, rank = config.number("v_head_dim"), config.number("kv_lora_rank")
    bias = config.flag("attention_bias")
    if config.find("q_lora_rank") is None:
        yield from _linear("self_attn.q_proj", hidden, heads * (nope + rope))
    else:
        low = config.number("q_lora_rank")
        yield from _linear("self_attn.q_a_proj", hidden, low, bias)
        yield from _norms(low, "self_attn.q_a_layernorm")
        yield from _linear("self_attn.q_b_proj", low, heads * (nope + rope))
    yield from _linear("self_attn.kv_a_proj_with_mqa", hidden, rank + rope, bias)
    yield from _norms(rank, "self_attn.kv_a_layernorm")
    yield from _linear("self_attn.kv_b_proj", rank, heads * (nope + values))
    yield from _linear("self_attn.o_proj", heads * values, hidden, bias)
    yield from _norms(hidden, "input_layernorm", "post_attention_layernorm")
    if number < config.number("first_k_dense_replace", 0, 0):
        yield from _gated("mlp", hidden, config.number("intermediate_size"))
        return
    inner = config.number("moe_intermediate_size")
    yield from _linear("mlp.gate", hidden, model.experts)
    yield from _experts(hidden, inner, model.experts)
    if shared := config.number("n_shared_experts", 0, 0):
        yield from _gated("mlp.shared_experts", hidden, inner * shared)


def _gpt_oss(config: Configuration, model: Model, number: int) -> Pieces:
    bias, inner, experts = config.flag("attention_bias"), config.number("intermediate_size"), model.experts
    yield from _attention(config, model, qkv=bias, out=bias)
    yield "self_attn.sinks", model.heads, False
    yield from _linear("mlp.router", model.hidden, experts, bias=True)
    yield from _experts(model.hidden, inner, experts)
    yield "mlp.experts.gate_up_proj_bias", experts * 2 * inner, False
    yield "mlp.experts.down_proj_bias", experts * model.hidden, False
    yield from _norms(model.hidden, "input_layernorm", "post_attention_layernorm")


def _olmo2(config: Configuration, model: Model, number: int) -> Pieces:
    yield from _llama(config, model, number)
    keys = config.number("num_key_value_heads", model.heads) * model.head_dim
    yield from _norms(model.heads * model.head_dim, "self_attn.q_norm")
    yield from _norms(keys, "self_attn.k_norm")


def _gpt2(config: Configuration, model: Model, number: int) -> Pieces:
    inner = config.number("intermediate_size", 4 * model.hidden)
    yield from _linear("attn.c_attn", model.hidden, 3 * model.hidden, bias=True)
    yield from _linear("attn.c_proj", model.hidden, model.hidden, bias=True)
    yield from _linear("mlp.c_fc", model.hidden, inner, bias=True)
    yield from _linear("mlp.c_proj", inner, model.hidden, bias=True)
    yield from _norms(2 * model.hidden, "ln_1", "ln_2")


def _gpt_neox(config: Configuration, model: Model, number: int) -> Pieces:
    bias, inner = config.flag("attention_bias"), config.number("intermediate_size")
    yield from _linear("attention.query_key_value", model.hidden, 3 * model.hidden, bias)
    yield from _linear("attention.dense", model.hidden, model.hidden, bias)
    yield from _linear("mlp.dense_h_to_4h", model.hidden, inner, bias=True)
    yield from _linear("mlp.dense_4h_to_h", inner, model.hidden, bias=True)
    yield from _norms(2 * model.hidden, "input_layernorm", "post_attention_layernorm")


def _qwen3_next(config: Configuration, model: Model, number: int) -> Pieces:
    """Qwen3-Next: gated attention in every fourth layer, gated delta nets in the others, and experts."""
    if model.layers[number].kind == "full":
        queries = model.heads * model.head_dim
        keys = config.number("num_key_value_heads", model.heads) * model.head_dim
        yield from _linear("self_attn.q_proj", model.hidden, 2 * queries)
        yield from _linear("self_attn.k_proj", model.hidden, keys)
        yield from _linear("self_attn.v_proj", model.hidden, keys)
        yield from _linear("self_attn.o_proj", queries, model.hidden)
        yield from _norms(model.head_dim, "self_attn.q_norm", "self_attn.k_norm")
    else:
        heads = config.number("linear_num_value_heads", 32)
        keys = config.number("linear_num_key_heads", 16) * config.number("linear_key_head_dim", 128)
        width = config.number("linear_value_head_dim", 128)
        values = heads * width
        yield from _linear("linear_attn.in_proj_qkvz", model.hidden, 2 * keys + 2 * values)
        yield from _linear("linear_attn.in_proj_ba", model.hidden, 2 * heads)
        yield "linear_attn.conv1d.weight", (2 * keys + values) * config.number("linear_conv_kernel_dim", 4), True
        yield "linear_attn.gates", 2 * heads + width, False
        yield from _linear("linear_attn.out_proj", values, model.hidden)
    yield from _norms(model.hidden, "input_layernorm", "post_attention_layernorm")
    yield from _gated_moe(config, model, number)


def _lfm2(config: Configuration, model: Model, number: int) -> Pieces:
    """LFM2: short convolutions, and attention in some layers."""
    hidden, inner = model.hidden, config.number("block_ff_dim", config.number("intermediate_size", 12288))
    if config.flag("block_auto_adjust_ff_dim", True):
        multiple = config.number("block_multiple_of", 256)
        inner = -(-(2 * inner // 3) // multiple) * multiple
    if model.layers[number].kind == "full":
        yield from _attention(config, model)
        yield from _norms(model.head_dim, "self_attn.q_layernorm", "self_attn.k_layernorm")
    else:
        yield from _linear("conv.in_proj", hidden, 3 * hidden)
        yield from _linear("conv.out_proj", hidden, hidden)
        yield "conv.conv.weight", hidden * config.number("conv_L_cache", 3), True
    yield from _gated("feed_forward", hidden, inner)
    yield from _norms(hidden, "operator_norm", "ffn_norm")


def _llama4(config: Configuration, model: Model, number: int) -> Pieces:
    """Llama 4: experts in some layers, next to one that all tokens share."""
    inner, step = config.number("intermediate_size"), config.number("interleave_moe_layer_step", 1)
    yield from _attention(config, model)
    yield from _norms(model.hidden, "input_layernorm", "post_attention_layernorm")
    if (number + 1) % step:
        yield from _gated("feed_forward", model.hidden, config.number("intermediate_size_mlp", 16384))
        return
    yield from _linear("feed_forward.router", model.hidden, model.experts)
    yield "feed_forward.experts.gate_up_proj", model.experts * 2 * model.hidden * inner, True
    yield "feed_forward.experts.down_proj", model.experts * model.hidden * inner, True
    yield from _gated("feed_forward.shared_expert", model.hidden, inner)


_LAYERS: Mapping[str, _Layer] = MappingProxyType(
    {
        "llama": _llama, "mistral": _plain, "ministral": _plain, "granite": _llama, "smollm3": _llama,
        "qwen2": _qwen2, "qwen2_5_vl_text": _qwen2, "qwen3": _qwen3, "qwen3_vl_text": _qwen3,
        "qwen2_moe": _qwen2_moe, "qwen3_moe": _qwen3_moe, "mixtral": _mixtral,
        "gemma": _llama, "gemma2": _gemma2, "gemma3_text": _gemma3, "phi": _phi, "phi3": _plain,
        "phimoe": _phimoe, "starcoder2": _starcoder2, "deepseek_v2": _deepseek, "deepseek_v3": _deepseek,
        "kimi_k2": _deepseek,
        "gpt_oss": _gpt_oss, "olmo2": _olmo2, "cohere": _cohere, "cohere2": _cohere, "gpt2": _gpt2,
        "gpt_neox": _gpt_neox, "lfm2": _lfm2, "qwen3_next": _qwen3_next,
        "llama4_text": _llama4, "qwen2_5_vl": _qwen2,
    }
)  # fmt: skip
