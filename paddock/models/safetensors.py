"""Safetensors: the table of tensors in the header of every shard, checked against the index and the files' sizes.

The format is github.com/huggingface/safetensors: the header's length in 8 bytes, little-endian, the header in JSON,
then the weights, of which nothing is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddock.models.errors import error
from paddock.models.formats import SAFETENSORS_BITS, Quantisation
from paddock.models.tensors import Tensor

_LONGEST_HEADER = 32 * 2**20
"""Bytes; the largest known is a tenth of it, and the format's own limit is 100 MB."""
_LONGEST_INDEX = 64 * 2**20
_INDEX = "*.safetensors.index.json"
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<no>\d{5})-of-(?P<count>\d{5})\.safetensors")
_AGAIN = "fetch it again, and compare its size and checksum with those of where it came from"
_MOST_WEIGHTS = 2**50
_BESIDE = re.compile(
    r"\.(?:qzeros|scales?|g_idx|zeros?|weight_scale(?:_inv|_2)?|weight_zero_point|weight_shape|weight_global_scale"
    r"|weight_g_idx|input_scale|input_global_scale|output_scale|[kvq]_scale|absmax|quant_map|nested_absmax"
    r"|nested_quant_map|SCB|weight_format|activation_scale|scb|wscales|smooth)$|_scales$|\.quant_state\."
    r"|\.weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map)$|_scale(?:_inv)?$"
)
"""Scales and zeros of packed weights, which are bytes, and not parameters."""
_BUFFER = re.compile(r"(?:\.inv_freq|\.masked_bias|\.rotary_emb\..*|\.position_ids)$")
_Entry = tuple[str, tuple[int, ...], int]
"""Dtype, sizes and bytes of a tensor."""


def has_weights(folder: Path) -> bool:
    """Return whether a folder has weights in safetensors, or an index of such."""
    return any(folder.glob("*.safetensors")) or any(folder.glob(_INDEX))


def read(folder: Path, quantisation: Quantisation | None, where: str = "MODEL") -> tuple[tuple[Tensor, ...], int]:
    """Return the tensors of a checkpoint, each with its parameters however it is packed, and the number of its files.

    Raises ModelError, begun by `where`, for a shard that is missing, cut off or differs from the index.
    """
    files = _files(folder, where)
    entries: dict[str, _Entry] = {}
    for name, listed in files.items():
        file = folder / name
        try:
            head = _header(file)
        except (OSError, ValueError, RecursionError, MemoryError) as failed:
            text = (
                failed.strerror or str(failed)
                if isinstance(failed, OSError)
                else str(failed) or "it is nested too deep"
            )
            raise error(f"{where}: cannot read {file}: {text}", "whole .safetensors files", _AGAIN) from None
        if absent := sorted(listed - head.keys()):
            raise error(
                f"{where}: the index says that {name} holds {absent[0]}, and it does not"
                + (f" ({len(absent)} tensors are absent)" if len(absent) > 1 else ""),
                "an index and shards of one checkpoint",
                _AGAIN,
            )
        entries |= {key: head[key] for key in listed} if listed else head
    return tuple(_tensors(entries, quantisation)), len(files)


def _files(folder: Path, where: str) -> dict[str, set[str]]:
    """Return the shards by name, each with the tensors that the index says it holds; none without an index."""
    indexes = {index.name: _index(index, where) for index in sorted(folder.glob(_INDEX))}
    names = sorted(file.name for file in folder.glob("*.safetensors"))
    if indexes:
        first, *others = indexes
        if different := [other for other in others if indexes[other] != indexes[first]]:
            raise error(
                f"{where}: {folder} has two indexes that differ: {first} and {different[0]}",
                "the index of one checkpoint",
                "keep the one whose weights are to be used",
            )
        shards: dict[str, set[str]] = {}
        for tensor, shard in indexes[first].items():
            shards.setdefault(shard, set()).add(tensor)
        _check_there(folder, sorted(shards), first, where)
        return shards
    numbered = [match for name in names if (match := _NUMBERED.fullmatch(name))]
    if numbered:
        stems = {(match["stem"], match["count"]) for match in numbered}
        if len(stems) > 1:
            raise error(
                f"{where}: {folder} has shards of several checkpoints and no index", "model.safetensors.index.json"
            )
        ((stem, count),) = stems
        expected = [f"{stem}-{number:05d}-of-{count}.safetensors" for number in range(1, min(int(count), 9999) + 1)]
        _check_there(folder, expected, "their names", where)
        return {name: set() for name in expected}
    if "model.safetensors" in names:
        return {"model.safetensors": set()}
    if len(names) == 1:
        return {names[0]: set()}
    raise error(
        f"{where}: {folder} has {', '.join(names[:3])}, and no index that says which make the model",
        "model.safetensors, or model.safetensors.index.json with its shards",
        _AGAIN,
    )


def _check_there(folder: Path, shards: list[str], source: str, where: str) -> None:
    missing = [name for name in shards if not (folder / name).is_file()]
    if missing:
        raise error(
            f"{where}: {folder} lacks {len(missing)} of {len(shards)} shards, by {source}: {', '.join(missing[:3])}"
            + (" ..." if len(missing) > 3 else ""),
            "every shard",
            "fetch the missing ones",
        )


def _index(file: Path, where: str) -> dict[str, str]:
    try:
        if file.stat().st_size > _LONGEST_INDEX:
            raise ValueError("it is longer than any index")
        document = json.loads(file.read_bytes())
        shards = document["weight_map"]
        if not isinstance(shards, dict) or not shards:
            raise ValueError("weight_map names no tensors")
        for tensor, shard in shards.items():
            if not isinstance(shard, str) or "/" in shard or "\\" in shard or "\0" in shard or not shard:
                raise ValueError(f"weight_map: {tensor} is in {shard!r}, which is not a file's name")
        return shards
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as failed:
        text = f"it has no {failed}" if isinstance(failed, KeyError) else str(failed)
        raise error(f"{where}: cannot read {file}: {text}", "an index of shards, with weight_map", _AGAIN) from None


def _header(file: Path) -> dict[str, _Entry]:
    """Return the tensors of a file. Raises ValueError for a header that does not fit the file."""
    size = file.stat().st_size
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        if size < 8:
            raise ValueError(f"it has {size} bytes, too few for a header")
        if length > size - 8:
            raise ValueError(
                f"its header claims {length} bytes, and the file has {size}: it is cut off, or another kind"
            )
        if length > _LONGEST_HEADER:
            raise ValueError(f"its header claims {length} bytes, more than any model's")
        document = json.loads(opened.read(length))
    if not isinstance(document, dict):
        raise ValueError("its header is not a mapping")
    document.pop("__metadata__", None)
    weights = size - 8 - length
    return {name: _entry(name, entry, weights) for name, entry in document.items()}


def _entry(name: str, entry: Any, available: int) -> _Entry:
    if not isinstance(entry, dict):
        raise ValueError(f"the tensor {name} is not described")
    dtype, sizes, offsets = str(entry.get("dtype")), _numbers(entry.get("shape")), _numbers(entry.get("data_offsets"))
    bits = SAFETENSORS_BITS.get(dtype)
    if bits is None:
        raise ValueError(f"the tensor {name} is of the type {dtype[:60]!r}, which safetensors does not have")
    if sizes is None or len(sizes) > 16:
        raise ValueError(f"the tensor {name} has no shape: {str(entry.get('shape'))[:60]}")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"the tensor {name} has no place: {str(entry.get('data_offsets'))[:60]}")
    count = 1
    for number in sizes:
        count *= number
        if count > _MOST_WEIGHTS:
            raise ValueError(f"the tensor {name} claims more than {_MOST_WEIGHTS} weights")
    if offsets[1] - offsets[0] != -(-count * bits // 8):
        raise ValueError(f"the tensor {name} takes {offsets[1] - offsets[0]} bytes, which its shape and type do not")
    if offsets[1] > available:
        raise ValueError(f"it is cut off: {name} ends {offsets[1] - available} bytes behind its end")
    return dtype, tuple(sizes), offsets[1] - offsets[0]


def _numbers(values: Any) -> list[int] | None:
    """Return a list of whole numbers from 0 on; None for anything else."""
    if not isinstance(values, list):
        return None
    fits = all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in values)
    return values if fits else None


def _tensors(entries: Mapping[str, _Entry], quantisation: Quantisation | None) -> Iterator[Tensor]:
    bits = quantisation.packed if quantisation else 4
    for name, (dtype, sizes, size) in entries.items():
        if _BUFFER.search(name) or (name.endswith(".attn.bias") and len(sizes) == 4):
            continue
        count = 1
        for number in sizes:
            count *= number
        packed = _packed(name, dtype, sizes, bits)
        if _BESIDE.search(name) and (quantisation or dtype not in ("BF16", "F16", "F32")):
            count = 0
        yield Tensor(
            name, int(count * packed), size, dtype if packed == 1 else _name(dtype, quantisation), len(sizes) > 1
        )


def _packed(name: str, dtype: str, sizes: tuple[int, ...], bits: int) -> float:
    """Return how many weights an element of a tensor holds."""
    if dtype in ("I32", "U32") and name.endswith((".qweight", ".weight_packed")):
        return 32 / bits
    if dtype == "U8" and name.endswith((".weight_packed", "_blocks", ".weight")) and len(sizes) > 1:
        return 2
    return 1


def _name(dtype: str, quantisation: Quantisation | None) -> str:
    return quantisation.name if quantisation else dtype
