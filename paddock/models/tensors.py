"""Tensors of a model by name: which layer, expert, embedding or head each belongs to, no matter who listed them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from paddock.models.model import Model, Weights

_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blk|blocks)\.(\d{1,5})\.")
_TOWER = re.compile(r"(?:^|[._])(?:vision|visual|vit|audio|speech|image|img|mm|projector|connector|mtp)(?:[._]|$)")
_EXPERT = re.compile(r"(?:^|\.)experts\.|_(?:ch)?exps\.|block_sparse_moe\.(?:input|output)_linear\.")
_EMBEDDING = frozenset(
    ("embed_tokens", "wte", "token_embd", "word_embeddings", "embed_in", "embeddings", "tok_embeddings", "wpe",
     "embed_tokens_per_layer", "per_layer_token_embd", "embedding", "embed_positions")
)  # fmt: skip
_HEADS = frozenset(("lm_head", "embed_out"))
_PLAIN_TYPES = frozenset(("F32", "F16", "BF16", "F64"))


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of weights. `bytes` are those in the file, with `type` as the file names it."""

    name: str
    parameters: int
    bytes: int
    type: str
    matrix: bool = True

    @property
    def is_expert(self) -> bool:
        return bool(_EXPERT.search(self.name))


def module(name: str) -> str:
    """Return the last but one word of a tensor's name: that of its module."""
    return name.rpartition(".")[0].rpartition(".")[2]


def layer_number(name: str) -> int | None:
    """Return the number of the layer of text that a tensor belongs to; None where it is in none."""
    found = _LAYER.search(name)
    return None if found is None or _TOWER.search(name[: found.start()]) else int(found[1])


def weighed(model: Model, tensors: Iterable[Tensor], source: str, weight_source: str) -> Model:
    """Return the model with the weights of its tensors, each counted in its part."""
    layers = [Weights() for _ in model.layers]
    embedding = head = rest = Weights()
    types: Counter[str] = Counter()
    for tensor in tensors:
        used = tensor.parameters
        if model.experts and tensor.is_expert:
            used = used * model.experts_active // model.experts
        part = Weights(tensor.parameters, used, tensor.bytes)
        types[tensor.type] += tensor.parameters
        number = layer_number(tensor.name)
        if number is not None and number < len(layers):
            layers[number] += part
        elif number is not None or _TOWER.search(tensor.name):
            rest += part
        elif _is_head(tensor.name):
            head += part
        elif module(tensor.name) in _EMBEDDING:
            embedding += part
        else:
            rest += part
    tied = model.tied or not head.parameters
    if tied:  # a file may hold the head next to the embedding that it is
        head = Weights()
    return replace(
        model,
        layers=tuple(replace(layer, weights=weights) for layer, weights in zip(model.layers, layers, strict=True)),
        embedding=embedding,
        head=head,
        rest=rest,
        tied=tied,
        types=tuple((name, count) for name, count in types.most_common() if count),
        source=source,
        weight_source=weight_source,
    )


def _is_head(name: str) -> bool:
    return module(name) in _HEADS or name in ("output.weight", "output.bias")


def stored_format(types: Iterable[tuple[str, int]]) -> tuple[str, bool]:
    """Return the format of most weights, said as mixed where another one has a tenth, and whether it is quantised."""
    counted = sorted(types, key=lambda item: -item[1])
    packed = [item for item in counted if item[0] not in _PLAIN_TYPES]
    total = sum(count for _, count in counted)
    if not packed or sum(count for _, count in packed) * 10 < total:
        first = next((name for name, _ in counted), "BF16")
        return {"F32": "fp32", "F16": "fp16", "BF16": "bf16", "F64": "fp64"}.get(first, first), False
    names = [name for name, count in packed if count * 10 >= total] or [packed[0][0]]
    return (names[0] if len(names) == 1 else f"mixed ({', '.join(names)})"), True
