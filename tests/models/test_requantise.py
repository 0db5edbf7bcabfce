"""Weights that are packed once: as llama.cpp does, by its own package, and loaded by it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.packages import need

need("gguf", "numpy")

import gguf as library
import numpy as np

from paddock.models import gguf, local, random_gguf
from paddock.models.errors import ModelError
from paddock.models.gguf_head import read_head
from paddock.models.local import requantise
from paddock.models.shapes import shape

SMALL = replace(shape("tiny"), name="small", layers=2, hidden=64, intermediate=128, heads=4, kv_heads=2, head_dim=16)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


def source(folder: Path, dtype: str = "fp16", *, tied: bool = True) -> Path:
    path = folder / f"small-{dtype}.gguf"
    random_gguf.write(path, replace(SMALL, tied=tied), dtype)
    return path


@pytest.mark.parametrize("plain", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(("dtype", "file_type"), [("int8", 7), ("int4", 2)])
def test_matrices_are_packed_and_vectors_stay(
    plain: str, dtype: str, file_type: int, tmp_path: Path, environ: dict[str, str]
) -> None:
    path = source(tmp_path, plain, tied=False)
    packed = requantise.packed(path, dtype, environ=environ)
    before, after = library.GGUFReader(path), library.GGUFReader(packed)
    kind = library.GGMLQuantizationType(requantise.TYPES[dtype])
    types = {tensor.name: tensor.tensor_type for tensor in after.tensors}
    assert types["output.weight"] == library.GGMLQuantizationType.Q8_0
    assert types["token_embd.weight"] == types["blk.0.attn_q.weight"] == kind
    assert types["blk.0.attn_norm.weight"] == types["output_norm.weight"] == library.GGMLQuantizationType.F32
    for old, new in zip(before.tensors, after.tensors, strict=True):
        values = library.dequantize(old.data, old.tensor_type)
        expected = library.quantize(values, new.tensor_type) if new.tensor_type != old.tensor_type else old.data
        assert np.array_equal(new.data, expected), new.name
    assert read_head(packed).fields == {**read_head(path).fields, "general.file_type": file_type}
    assert gguf.read(packed).quantised


def test_a_shared_embedding_is_the_output_head(tmp_path: Path, environ: dict[str, str]) -> None:
    packed = requantise.packed(source(tmp_path), "int4", environ=environ)
    types = dict(gguf.read(packed).types)
    assert types["Q8_0"] == SMALL.vocabulary * SMALL.hidden


def test_it_is_written_once_until_the_source_changes(tmp_path: Path, environ: dict[str, str]) -> None:
    told: list[tuple[str, int, int]] = []
    path = source(tmp_path)
    first = requantise.packed(path, "int8", lambda *progress: told.append(progress), environ)
    assert told[-1][1] <= told[-1][2] == first.stat().st_size
    state = first.stat()
    assert requantise.packed(path, "int8", environ=environ).stat() == state
    assert requantise.packed(path, "int4", environ=environ) != first
    random_gguf.write(path, SMALL, "fp16", seed=1)
    assert requantise.packed(path, "int8", environ=environ) != first


def test_two_at_once_write_one_file(tmp_path: Path, environ: dict[str, str]) -> None:
    path, written, found = source(tmp_path), [0], list[Path]()

    def work() -> None:
        found.append(requantise.packed(path, "int8", lambda *progress: written.append(progress[1]), environ))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert len({count for count in written if count}) == len([count for count in written if count])


def test_what_is_interrupted_leaves_nothing(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(what: str, done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    path = source(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        requantise.packed(path, "int8", interrupted, environ)
    assert [file.suffix for file in tmp_path.glob("cache/paddock/models/*")] == [".lock"]
    stale = tmp_path / "cache/paddock/models" / f".{requantise.packed(path, 'int8', environ=environ).name}.ab12.part"
    stale.write_bytes(b"of a process that was killed")
    stale.with_name(stale.name[1:].removesuffix(".ab12.part")).unlink()
    requantise.packed(path, "int8", environ=environ)
    assert not stale.exists()
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(ModelError, match="room for the whole file"):
        requantise.packed(path, "int4", environ=environ)


def test_parts_become_one_file(tmp_path: Path, environ: dict[str, str]) -> None:
    """Of a model that is split as llama.cpp does: metadata and half of the tensors, then the other half."""
    whole = library.GGUFReader(source(tmp_path))
    paths = [tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    for number, path in enumerate(paths):
        writer = library.GGUFWriter(path, "llama")
        if number == 0:
            for field in whole.fields.values():
                if not field.name.startswith(("GGUF.", "general.architecture")) and field.types:
                    kind = field.types[0]
                    writer.add_key_value(
                        field.name, field.contents(), kind,
                        sub_type=field.types[-1] if kind == library.GGUFValueType.ARRAY else None,
                    )  # fmt: skip
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(whole.tensors))
        for tensor in whole.tensors[number::2]:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    packed = requantise.packed(paths[0], "int8", environ=environ)
    model = gguf.read(packed)
    assert (model.parameters, model.files, model.quantised) == (SMALL.model.parameters, 1, True)
    assert "split.count" not in read_head(packed).fields


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_llama_cpp_loads_what_is_packed(dtype: str, tmp_path: Path, environ: dict[str, str]) -> None:
    need("xllamacpp")
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(local.weights(str(source(tmp_path)), dtype, environ=environ))
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads, params.warmup = 64, 1, 1, False
    server = xllamacpp.Server(params)
    answer = server.handle_completions({"prompt": "a", "max_tokens": 4, "temperature": 0, "ignore_eos": True})
    assert answer["usage"]["completion_tokens"] == 4


def test_a_model_is_brought_to_the_machine_that_serves_it(tmp_path: Path, environ: dict[str, str]) -> None:
    random = local.weights("tiny", environ=environ)
    assert gguf.read(random).format == "Q8_0"
    assert local.weights("tiny", "int4", environ=environ) != random == local.weights("tiny", environ=environ)
    packed = source(tmp_path, "int4")
    assert local.weights(str(packed), "int8", environ=environ) == packed
    assert local.weights(str(packed.parent), environ=environ) == packed.parent
    with pytest.raises(ModelError, match="on this machine\n    expected: the model at the same place"):
        local.weights(str(tmp_path / "gone.gguf"))
