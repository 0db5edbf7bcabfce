"""A checkpoint's config.json: layers, heads, context, rope, experts, format, and what its class takes by default."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paddock.models.errors import error
from paddock.models.formats import TORCH, Quantisation, quantisation
from paddock.models.model import Layer, Model, Rope

_LONGEST = 8 * 2**20
_MOST = 10_000_000
"""Above any size of a model; tokens of a vocabulary are the most, some 260,000."""
_MOST_CONTEXT = 1_000_000_000
_MOST_LAYERS, _MOST_EXPERTS = 2000, 4096
_COUNTS = ("layers", "depth", "blocks", "experts", "n_layer")
"""Ends of the keys that say how many modules there are, of towers too."""
_EXPECTED = "the configuration of a language model that writes text, such as llama, qwen3 or gemma3"

DATA = Path(__file__).with_name("data")
DEFAULTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(json.loads((DATA / "defaults.json").read_bytes()))
"""Values that transformers' classes take where a configuration says nothing, of those that decide sizes (5.23)."""
_OTHER_NAMES: Mapping[str, Sequence[str]] = json.loads((DATA / "key_names.json").read_bytes())
_TEXTS = ("text_config", "llm_config", "language_config")
"""Keys under which a configuration of several models has that of the language model."""
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_USED = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts")
_SLIDING = {"sliding_attention", "chunked_attention", "local_attention"}
_PERIODS = {"gemma2": 2, "gemma3_text": 6, "gpt_oss": 2, "cohere2": 4}
"""Period of the layers with full attention, where a configuration lists no layers."""
_ALL_SLIDE = ("mistral", "mixtral", "phi3", "phimoe", "starcoder2")
"""Architectures all of whose layers slide where a window is set."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A config.json. `whole` is as it is in the file, `text` the part of the language model with its defaults."""

    where: str
    whole: Mapping[str, Any]
    text: Mapping[str, Any]
    architecture: str
    quantisation: Quantisation | None

    @property
    def is_multimodal(self) -> bool:
        return any(isinstance(self.whole.get(key), Mapping) for key in (*_TEXTS, "vision_config", "audio_config"))

    @property
    def stored(self) -> str:
        """Name of the plain format that the weights are in, bf16 where it says nothing."""
        name = self.text.get("torch_dtype") or self.text.get("dtype") or self.whole.get("torch_dtype")
        name = name or self.whole.get("dtype")
        return TORCH.get(name, "bf16") if isinstance(name, str) else "bf16"

    def find(self, key: str) -> Any:
        """Return the value of a key, by any of its names; None where it is absent."""
        for name in (key, *_OTHER_NAMES.get(key, ())):
            if self.text.get(name) is not None:
                return self.text[name]
        return None

    def number(self, key: str, default: int | None = None, least: int = 1, most: int = _MOST) -> int:
        """Return a whole number. Raises ModelError where it is absent without a default, or is not valid."""
        value = self.find(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise error(f"{self.where}: it has no {key}", _EXPECTED)
        if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
            value = max(value)  # a number for each layer
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise error(f"{self.where}: {key}: {str(value)[:60]!r} is not a whole number", f"{least} to {most}")
        if not least <= value <= most:
            raise error(f"{self.where}: {key}: {value} is not valid", f"{least} to {most}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a value that is true or false. Raises ModelError for another."""
        value = self.text.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise error(f"{self.where}: {key}: {str(value)[:60]!r} is neither true nor false", "true or false")
        return value


def read(folder: Path, where: str = "MODEL") -> Configuration:
    """Return the configuration of a checkpoint's folder. Raises ModelError, begun by `where`."""
    file = folder / "config.json"
    begun = f"{where}: {file}"
    try:
        if file.stat().st_size > _LONGEST:
            raise ValueError("it is longer than any configuration")
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as failed:
        text = failed.strerror if isinstance(failed, OSError) else failed
        raise error(
            f"{where}: cannot read {file}: {text}", "the folder of a checkpoint, with its config.json"
        ) from None
    return of(config, begun)


def of(config: Any, where: str) -> Configuration:
    """Return a configuration of what a config.json holds. Raises ModelError, begun by `where`."""
    if not isinstance(config, Mapping):
        raise error(f"{where}: it is not a mapping", _EXPECTED)
    text = config
    for key in _TEXTS:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            text = inner
            break
        if inner is not None:
            raise error(f"{where}: {key}: it is not a mapping", _EXPECTED)
    architecture = text.get("model_type") or config.get("model_type")
    if not isinstance(architecture, str) or not architecture:
        raise error(f"{where}: it has no model_type", _EXPECTED)
    if text is not config and architecture == config.get("model_type"):
        architecture = {"gemma3": "gemma3_text", "mistral3": "mistral"}.get(architecture, architecture)
    merged = {**DEFAULTS.get(architecture, {}), **text}
    if text is not config and config.get("tie_word_embeddings") is not None:
        merged["tie_word_embeddings"] = config["tie_word_embeddings"]
    _check_counts(config, where)
    packed = config.get("quantization_config") or config.get("compression_config") or text.get("quantization_config")
    return Configuration(where, config, merged, architecture, quantisation(packed, where))


def _check_counts(config: Mapping[str, Any], where: str, depth: int = 4) -> None:
    """Raise ModelError for more modules than any model has: a class would make each of them."""
    for key, value in config.items():
        if isinstance(value, Mapping) and depth:
            _check_counts(value, where, depth - 1)
        elif isinstance(value, int) and value > _MOST_EXPERTS and key.endswith(_COUNTS):
            raise error(f"{where}: {key}: {value} is not valid", f"at most {_MOST_EXPERTS}")


def model(config: Configuration, name: str) -> Model:
    """Return the model without its weights: what the configuration says. Raises ModelError."""
    if config.whole.get("is_encoder_decoder") is True:
        raise error(
            f"{config.where}: {config.architecture} has an encoder next to its decoder, which is not sized here",
            _EXPECTED,
        )
    heads, hidden = config.number("num_attention_heads"), config.number("hidden_size")
    experts, used = _experts(config)
    head_dim = config.number("head_dim", max(1, hidden // heads))
    layers = _layers(config, heads, head_dim)
    inner = config.number("moe_intermediate_size", 0, 0) if experts else 0
    quantised = config.quantisation
    notes = ("the state of its recurrent layers is not known: it is not counted",)
    return Model(
        name,
        config.architecture,
        hidden,
        inner or config.number("intermediate_size", 4 * hidden),
        heads,
        max((layer.kv_heads for layer in layers if layer.kind in ("full", "sliding")), default=0),
        head_dim,
        config.number("vocab_size"),
        _context(config),
        config.flag("tie_word_embeddings"),
        layers,
        rope=rope(config),
        experts=experts,
        experts_active=used,
        format=quantised.name if quantised else config.stored,
        quantised=quantised is not None,
        plain=config.stored,
        facts="config.json",
        notes=notes if any(layer.state is None for layer in layers) else (),
    )


def _experts(config: Configuration) -> tuple[int, int]:
    key = next((key for key in EXPERTS if config.text.get(key) is not None), None)
    if key is None:
        return 0, 0
    experts = config.number(key, 0, 0, _MOST_EXPERTS)
    if experts < 2:
        return 0, 0
    used = next((key for key in _USED if config.text.get(key) is not None), None)
    return experts, min(experts, config.number(used, 1, 1, _MOST_EXPERTS) if used else experts)


def rope(config: Configuration) -> Rope:
    """Return how positions are stretched. Raises ModelError for values of another kind."""
    scaling = config.text.get("rope_scaling") or config.text.get("rope_parameters") or {}
    if not isinstance(scaling, Mapping):
        raise error(f"{config.where}: rope_scaling: it is not a mapping", "a mapping with rope_type, or null")
    if isinstance(scaling.get("full_attention"), Mapping):  # a mapping for each kind of layer
        scaling = scaling["full_attention"]
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    theta = config.text.get("rope_theta") or scaling.get("rope_theta")
    original = scaling.get("original_max_position_embeddings") or config.text.get("original_max_position_embeddings")
    return Rope(
        kind if isinstance(kind, str) else "default",
        _positive(scaling.get("factor")) or 1.0,
        int(_positive(original) or 0) or None,
        _positive(theta) or 10000.0,
    )


def _positive(value: Any) -> float | None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST_CONTEXT
    return float(value) if fits else None


def _context(config: Configuration) -> int:
    """Return the tokens that the model has places for: stretched by yarn beyond what the configuration counts."""
    tokens = config.number("max_position_embeddings", 4096, most=_MOST_CONTEXT)
    scaled = rope(config)
    if scaled.type in ("yarn", "linear", "dynamic") and scaled.original and scaled.factor > 1:
        return max(tokens, round(scaled.original * scaled.factor))
    return tokens


def _layers(config: Configuration, heads: int, head_dim: int) -> tuple[Layer, ...]:
    count = config.number("num_hidden_layers", most=_MOST_LAYERS)
    kv_heads = config.number("num_key_value_heads", heads)
    if config.text.get("multi_query") is True and config.text.get("new_decoder_architecture") is not True:
        kv_heads = 1  # of Falcon 7B, and of the first StarCoder
    if isinstance(config.text.get("kv_lora_rank"), int):
        cached = config.number("kv_lora_rank", 0, 0) + config.number("qk_rope_head_dim", 0, 0)
        return (Layer("latent", cached),) * count
    full = Layer("full", kv_heads * (head_dim + config.number("v_head_dim", head_dim)), kv_heads=kv_heads)
    layers = [_layer(config, kind, full) for kind in kinds(config, count)]
    shared = min(count, config.number("num_kv_shared_layers", 0, 0))  # they read the cache of layers before them
    return tuple(replace(layer, cached=0) if number >= count - shared else layer for number, layer in enumerate(layers))


def _layer(config: Configuration, kind: str, full: Layer) -> Layer:
    if kind in _SLIDING:
        key = "attention_chunk_size" if kind == "chunked_attention" else "sliding_window"
        window = config.number(key, config.number("sliding_window", 4096))
        return full if window >= _context(config) else replace(full, kind="sliding", window=window)
    if kind in ("full_attention", "attention", "global_attention"):
        return full
    if kind in ("moe", "mlp", "none"):
        return Layer("none")
    return Layer("recurrent", state=_state(config, kind))


def kinds(config: Configuration, count: int) -> tuple[str, ...]:
    """Return the kind of every layer: as listed, else as the architecture has it. Raises ModelError."""
    listed = config.text.get("layer_types") or config.text.get("layers_block_type")
    if listed is not None:
        if not isinstance(listed, list) or not all(isinstance(kind, str) for kind in listed) or len(listed) < count:
            raise error(
                f"{config.where}: layer_types: it does not list {count} layers",
                "a kind for each layer, such as full_attention",
            )
        return tuple(listed[:count])
    window = config.find("sliding_window")
    if config.architecture == "lfm2":
        full = config.text.get("full_attn_idxs")
        indexes = (
            set(full) if isinstance(full, list) and all(isinstance(item, int) for item in full) else set(range(count))
        )
        return tuple("full_attention" if number in indexes else "conv" for number in range(count))
    if config.architecture == "llama4_text":
        period = config.number("no_rope_layer_interval", 4)
        return tuple("chunked_attention" if (number + 1) % period else "full_attention" for number in range(count))
    if config.architecture == "qwen3_next":
        period = config.number("full_attention_interval", 4)
        return tuple("linear_attention" if (number + 1) % period else "full_attention" for number in range(count))
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        return ("full_attention",) * count
    letters = config.text.get("sliding_window_pattern")
    if isinstance(letters, str) and letters:  # such as LLLG, of local and global layers
        return tuple(
            "sliding_attention" if letters[number % len(letters)] == "L" else "full_attention"
            for number in range(count)
        )
    every = config.number("sliding_window_pattern", _PERIODS.get(config.architecture, 0), 0, 1000)
    if every:
        return tuple("sliding_attention" if (number + 1) % every else "full_attention" for number in range(count))
    if config.architecture in _ALL_SLIDE:
        return ("sliding_attention",) * count
    if config.flag("use_sliding_window"):
        first = config.number("max_window_layers", 28, 0)
        return tuple("sliding_attention" if number >= first else "full_attention" for number in range(count))
    return ("full_attention",) * count


def _state(config: Configuration, kind: str) -> int | None:
    """Return the numbers that a layer without attention keeps of a sequence; None where its kind is not known.

    A short convolution keeps its inputs; gated delta nets a matrix of key by value for each head and their convolution
    (Qwen3-Next); Mamba-2 heads by head size by state, and its convolution (arXiv 2405.21060, section 7).
    """

    def number(key: str, default: int = 0) -> int:
        return config.number(key, default, 0)

    hidden = number("hidden_size")
    if kind == "conv":
        return hidden * max(0, number("conv_L_cache", 3) - 1)
    if kind == "linear_attention" and config.find("linear_num_value_heads") is not None:
        keys = number("linear_num_key_heads") * number("linear_key_head_dim")
        values = number("linear_num_value_heads") * number("linear_value_head_dim")
        convolution = (2 * keys + values) * max(0, number("linear_conv_kernel_dim", 4) - 1)
        return values * number("linear_key_head_dim") + convolution
    if config.find("mamba_d_state") is not None:
        inner = number("mamba_expand", 2) * hidden
        groups = 2 * number("mamba_n_groups", 0) * number("mamba_d_state")
        return inner * number("mamba_d_state") + (inner + groups) * max(0, number("mamba_d_conv", 4) - 1)
    return None
