"""GGUF files: shape, format and quantisation, read from the file's head."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.bench.engine.shapes import Shape
from paddock.bench.errors import BenchInputError

_PLAIN = frozenset({"F32", "F16", "BF16"})
_DTYPES = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A GGUF file. `quantization_type` is that of most of its weights, such as Q4_K; None without quantisation."""

    shape: Shape
    version: int
    quantization_type: str | None
    types: dict[str, int]
    """Number of tensors of each type."""
    step_bytes: int
    """Bytes of the weights that one decode step reads: all but an embedding that is looked up alone."""

    @property
    def is_quantized(self) -> bool:
        return self.quantization_type is not None

    @property
    def format(self) -> str:
        return f"GGUF v{self.version}"

    @property
    def dtype(self) -> str:
        """The nearest of this benchmark's formats: a name to compare it by, which says nothing of its size."""
        if self.quantization_type is None:
            largest = max(self.types, key=lambda name: (name != "F32", self.types[name]))
            return _DTYPES[largest]
        return "int8" if self.quantization_type.startswith(("Q8", "Q6")) else "int4"


def inspect(path: Path, where: str = "--model") -> GgufModel:
    """Return what a GGUF file says of itself.

    Raises BenchInputError, begun by `where`, for one that is none, or is cut off.
    """
    import gguf

    try:
        reader = gguf.GGUFReader(str(path))
        return _model(path, reader)
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise BenchInputError(
            f"{where}: cannot read {path}: {error}\n    expected: one whole .gguf file of a language model\n"
            "    fix: fetch it again, and compare its size and checksum with those of where it came from"
        ) from None


def _model(path: Path, reader: Any) -> GgufModel:
    def value(key: str, default: Any = None) -> Any:
        field = reader.get_field(key)
        if field is None and default is None:
            raise KeyError(f"it has no {key}")
        return default if field is None else field.contents()

    architecture = value("general.architecture")
    heads = int(value(f"{architecture}.attention.head_count"))
    hidden = int(value(f"{architecture}.embedding_length"))
    weights = [tensor for tensor in reader.tensors if len(tensor.shape) > 1]
    types = Counter(tensor.tensor_type.name for tensor in weights)
    names = {tensor.name for tensor in weights}
    embedding = next(tensor for tensor in weights if tensor.name == "token_embd.weight")
    quantised = Counter({name: count for name, count in types.items() if name not in _PLAIN})
    shape = Shape(
        path.name,
        str(architecture),
        hidden,
        int(value(f"{architecture}.feed_forward_length")),
        int(value(f"{architecture}.block_count")),
        heads,
        int(value(f"{architecture}.attention.head_count_kv", heads)),
        int(value(f"{architecture}.attention.key_length", hidden // heads)),
        int(embedding.shape[1]),
        "output.weight" not in names,
        float(value(f"{architecture}.rope.freq_base", 10000.0)),
        int(value(f"{architecture}.context_length", 4096)),
    )
    most = quantised.most_common(1)[0][0] if quantised else None
    looked_up = 0 if shape.tied else int(embedding.n_bytes)
    read = sum(int(tensor.n_bytes) for tensor in weights) - looked_up
    return GgufModel(shape, int(value("GGUF.version")), most, dict(types), read)
