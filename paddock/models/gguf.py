"""GGUF files: metadata and the table of tensors of every part, read with a bound on time and memory.

The format is github.com/ggml-org/ggml/blob/master/docs/gguf.md: magic, version, counts, metadata, tensors, and from
the next multiple of the alignment on the weights, of which nothing is read. Arrays are read by skipping them, but for
short ones of numbers: those that differ from layer to layer.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from paddock.models.errors import ModelError, error
from paddock.models.ggml_types import GGML_TYPES
from paddock.models.model import Kind, Layer, Model, Rope
from paddock.models.tensors import Tensor, stored_format, weighed

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_WHOLE = "one whole .gguf file of a language model"
_AGAIN = "fetch it again, and compare its size and checksum with those of where it came from"
_PART = re.compile(r"(?P<stem>.+)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf")
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MOST_FIELDS, _MOST_TENSORS, _MOST_TEXTS = 65_536, 262_144, 4_000_000
"""Bounds well above any model's: a vocabulary has some 260,000 texts, and a merge list as many."""
_KEPT_TEXT, _KEPT_NUMBERS, _LONGEST_NAME = 65_536, 8192, 65_535
_MOST_PARTS = 1000
_MOST_LAYERS, _MOST_NUMBER = 10_000, 2**40
_LEAST_FIELD, _LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8
"""Bytes of the shortest field and of the shortest tensor."""
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


class _OtherKind(ValueError):
    """A file that is whole, and of a kind that is not read."""


def _fix(failed: Exception) -> str:
    if isinstance(failed, _OtherKind):
        return "fetch it in one of ggml's own types, or run it with the program that it was made for"
    return _AGAIN


@dataclass(slots=True)
class _Head:
    """Head of a file: all that stands before the weights."""

    version: int
    fields: dict[str, Any]
    tensors: list[Tensor]
    types: Counter[str] = field(default_factory=Counter)


class _Reader:
    """Numbers and texts of a file, none beyond its end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self.size, self.at, self.texts = file, size, 0, 0

    def take(self, count: int, what: str) -> bytes:
        if count > self.size - self.at:
            raise ValueError(f"it ends within {what}")
        data = self._file.read(count)
        if len(data) != count:
            raise ValueError(f"it ends within {what}")
        self.at += count
        return data

    def skip(self, count: int, what: str) -> None:
        if count > self.size - self.at:
            raise ValueError(f"it ends within {what}, which claims {count} bytes")
        self.at += count
        self._file.seek(self.at)

    def number(self, form: str, what: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form), what))[0]

    def text(self, what: str, most: int) -> str | None:
        """Return a text; None for one that is longer than `most`, which is skipped."""
        length = self.number("<Q", what)
        if length > most:
            self.skip(length, what)
            return None
        return self.take(length, what).decode("utf-8", "replace")

    def value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self.text(key, _KEPT_TEXT)
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            raise ValueError(f"{key} is of the type {kind}, which GGUF does not have")
        return self.number(_SCALARS[kind], key)

    def _array(self, key: str) -> Any:
        kind, count = self.number("<I", key), self.number("<Q", key)
        if kind == _STRING:
            self.texts += count
            if count * 8 > self.size - self.at or self.texts > _MOST_TEXTS:
                raise ValueError(f"{key} claims {count} texts, more than the file can hold")
            for _ in range(count):
                self.text(key, 4096)
            return None
        if kind not in _SCALARS:
            raise ValueError(f"{key} is an array of the type {kind}, which has no fixed size")
        width = struct.calcsize(_SCALARS[kind])
        if count > _KEPT_NUMBERS:
            self.skip(count * width, key)
            return None
        data = self.take(count * width, key)
        return [number for (number,) in struct.iter_unpack(_SCALARS[kind], data)]


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


def metadata(path: Path) -> Mapping[str, Any]:
    """Return the metadata of one file: numbers, short texts, and None for each array of texts. Raises ModelError."""
    try:
        return _head(path).fields
    except (OSError, ValueError) as failed:
        raise error(f"cannot read {path}: {failed}", _WHOLE, _AGAIN) from None


def parts(path: Path) -> tuple[Path, ...]:
    """Return the files of the model that a file is a part of, by their names; the file itself for a whole one."""
    named = _PART.fullmatch(path.name)
    if named is None:
        return (path,)
    count = min(int(named["count"]), _MOST_PARTS)
    return tuple(path.with_name(f"{named['stem']}-{no:05d}-of-{named['count']}.gguf") for no in range(1, count + 1))


def _heads(path: Path, where: str) -> list[_Head]:
    files = parts(path)
    first = _head(path)  # the file that was named: its mistake comes first
    count = first.fields.get("split.count")
    count = count if isinstance(count, int) and count > 1 else 1
    if count > 1 and len(files) == 1:
        raise error(
            f"{where}: {path.name} is one of {count} parts, and its name does not say which",
            f"names as llama.cpp gives them: NAME-00001-of-{count:05d}.gguf, all in one folder",
        )
    if missing := [file.name for file in files if not file.is_file()]:
        raise error(
            f"{where}: {path.name} is one of {len(files)} parts, and there is no {', '.join(missing[:3])} beside it"
            + (f" ({len(missing)} are missing)" if len(missing) > 3 else ""),
            f"all {len(files)} parts in {path.parent}",
            "fetch the missing ones",
        )
    heads = [first if file == path else _head_of(file, where) for file in files]
    for file, head in zip(files, heads, strict=True):
        if len(files) > 1 and head.fields.get("split.count", len(files)) != len(files):
            said = head.fields["split.count"]
            raise error(
                f"{where}: {file.name} says that there are {said} parts, and its name that there are {len(files)}",
                "parts of one model",
                _AGAIN,
            )
    return heads


def _head_of(file: Path, where: str) -> _Head:
    try:
        return _head(file)
    except (OSError, ValueError) as failed:
        raise error(f"{where}: cannot read {file}: {failed}", "every part whole", _fix(failed)) from None


def _head(path: Path) -> _Head:
    size = path.stat().st_size
    with path.open("rb") as file:
        reader = _Reader(file, size)
        if reader.take(4, "its first four bytes") != MAGIC:
            raise ValueError("it does not begin with GGUF")
        version = reader.number("<I", "its version")
        if version not in _VERSIONS:
            if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
                raise _OtherKind("its numbers are big-endian, for other processors")
            raise _OtherKind(f"it is of version {version}, and versions 2 and 3 are read")
        tensors, fields = reader.number("<Q", "its counts"), reader.number("<Q", "its counts")
        for count, least, most, what in (
            (fields, _LEAST_FIELD, _MOST_FIELDS, "fields"), (tensors, _LEAST_TENSOR, _MOST_TENSORS, "tensors"),
        ):  # fmt: skip
            if count > most or count * least > size - reader.at:
                raise ValueError(f"it claims {count} {what}, more than a file of {size} bytes can have")
        head = _Head(version, {}, [])
        for _ in range(fields):
            key = reader.text("a field's name", _LONGEST_NAME) or ""
            head.fields[key] = reader.value(reader.number("<I", key or "a field"), key)
        ends = [_tensor(reader, head) for _ in range(tensors)]
        alignment = head.fields.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 2**20:
            raise ValueError(f"general.alignment: {alignment} makes no sense")
        start = -(-reader.at // alignment) * alignment
        if ends and (lacking := start + max(ends) - size) > 0:
            raise ValueError(f"it is cut off: its tensors end {lacking} bytes behind its end")
        return head


def _tensor(reader: _Reader, head: _Head) -> int:
    """Read a line of the table, and return where its weights end, from the first weight on."""
    name = reader.text("the name of a tensor", _LONGEST_NAME) or ""
    count = reader.number("<I", name)
    if not 0 < count <= 8:
        raise ValueError(f"the tensor {name} has {count} dimensions")
    sizes = struct.unpack(f"<{count}Q", reader.take(8 * count, name))
    number, offset = reader.number("<I", name), reader.number("<Q", name)
    known = GGML_TYPES.get(number)
    if known is None:
        raise _OtherKind(f"the tensor {name} is of the type {number}, which ggml does not have: a fork's own")
    weights = 1
    for size in sizes:
        weights *= size
    if weights > _MOST_NUMBER or offset > 2**62:
        raise ValueError(f"the tensor {name} claims {weights} weights")
    if sizes[0] % known.block:
        raise ValueError(f"the tensor {name} has rows of {sizes[0]}, which blocks of {known.name} do not fill")
    size = weights // known.block * known.bytes
    head.tensors.append(Tensor(name, weights, size, known.name, count > 1))
    return int(offset + size)


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
        if not _is_number(value) or not 0 <= value <= _MOST_NUMBER:
            raise ValueError(f"{self.architecture}.{key}: {value!r} makes no sense")
        return int(value)

    def each(self, key: str, layers: int, default: int) -> list[int]:
        """Return the number of every layer. Raises ValueError for an array of another length."""
        value = self.get(key)
        if not isinstance(value, list):
            return [self.number(key, default)] * layers
        if len(value) < layers or not all(_is_number(item) and 0 <= item <= _MOST_NUMBER for item in value):
            raise ValueError(f"{self.architecture}.{key} has {len(value)} numbers for {layers} layers")
        return [int(item) for item in value[:layers]]


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _model(path: Path, heads: Sequence[_Head], where: str) -> Model:
    values = next((head.fields for head in heads if "general.architecture" in head.fields), heads[0].fields)
    architecture, kind = values.get("general.architecture"), values.get("general.type")
    if not isinstance(architecture, str):
        raise ValueError("it has no general.architecture")
    kind = "mmproj" if architecture == "clip" else kind
    if kind in _NOT_MODELS:
        raise error(
            f"{where}: {path.name} is not a model: it is {_NOT_MODELS[kind]}",
            "the .gguf file of the model itself",
            "name that; this file goes beside it" if kind in ("mmproj", "adapter") else "",
        )
    fields = _Fields(values, architecture)
    count = fields.number("block_count")
    if count > _MOST_LAYERS:
        raise ValueError(f"{architecture}.block_count: {count} makes no sense")
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
        rope=_rope(fields),
        experts=fields.number("expert_count", 0),
        experts_active=fields.number("expert_used_count", 0),
        facts="file",
    )
    counted = weighed(model, tensors, "file", "file")
    name, quantised = stored_format(counted.types)
    notes = tuple(_notes(heads, tensors, model))
    return replace(counted, format=name, quantised=quantised, files=len(heads), notes=notes)


def _notes(heads: Sequence[_Head], tensors: Sequence[Tensor], model: Model) -> list[str]:
    notes = []
    claimed = heads[0].fields.get("split.tensors.count")
    if len(heads) > 1 and isinstance(claimed, int) and claimed != len(tensors):
        notes.append(f"the first part says {claimed} tensors, and the {len(heads)} parts hold {len(tensors)}")
    if any(layer.state is None for layer in model.layers):
        notes.append("the state of its recurrent layers is not known: it is not counted")
    return notes


def _rope(fields: _Fields) -> Rope:
    def number(key: str) -> float | None:
        value = fields.get(key)
        return float(value) if isinstance(value, int | float) and 0 < value < 1e12 else None

    kind = fields.get("rope.scaling.type")
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
