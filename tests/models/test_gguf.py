"""GGUF files: arrays of each layer, parts, what is not a model, and damage of every kind."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from paddock.models import gguf
from paddock.models.errors import ModelError
from paddock.models.model import Model
from tests.support.explore import examples
from tests.support.model_files import EMBEDDING, decoder, qwen3_30b
from tests.support.model_files import gguf as write

MIB = 2**20


def read(path: Path) -> Model:
    return gguf.read(path)


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as refused:
        gguf.read(path)
    assert "\n    expected: " in str(refused.value)
    return str(refused.value)


def test_a_mixture_of_experts_is_sized_by_all_of_them(tmp_path: Path) -> None:
    model = read(qwen3_30b(tmp_path / "moe.gguf"))
    assert model.parameters == 30_531_911_680
    assert model.active_parameters == pytest.approx(3.35e9, rel=0.01)
    assert (model.bytes, model.format) == (30_531_911_680 // 256 * 144, "Q4_K")
    assert model.step_bytes < model.bytes / 8
    assert (model.experts, model.experts_active, model.source) == (128, 8, "file")


def test_key_value_heads_may_differ_from_layer_to_layer(tmp_path: Path) -> None:
    fields = decoder("deci", attention__head_count_kv=[4, 0, 4, 2], feed_forward_length=[768, 0, 768, 384])
    model = read(write(tmp_path / "deci.gguf", fields, [EMBEDDING]))
    assert [layer.cached for layer in model.layers] == [4 * 64, 0, 4 * 64, 2 * 64]
    assert model.layer_kinds == "4 layers: 3 full, 1 without attention"
    assert model.cache_bytes(100, 2) == 100 * 2 * 10 * 64


def test_layers_of_a_hybrid_keep_a_state(tmp_path: Path) -> None:
    fields = decoder("lfm2", attention__head_count_kv=[0, 0, 4, 0], shortconv__l_cache=3)
    model = read(write(tmp_path / "lfm2.gguf", fields, [EMBEDDING]))
    assert [layer.kind for layer in model.layers] == ["recurrent", "recurrent", "full", "recurrent"]
    assert model.cache_bytes(1000, 1) - model.cache_bytes(1, 1) == 999 * 4 * 64


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        (decoder("gemma2", attention__sliding_window=8), "4 layers: 2 sliding (8 tokens), 2 full"),
        (
            decoder("x", attention__sliding_window=8, attention__sliding_window_pattern=[1, 1, 1, 0]),
            "4 layers: 3 sliding (8 tokens), 1 full",
        ),
        (decoder("phi3", attention__sliding_window=8), "4 layers"),
        (
            decoder("deepseek2", attention__kv_lora_rank=512, rope__dimension_count=64),
            "4 layers: 4 with a latent cache",
        ),
    ],
)
def test_windows_and_latent_caches_are_read(fields: dict[str, object], kinds: str, tmp_path: Path) -> None:
    assert read(write(tmp_path / "m.gguf", fields, [EMBEDDING])).layer_kinds == kinds


def test_two_sets_of_rope_factors_are_longrope(tmp_path: Path) -> None:
    factors = ("rope_factors_long.weight", (48,), "F32")
    assert read(write(tmp_path / "m.gguf", decoder("phi3"), [EMBEDDING, factors])).rope.type == "longrope"
    assert read(write(tmp_path / "m.gguf", decoder("phi3"), [EMBEDDING])).rope.type == "default"


def parts(folder: Path, count: int = 2) -> list[Path]:
    files = []
    for number in range(count):
        own = decoder() if number == 0 else {}
        tensors = [EMBEDDING if number == 0 else ("output.weight", (256, 1000), "F16")]
        tensors += [(f"blk.{number}.attn_q.weight", (256, 256), "F16")]
        fields = {**own, "split.no": number, "split.count": count}
        files.append(write(folder / f"m-{number + 1:05d}-of-{count:05d}.gguf", fields, tensors))
    return files


@pytest.mark.parametrize("named", [0, 1])
def test_any_part_means_all_of_them(named: int, tmp_path: Path) -> None:
    model = read(parts(tmp_path)[named])
    assert (model.parameters, model.tied, model.files) == (2 * 256_000 + 2 * 65_536, False, 2)


def test_a_part_that_is_missing_is_named(tmp_path: Path) -> None:
    first, second = parts(tmp_path)
    second.unlink()
    assert "there is no m-00002-of-00002.gguf next to it" in refusal(first)
    alone = first.rename(tmp_path / "renamed.gguf")
    assert "is one of 2 parts, and its name does not say which" in refusal(alone)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"general.architecture": "clip"}, "is not a model: it is a projector"),
        ({**decoder(), "general.type": "adapter"}, "is not a model: it is an adapter"),
    ],
)
def test_what_is_not_a_model_is_said(fields: dict[str, object], why: str, tmp_path: Path) -> None:
    assert why in refusal(write(tmp_path / "m.gguf", fields, [("v.patch_embd.weight", (64, 64), "F16")]))


def test_a_type_of_a_fork_is_said_by_its_number(tmp_path: Path) -> None:
    message = refusal(write(tmp_path / "m.gguf", decoder(), [EMBEDDING, ("blk.0.attn_q.weight", (256, 256), 36)]))
    assert "blk.0.attn_q.weight is of the type 36" in message
    assert "fetch it again" not in message, "it is whole"


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[:-100_000], "it is cut off: its tensors end 100000 bytes behind its end"),
        (lambda data: data[:200], "it ends within"),
        (lambda data: b"", "it ends within its first four bytes"),
        (lambda data: b"PK\x03\x04" + data[4:], "it does not begin with GGUF"),
        (lambda data: b"GGUF\0\0\0\3" + data[8:], "big-endian"),
        (lambda data: b"GGUF\1\0\0\0" + data[8:], "it is of version 1"),
        (lambda data: data[:8] + struct.pack("<Q", 2**40) + data[16:], "it claims 1099511627776 tensors"),
        (lambda data: data[:16] + struct.pack("<Q", 10**10) + data[24:], "it claims 10000000000 fields"),
    ],
)
def test_damage_is_a_sentence(damage: object, why: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", decoder(), [EMBEDDING])
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]  # of the table above
    assert why in refusal(path)


def test_an_array_is_not_believed_beyond_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", {**decoder(), "tokenizer.ggml.tokens": ["a", "b"]}, [EMBEDDING])
    data = path.read_bytes()
    at = data.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 8
    for count in (10**7, 2**63):
        path.write_bytes(data[:at] + struct.pack("<Q", count) + data[at + 8 :])
        assert f"tokenizer.ggml.tokens claims {count} texts" in refusal(path)


def test_a_hole_of_gigabytes_takes_neither_time_nor_memory(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 200_000, 60_000))
        file.truncate(10 * 2**30)
    tracemalloc.start()
    refusal(path)
    assert tracemalloc.get_traced_memory()[1] < 200 * MIB
    tracemalloc.stop()


NUMBERS = st.sampled_from([0, 1, 2, 3, 8, 9, 12, 255, 2**16, 2**31, 2**32 - 1])


@examples(150, 2000, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_any_damage_is_a_model_or_a_sentence(tmp_path: Path, data: st.DataObject) -> None:
    path = write(
        tmp_path / "m.gguf",
        {**decoder(attention__head_count_kv=[4, 0, 4, 2]), "tokenizer.ggml.tokens": ["a", "bb"]},
        [EMBEDDING, ("blk.0.attn_q.weight", (256, 256), "Q4_K")],
    )
    whole = path.read_bytes()
    head = bytearray(whole[:1000])
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(head) - 5))
        head[at : at + 4] = struct.pack("<I", data.draw(NUMBERS))
    path.write_bytes((bytes(head) + whole[1000:])[: data.draw(st.integers(0, len(whole)) | st.just(len(whole)))])
    try:
        model = gguf.read(path)
    except ModelError:
        return
    assert model.parameters >= 0
    assert model.cache_bytes(10, 2) >= 0


@examples(100, 1500, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_a_model_or_a_sentence(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF\3\0\0\0" + data)
    with pytest.raises(ModelError):
        gguf.read(path)
