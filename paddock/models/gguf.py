"""Models in GGUF files: what the heads of all parts say, and what is not a model."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock.models.errors import ModelError, error
from paddock.models.gguf_head import MOST_NUMBER, Head, OtherKind, read_head
from paddock.models.model import Kind, Layer, Model, Rope
from paddock.models.tensors import Tensor, stored_format, weighed

_WHOLE = "one whole .gguf file of a language model"
_AGAIN = "fetch it again, and compare its size and checksum with those of where it came from"
_PART = re.compile(r"(?P<stem>.+)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf")
_MOST_PARTS = 1000
_MOST_LAYERS = 10_000
_NOT_MODELS = {
    "mmproj": "a projector, which turns images or sound into what a model reads",
    "adapter": "an adapter (LoRA), which changes a model",
    "vocab": "a vocabulary alone",
    "imatrix": "statistics for quantising a model",
}
_PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "cohere2": 4, "llama4": 4, "exaone4": 4, "olmo2": 4}
"""Period of the layers with full attention, where the file does not say (llama.cpp, src/llama-model.cpp).

llama.cpp keeps every token in the layers of others, also of those that have a window, such as Phi-3.
"""
_TIED = ("gemma", "gemma2", "gemma3", "gemma3n", "cohere", "cohere2")


def _fix(failed: Exception) -> str:
    if isinstance(failed, OtherKind):
        return "fetch it in one of ggml's own types, or run it with the program that it was made for"
    if isinstance(failed, FileNotFoundError):
        return "name a file that is there, or hf://OWNER/REPO/FILE of a hub"
    return _AGAIN


def read(path: Path, where: str = "MODEL") -> Model:
    """Return the model of a GGUF file, with all its parts where it is one of several.

    Raises ModelError, begun by `where`, for a file that is cut off or damaged, a part that is missing, and a file that
    is not a model.
    """
    try:
        heads = _heads(path, where)
        return _model(path, heads, where)
    except ModelError:
        raise
    except (OSError, ValueError, ArithmeticError, MemoryError) as failed:
        text = failed.strerror or str(failed) if isinstance(failed, OSError) else str(failed)
        raise error(f"{where}: cannot read {path}: {text}", _WHOLE, _fix(failed)) from None


def unknown_architecture(architecture: str) -> str:
    """Return that llama.cpp may not know an architecture, by the names in its package gguf; empty where it does.

    Without the package nothing is reported.
    """
    try:
        from importlib.metadata import version

        from gguf.constants import MODEL_ARCH_NAMES
    except ModuleNotFoundError:
        return ""
    if architecture in MODEL_ARCH_NAMES.values():
        return ""
    return f"gguf {version('gguf')} does not name the architecture {architecture}: llama.cpp may refuse the file"


def parts(path: Path) -> tuple[Path, ...]:
    """Return the files of the model that a file is a part of, by their names; the file itself for a whole one."""
    named = _PART.fullmatch(path.name)
    if named is None:
        return (path,)
    count = min(int(named["count"]), _MOST_PARTS)
    return tuple(path.with_name(f"{named['stem']}-{no:05d}-of-{named['count']}.gguf") for no in range(1, count + 1))


def _heads(path: Path, where: str) -> list[Head]:
    files = parts(path)
    first = read_head(path)  # the file that was named: its mistake comes first
    count = first.fields.get("split.count")
    count = count if isinstance(count, int) and count > 1 else 1
    if count > 1 and len(files) == 1:
        raise error(
            f"{where}: {path.name} is one of {count} parts, and its name does not say which",
            f"names as llama.cpp gives them: NAME-00001-of-{count:05d}.gguf, all in one folder",
        )
    if missing := [file.name for file in files if not file.is_file()]:
        raise error(
            f"{where}: {path.name} is one of {len(files)} parts, and there is no {', '.join(missing[:3])} next to it"
            + (f" ({len(missing)} are missing)" if len(missing) > 3 else ""),
            f"all {len(files)} parts in {path.parent}",
            "fetch the missing ones",
        )
    heads = [first if file == path else _part(file, where) for file in files]
    for file, head in zip(files, heads, strict=True):
        if len(files) > 1 and head.fields.get("split.count", len(files)) != len(files):
            said = head.fields["split.count"]
            raise error(
                f"{where}: {file.name} says that there are {said} parts, and its name that there are {len(files)}",
                "parts of one model",
                _AGAIN,
            )
    return heads


def _part(file: Path, where: str) -> Head:
    try:
        return read_head(file)
    except (OSError, ValueError) as failed:
        raise error(f"{where}: cannot read {file}: {failed}", "every part whole", _fix(failed)) from None


@dataclass(frozen=True, slots=True)
class _Fields:
    """Metadata of an architecture, checked as they are asked for."""

    values: Mapping[str, Any]
    architecture: str

    def get(self, key: str) -> Any:
        return self.values.get(f"{self.architecture}.{key}")

    def number(self, key: str, default: int | None = None) -> int:
        """Return a whole number, the largest of an array. Raises ValueError where there is none, and no default."""
        value = self.get(key)
        if isinstance(value, list):
            value = max((item for item in value if _is_number(item)), default=None)
        if value is None and default is not None:
            return default
        if value is None:
            raise ValueError(f"it has no {self.architecture}.{key}")
        if not _is_number(value) or not 0 <= value <= MOST_NUMBER:
            raise ValueError(f"{self.architecture}.{key}: {value!r} is not valid")
        return int(value)

    def each(self, key: str, layers: int, default: int) -> list[int]:
        """Return the number of every layer. Raises ValueError for an array of another length."""
        value = self.get(key)
        if not isinstance(value, list):
            return [self.number(key, default)] * layers
        if len(value) < layers or not all(_is_number(item) and 0 <= item <= MOST_NUMBER for item in value):
            raise ValueError(f"{self.architecture}.{key} has {len(value)} numbers for {layers} layers")
        return [int(item) for item in value[:layers]]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _model(path: Path, heads: Sequence[Head], where: str) -> Model:
    values = next((head.fields for head in heads if "general.architecture" in head.fields), heads[0].fields)
    architecture, kind = values.get("general.architecture"), values.get("general.type")
    if not isinstance(architecture, str):
        raise ValueError("it has no general.architecture")
    kind = "mmproj" if architecture == "clip" else kind
    if kind in _NOT_MODELS:
        raise error(
            f"{where}: {path.name} is not a model: it is {_NOT_MODELS[kind]}",
            "the .gguf file of the model itself",
            "name that; this file goes next to it" if kind in ("mmproj", "adapter") else "",
        )
    fields = _Fields(values, architecture)
    count = fields.number("block_count")
    if count > _MOST_LAYERS:
        raise ValueError(f"{architecture}.block_count: {count} is not valid")
    hidden, heads_of = fields.number("embedding_length"), fields.each("attention.head_count", count, 0)
    tensors = [tensor for head in heads for tensor in head.tensors]
    names = {tensor.name: tensor for tensor in tensors}
    embedding = names.get("token_embd.weight")
    if embedding is None:
        raise ValueError("it has no tensor token_embd.weight")
    if not hidden or not count:
        raise ValueError("it has no layers")
    most = max(heads_of, default=0)
    head_dim = fields.number("attention.key_length", hidden // most if most else 0)
    layers = _layers(fields, count, heads_of, head_dim)
    model = Model(
        path.name,
        architecture,
        hidden,
        fields.number("expert_feed_forward_length", 0) or fields.number("feed_forward_length", 0),
        most,
        max((layer.kv_heads for layer in layers if layer.kind in ("full", "sliding")), default=0),
        head_dim,
        embedding.parameters // hidden,
        fields.number("context_length", 4096),
        architecture in _TIED or "output.weight" not in names,
        layers,
        rope=_rope(fields, names),
        experts=fields.number("expert_count", 0),
        experts_active=fields.number("expert_used_count", 0),
        facts="file",
        tokenizer=isinstance(values.get("tokenizer.ggml.model"), str),
        template="tokenizer.chat_template" in values,
    )
    counted = weighed(model, tensors, "file", "file")
    name, quantised = stored_format(counted.types)
    notes = tuple(_notes(heads, tensors, model))
    return replace(counted, format=name, quantised=quantised, files=len(heads), notes=notes)


def _notes(heads: Sequence[Head], tensors: Sequence[Tensor], model: Model) -> list[str]:
    notes = []
    claimed = heads[0].fields.get("split.tensors.count")
    if len(heads) > 1 and isinstance(claimed, int) and claimed != len(tensors):
        notes.append(f"the first part says {claimed} tensors, and the {len(heads)} parts hold {len(tensors)}")
    if any(layer.state is None for layer in model.layers):
        notes.append("the state of its recurrent layers is not known: it is not counted")
    return notes


def _rope(fields: _Fields, names: Collection[str]) -> Rope:
    def number(key: str) -> float | None:
        value = fields.get(key)
        return float(value) if isinstance(value, int | float) and 0 < value < 1e12 else None

    kind = "longrope" if "rope_factors_long.weight" in names else fields.get("rope.scaling.type")
    original = number("rope.scaling.original_context_length")
    return Rope(
        kind if isinstance(kind, str) and kind != "none" else "default",
        number("rope.scaling.factor") or 1.0,
        int(original) if original else None,
        number("rope.freq_base") or 10000.0,
    )


def _layers(fields: _Fields, count: int, heads: Sequence[int], head_dim: int) -> tuple[Layer, ...]:
    """Return the layers: key-value heads and windows may differ from one to the next; without heads it has a state."""
    kv_heads = fields.each("attention.head_count_kv", count, max(heads, default=0))
    values = fields.number("attention.value_length", head_dim)
    latent, rotary = fields.number("attention.kv_lora_rank", 0), fields.number("rope.dimension_count", 0)
    window = fields.number("attention.sliding_window", 0)
    sliding = _sliding(fields, count) if window else [False] * count
    recurrent = fields.get("ssm.state_size") is not None or fields.get("shortconv.l_cache") is not None
    state = _state(fields) if recurrent else 0
    layers = []
    for number in range(count):
        cached = kv_heads[number] * (head_dim + values)
        kind: Kind = "sliding" if sliding[number] else "full"
        if latent:
            layers.append(Layer("latent", latent + rotary))
        elif not cached:
            layers.append(Layer("recurrent", state=state) if recurrent else Layer("none"))
        else:
            layers.append(Layer(kind, cached, window if sliding[number] else None, 0, kv_heads[number]))
    return tuple(layers)


def _sliding(fields: _Fields, count: int) -> list[bool]:
    pattern = fields.get("attention.sliding_window_pattern")
    if isinstance(pattern, list) and len(pattern) >= count:
        return [bool(item) for item in pattern[:count]]
    period = pattern if _is_number(pattern) and 0 < pattern < 1000 else _PERIODS.get(fields.architecture, 1)
    return [(number + 1) % period != 0 for number in range(count)]


def _state(fields: _Fields) -> int | None:
    """Return the numbers of a recurrent layer: the state of Mamba with its convolution, or that of a short one."""
    if fields.get("shortconv.l_cache") is not None:
        return fields.number("embedding_length") * max(0, fields.number("shortconv.l_cache") - 1)
    inner = fields.number("ssm.inner_size", 0)
    if not inner:
        return None
    return inner * (fields.number("ssm.state_size", 0) + max(0, fields.number("ssm.conv_kernel", 1) - 1))
