"""Formats of weights: what a checkpoint's `quantization_config` says, and the bits that a weight takes in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from paddock.models.errors import error

_FILE = Path(__file__).with_name("data") / "safetensors_bits.json"
SAFETENSORS_BITS: Mapping[str, int] = MappingProxyType(json.loads(_FILE.read_bytes()))
"""Bits of an element of each dtype of safetensors (github.com/huggingface/safetensors, safetensors/src/tensor.rs)."""
TORCH: Mapping[str, str] = MappingProxyType({"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"})
"""Names of torch's plain dtypes, as a config.json writes them."""

_ALWAYS_WHOLE = ("lm_head", "embed_tokens", "output", "embed_out")
_METHODS = "awq, gptq, fp8, fbgemm_fp8, mxfp4, compressed-tensors, bitsandbytes or modelopt"


@dataclass(frozen=True, slots=True)
class Quantisation:
    """Format of a checkpoint that is quantised already.

    `bits` are those of a packed weight with its scales; None where they are known of the files alone. `packed` are
    those of a number in the packed tensors. `whole` are the modules that it leaves as they are; `experts_only` packs
    experts and nothing else.
    """

    method: str
    packed: int
    bits: float | None
    whole: tuple[str, ...] = ()
    experts_only: bool = False

    @property
    def name(self) -> str:
        """The format in words: "4-bit awq"."""
        return self.method if self.method.endswith(("4", "8")) else f"{self.packed}-bit {self.method}"

    def packs(self, tensor: str, *, matrix: bool, expert: bool) -> bool:
        """Return whether the weight of that name is packed."""
        if not matrix or not (expert or not self.experts_only):
            return False
        words = tensor.split(".")
        if any(word in words for word in _ALWAYS_WHOLE) and self.method != "compressed-tensors":
            return False
        if any(word in words for word in _ALWAYS_WHOLE[1:]):
            return False
        return not any(_names(pattern, tensor) for pattern in self.whole)


def quantisation(config: Any, where: str) -> Quantisation | None:
    """Return what a `quantization_config` says; None without one. Raises ModelError, begun by `where`."""
    if config is None or config == {}:
        return None
    if not isinstance(config, Mapping):
        raise error(f"{where}: quantization_config is not a mapping", "what quantises the weights, or nothing")
    method = config.get("quant_method")
    if method is None and ("load_in_4bit" in config or "load_in_8bit" in config):
        method = "bitsandbytes"
    if not isinstance(method, str):
        raise error(f"{where}: quantization_config.quant_method: {method!r} is not a name", f"one of {_METHODS}")
    method = method.lower().replace("_", "-")
    whole = _whole(config)
    bits, group = _number(config, "bits", 4), _number(config, "group_size", 128)
    match method:
        case "awq" | "gptq" | "gptqmodel" | "auto-round" | "intel/auto-round":
            # A scale of 16 bits, and a zero of as many bits as a weight, for each group.
            extra = (16 + bits) / group if group > 0 else 0
            return Quantisation({"gptqmodel": "gptq"}.get(method, method), bits, bits + extra, whole)
        case "fp8" | "fbgemm-fp8":
            block = config.get("weight_block_size")
            return Quantisation("fp8", 8, 8 + (32 / 128**2 if block else 0), whole)
        case "mxfp4":
            # 32 numbers of 4 bits share a scale of 8 (OCP Microscaling Formats 1.0, table 1).
            return Quantisation("mxfp4", 4, 4 + 8 / 32, whole, experts_only=True)
        case "bitsandbytes":
            if config.get("load_in_4bit"):
                # A scale of 32 bits for each 64 weights (QLoRA, arXiv 2305.14314, section 3), 8 where they are packed.
                double = bool(config.get("bnb_4bit_use_double_quant"))
                return Quantisation("bitsandbytes", 4, 4 + (0.127 if double else 0.5), whole)
            return Quantisation("bitsandbytes", 8, 8.0, whole)
        case "compressed-tensors":
            return _compressed(config, where, whole)
        case "modelopt" | "modelopt-fp4" | "modelopt-fp8":
            algorithm = str(config.get("quant_algo") or method).upper()
            if "FP4" in algorithm:
                return Quantisation("nvfp4", 4, 4 + 8 / 16, whole)
            return Quantisation("fp8", 8, 8.0, whole) if "FP8" in algorithm else Quantisation(method, 8, None, whole)
        case _:
            return Quantisation(method, bits, None, whole)


def _compressed(config: Mapping[str, Any], where: str, whole: tuple[str, ...]) -> Quantisation:
    groups = config.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        raise error(
            f"{where}: quantization_config.config_groups names no weights", "a group with weights.num_bits and its type"
        )
    bits = _number(weights, "num_bits", 8)
    group = _number(weights, "group_size", 0) if weights.get("strategy") in ("group", "tensor_group") else 0
    scale = 8 if weights.get("type") == "float" and bits == 4 else 16
    return Quantisation("compressed-tensors", bits, bits + (scale / group if group > 0 else 0), whole)


def _number(config: Mapping[str, Any], key: str, default: int) -> int:
    value = config.get(key)
    fits = isinstance(value, int) and not isinstance(value, bool) and -1 <= value <= 65536
    return int(value) if fits else default  # type: ignore[arg-type]  # an int where it fits


def _whole(config: Mapping[str, Any]) -> tuple[str, ...]:
    names: list[str] = []
    for key in ("modules_to_not_convert", "ignore", "llm_int8_skip_modules", "exclude_modules", "ignored_layers"):
        value = config.get(key)
        if isinstance(value, list):
            names += [name for name in value if isinstance(name, str) and name]
    return tuple(names)


def _names(pattern: str, tensor: str) -> bool:
    """Return whether a pattern of a configuration names a tensor.

    Of regular expressions `.*` alone is understood: one that somebody else wrote may take for ever.
    """
    if pattern.startswith("re:"):
        pieces, within = pattern[3:].strip("^$").replace("\\.", ".").split(".*"), tensor
    else:
        pieces, within = f".{pattern.strip('*.')}.".split("*"), f".{tensor}."
    at = 0
    for piece in pieces:
        at = within.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True
