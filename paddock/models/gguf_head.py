"""Heads of GGUF files: metadata and the table of tensors, read with a bound on time and memory.

The format is github.com/ggml-org/ggml/blob/master/docs/gguf.md: magic, version, counts, metadata, tensors, and from
the next multiple of the alignment on the weights, of which nothing is read. Arrays are read by skipping them, but for
short ones of numbers: those that differ from layer to layer.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field as default
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from paddock.models.ggml_types import GGML_TYPES
from paddock.models.tensors import Tensor

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MOST_FIELDS, _MOST_TENSORS, _MOST_TEXTS = 65_536, 262_144, 4_000_000
"""Bounds well above any model's: a vocabulary has some 260,000 texts, and a merge list as many."""
_KEPT_TEXT, _KEPT_NUMBERS, _LONGEST_NAME = 65_536, 8192, 65_535
MOST_NUMBER = 2**40
"""Above any size, and any number of weights of one tensor."""
_LEAST_FIELD, _LEAST_TENSOR = 8 + 4 + 1, 8 + 4 + 4 + 8
"""Bytes of the shortest field and of the shortest tensor."""


class OtherKind(ValueError):
    """A file that is whole, and of a kind that is not read."""


class Place(NamedTuple):
    """A tensor in its file: sizes with that of a row first, number of its ggml type, bytes from the first weight on."""

    name: str
    sizes: tuple[int, ...]
    type: int
    offset: int


@dataclass(slots=True)
class Head:
    """Head of a file: all that comes before the weights, which begin at byte `start`.

    `spans` are the bytes of each field, from its name to the end of its value.
    """

    fields: dict[str, Any]
    tensors: list[Tensor]
    places: list[Place] = default(default_factory=list)
    spans: dict[str, tuple[int, int]] = default(default_factory=dict)
    start: int = 0


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


def read_head(path: Path) -> Head:
    """Return the head of a file. Raises OSError, and ValueError for one that is cut off, damaged or of another kind."""
    size = path.stat().st_size
    with path.open("rb") as file:
        reader = _Reader(file, size)
        if reader.take(4, "its first four bytes") != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        version = reader.number("<I", "its version")
        if version not in _VERSIONS:
            if int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS:
                raise OtherKind("its numbers are big-endian, for another architecture")
            raise OtherKind(f"it is of version {version}, and versions 2 and 3 are read")
        tensors, fields = reader.number("<Q", "its counts"), reader.number("<Q", "its counts")
        for count, least, most, what in (
            (fields, _LEAST_FIELD, _MOST_FIELDS, "fields"), (tensors, _LEAST_TENSOR, _MOST_TENSORS, "tensors"),
        ):  # fmt: skip
            if count > most or count * least > size - reader.at:
                raise ValueError(f"it claims {count} {what}, more than a file of {size} bytes can have")
        head = Head({}, [])
        for _ in range(fields):
            begin = reader.at
            key = reader.text("a field's name", _LONGEST_NAME) or ""
            head.fields[key] = reader.value(reader.number("<I", key or "a field"), key)
            head.spans[key] = begin, reader.at
        ends = [_tensor(reader, head) for _ in range(tensors)]
        alignment = head.fields.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 2**20:
            raise ValueError(f"general.alignment: {alignment} is not valid")
        head.start = -(-reader.at // alignment) * alignment
        if ends and (lacking := head.start + max(ends) - size) > 0:
            raise ValueError(f"it is cut off: its tensors end {lacking} bytes behind its end")
        return head


def _tensor(reader: _Reader, head: Head) -> int:
    """Read a line of the table, and return where its weights end, from the first weight on."""
    name = reader.text("the name of a tensor", _LONGEST_NAME) or ""
    count = reader.number("<I", name)
    if not 0 < count <= 8:
        raise ValueError(f"the tensor {name} has {count} dimensions")
    sizes = struct.unpack(f"<{count}Q", reader.take(8 * count, name))
    number, offset = reader.number("<I", name), reader.number("<Q", name)
    known = GGML_TYPES.get(number)
    if known is None:
        raise OtherKind(f"the tensor {name} is of the type {number}, which ggml does not have: a fork's own")
    weights = 1
    for size in sizes:
        weights *= size
    if weights > MOST_NUMBER or offset > 2**62:
        raise ValueError(f"the tensor {name} claims {weights} weights")
    if sizes[0] % known.block:
        raise ValueError(f"the tensor {name} has rows of {sizes[0]}, which blocks of {known.name} do not fill")
    size = weights // known.block * known.bytes
    head.tensors.append(Tensor(name, weights, size, known.name, count > 1))
    head.places.append(Place(name, sizes, number, offset))
    return int(offset + size)


ALIGNMENT = 32
"""Of the weights in files that are written here."""


def field(name: str, value: Any) -> bytes:
    """Return a field as a file has it: texts, booleans, numbers of 32 bits, and lists of texts or of signed numbers."""
    match value:
        case str():
            typed = struct.pack("<I", _STRING) + _text(value)
        case bool():
            typed = struct.pack("<I?", 7, value)
        case int():
            typed = struct.pack("<II", 4, value)
        case float():
            typed = struct.pack("<If", 6, value)
        case [] | [str(), *_]:
            typed = struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_text, value))
        case _:
            typed = struct.pack(f"<IIQ{len(value)}i", _ARRAY, 5, len(value), *value)
    return _text(name) + typed


def written(fields: Sequence[bytes], tensors: Sequence[tuple[str, tuple[int, ...], int, int]]) -> bytes:
    """Return all that comes before the weights. A tensor is its name, sizes, number of its type, and bytes."""
    parts = [_MAGIC, struct.pack("<IQQ", 3, len(tensors), len(fields)), *fields]
    offset = 0
    for name, sizes, kind, size in tensors:
        parts.append(_text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset))
        offset += size + -size % ALIGNMENT
    head = b"".join(parts)
    return head + bytes(-len(head) % ALIGNMENT)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded
