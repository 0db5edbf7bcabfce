"""Checkpoints in safetensors: shards, indexes, packed weights, and damage of every kind."""

from __future__ import annotations

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from paddock.models import sources
from paddock.models.errors import ModelError
from tests.support.explore import examples
from tests.support.model_files import LLAMA, checkpoint, header, llama_tensors

PARAMETERS = 2 * 6400 + 2 * (64 * 64 * 2 + 32 * 64 * 2 + 3 * 64 * 128 + 128) + 64
MIB = 2**20


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as refused:
        sources.checkpoint(folder)
    assert "\n    expected: " in str(refused.value)
    return str(refused.value)


def index(folder: Path, name: str = "model", **shards: str) -> None:
    content = {"metadata": {"total_size": 1}, "weight_map": shards}
    (folder / f"{name}.safetensors.index.json").write_text(json.dumps(content))


def test_the_table_of_a_file_says_its_size(tmp_path: Path) -> None:
    model = sources.checkpoint(checkpoint(tmp_path, model=llama_tensors()))
    assert (model.parameters, model.bytes, model.format) == (PARAMETERS, 2 * PARAMETERS, "bf16")
    assert (model.source, model.weight_source, model.facts) == ("file", "file", "config.json")
    assert model.notes == ()


def test_shards_are_added_up(tmp_path: Path) -> None:
    names = list(llama_tensors())
    halves = [{name: llama_tensors()[name] for name in part} for part in (names[:9], names[9:])]
    checkpoint(tmp_path, model__00001__of__00002=halves[0], model__00002__of__00002=halves[1])
    without = sources.checkpoint(tmp_path)
    index(tmp_path, **{name: f"model-0000{1 + (name in halves[1])}-of-00002.safetensors" for name in names})
    assert sources.checkpoint(tmp_path) == without
    assert (without.parameters, without.files) == (PARAMETERS, 2)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert "lacks 1 of 2 shards" in refusal(tmp_path)
    assert "model-00002-of-00002.safetensors" in refusal(tmp_path)


def test_two_indexes_that_differ_are_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path, model=llama_tensors())
    index(tmp_path, **dict.fromkeys(llama_tensors(), "model.safetensors"))
    index(tmp_path, "model.fp16", **{"lm_head.weight": "model.safetensors"})
    assert "two indexes that differ" in refusal(tmp_path)


@pytest.mark.parametrize("shard", ["../other.safetensors", "", 3, None])
def test_an_index_names_files_of_its_folder(shard: Any, tmp_path: Path) -> None:
    checkpoint(tmp_path, model=llama_tensors())
    index(tmp_path, **{"lm_head.weight": shard})
    assert "which is not a file's name" in refusal(tmp_path)


def test_an_index_and_its_shard_have_to_agree(tmp_path: Path) -> None:
    checkpoint(tmp_path, model=llama_tensors())
    index(tmp_path, **{"model.other.weight": "model.safetensors"})
    assert "the index says that model.safetensors holds model.other.weight" in refusal(tmp_path)


def test_a_head_that_is_the_embedding_counts_once(tmp_path: Path) -> None:
    model = sources.checkpoint(checkpoint(tmp_path, {**LLAMA, "tie_word_embeddings": True}, model=llama_tensors()))
    assert model.parameters == PARAMETERS - 6400


def test_files_that_differ_from_their_configuration_are_believed_and_said(tmp_path: Path) -> None:
    model = sources.checkpoint(checkpoint(tmp_path, {**LLAMA, "intermediate_size": 256}, model=llama_tensors()))
    assert model.parameters == PARAMETERS
    assert "the files are taken as right" in model.notes[0]


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32}
GPTQ = {"quant_method": "gptq", "bits": 8, "group_size": 32}
FP8 = {"quant_method": "fp8"}
COMPRESSED = "compressed-tensors"
PACKED = {"quant_method": COMPRESSED, "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int"}}}}
NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True}


@pytest.mark.parametrize(
    ("quantisation", "name", "packed", "beside", "said"),
    [
        (AWQ, "qweight", ("I32", (64, 16)), {"qzeros": ("I32", (2, 16)), "scales": ("F16", (2, 128))}, "4-bit awq"),
        (GPTQ, "qweight", ("I32", (16, 128)), {"g_idx": ("I32", (64,))}, "8-bit gptq"),
        (
            PACKED,
            "weight_packed",
            ("I32", (128, 8)),
            {"weight_scale": ("BF16", (128, 2))},
            f"4-bit {COMPRESSED}",
        ),
        (NF4, "weight", ("U8", (4096, 1)), {"weight.absmax": ("U8", (128,))}, "4-bit bitsandbytes"),
        (
            {"quant_method": "fp8"},
            "weight",
            ("F8_E4M3", (128, 64)),
            {"weight_scale_inv": ("F32", (1, 1))},
            "fp8",
        ),
    ],
)
def test_packed_weights_count_as_what_they_hold(
    quantisation: dict[str, Any], name: str, packed: Any, beside: dict[str, Any], said: str, tmp_path: Path
) -> None:
    tensors = llama_tensors()
    size = sum(header({"x": tensors[key]})[1] for key in tensors)
    for layer in range(2):
        for module in ("gate_proj", "up_proj"):
            del tensors[f"model.layers.{layer}.mlp.{module}.weight"]
            size -= 64 * 128 * 2
            for key, value in {name: packed, **beside}.items():
                tensors[f"model.layers.{layer}.mlp.{module}.{key}"] = value
                size += header({"x": value})[1]
    model = sources.checkpoint(checkpoint(tmp_path, {**LLAMA, "quantization_config": quantisation}, model=tensors))
    assert (model.parameters, model.bytes) == (PARAMETERS, size)
    assert model.quantised
    assert model.format == said


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "it has 0 bytes"),
        (struct.pack("<Q", 10**10) + b"{}", "its header claims 10000000000 bytes, and the file has 10"),
        (struct.pack("<Q", 4) + b"{]{]", "cannot read"),
        (struct.pack("<Q", 2) + b"[]", "its header is not a mapping"),
        (struct.pack("<Q", 8) + b'{"a": 1}', "the tensor a is not described"),
        (b"<html>not found</html>", "its header claims"),
    ],
)
def test_a_file_that_is_not_one_is_a_sentence(content: bytes, why: str, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(content)
    assert why in refusal(tmp_path)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"dtype": "F3", "shape": [1], "data_offsets": [0, 4]}, "is of the type 'F3'"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "has no shape"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}, "has no place"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "takes 4 bytes, which its shape and type do not"),
        ({"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}, "claims more than"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [8, 12]}, "it is cut off: x ends 8 bytes behind its end"),
    ],
)
def test_an_entry_that_cannot_be_is_a_sentence(entry: dict[str, Any], why: str, tmp_path: Path) -> None:
    checkpoint(tmp_path)
    head = json.dumps({"x": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"\0" * 4)
    assert why in refusal(tmp_path)


def test_a_header_of_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    checkpoint(tmp_path)
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", 10 * 10**9))
        file.truncate(11 * 10**9)
    tracemalloc.start()
    assert "its header claims 10000000000 bytes, more than any model's" in refusal(tmp_path)
    assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    tracemalloc.stop()


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@examples(150, 2000, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_header_is_a_model_or_a_sentence(tmp_path: Path, data: st.DataObject) -> None:
    checkpoint(tmp_path)
    entries = json.loads(header(llama_tensors())[0])
    for name in data.draw(st.lists(st.sampled_from(sorted(entries)), max_size=3)):
        key = data.draw(st.sampled_from(["dtype", "shape", "data_offsets", None]))
        if key is None:
            entries[name] = data.draw(ODD)
        elif isinstance(entries[name], dict):
            entries[name][key] = data.draw(ODD | st.sampled_from(["F32", "I32", "U8", [0, 8192], [64, 64]]))
    head = json.dumps(entries).encode()
    head = head[: data.draw(st.just(len(head)) | st.integers(0, len(head)))]
    length = data.draw(st.just(len(head)) | st.sampled_from([0, 7, 2**40, 2**63]))
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", length) + head + b"\0" * 2 * PARAMETERS)
    try:
        model = sources.checkpoint(tmp_path)
    except ModelError:
        return
    assert model.parameters >= 0
