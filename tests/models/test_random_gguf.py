"""Models of random weights: every format, what is refused, and what stays of one that was not finished."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.packages import need

need("gguf", "numpy")

import gguf as library
import numpy as np

from paddock.models import gguf, random_gguf
from paddock.models.errors import ModelError
from paddock.models.random_gguf import TYPES
from paddock.models.shapes import shape

SMALL = replace(shape("tiny"), name="small", hidden=512, intermediate=512, layers=1, heads=8, head_dim=64)
SILENT = 164
"""Tokens of no printable text: 161 bytes, and three control tokens."""


def read(path: Path) -> dict[str, np.ndarray]:
    tensors = library.GGUFReader(path).tensors
    return {tensor.name: library.dequantize(tensor.data, tensor.tensor_type) for tensor in tensors}


@pytest.mark.parametrize("dtype", TYPES)
def test_each_format_holds_small_finite_numbers(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    assert random_gguf.write(path, SMALL, dtype) == path.stat().st_size
    model = gguf.read(path)
    assert (model.parameters, model.bytes) == (SMALL.model.parameters, random_gguf.nbytes(SMALL, dtype))
    assert (model.vocabulary, model.tied, model.notes) == (SMALL.vocabulary, True, ())
    for name, values in read(path).items():
        assert np.isfinite(values).all()
        if values.ndim == 2:
            spoken = values[SILENT:] if name == "token_embd.weight" else values
            assert abs(spoken.mean()) < 0.003
            assert 0.015 < spoken.std() < 0.03


def test_tokens_without_text_have_no_logit(tmp_path: Path) -> None:
    random_gguf.write(tmp_path / "model.gguf", replace(SMALL, tied=False), "q6_k")
    weights = read(tmp_path / "model.gguf")
    for name in ("token_embd.weight", "output.weight"):
        assert not weights[name][:SILENT].any()
        assert weights[name][SILENT:].any(axis=1).all()


@pytest.mark.parametrize(("hidden", "kind"), [(512, "Q4_K"), (544, "Q5_0"), (520, "F16")])
def test_rows_that_blocks_do_not_divide_take_another_type(hidden: int, kind: str, tmp_path: Path) -> None:
    random_gguf.write(tmp_path / "model.gguf", replace(SMALL, hidden=hidden), "q4_k")
    tensors = {tensor.name: tensor for tensor in library.GGUFReader(tmp_path / "model.gguf").tensors}
    assert tensors["blk.0.attn_q.weight"].tensor_type.name == kind
    assert tensors["blk.0.ffn_down.weight"].tensor_type.name == "Q4_K"


def test_a_seed_gives_the_same_file_again(tmp_path: Path) -> None:
    files = []
    for number, seed in enumerate((1, 1, 2)):
        random_gguf.write(tmp_path / f"{number}.gguf", SMALL, "int4", seed)
        files.append((tmp_path / f"{number}.gguf").read_bytes())
    assert files[0] == files[1] != files[2]


@pytest.mark.parametrize(
    ("change", "dtype", "said"),
    [
        ({}, "q4k", "did you mean q4_k?"),
        ({"architecture": "gemma3"}, "int4", "one of llama, mistral, qwen2, qwen3"),
        ({"vocabulary": 100}, "int4", "at least 259 tokens"),
    ],
)
def test_what_is_not_written_is_refused(change: dict[str, object], dtype: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="\n    expected: ") as refused:
        random_gguf.write(tmp_path / "model.gguf", replace(SMALL, **change), dtype)  # type: ignore[arg-type]  # values of any kind
    assert said in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_seen_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    with pytest.raises(ModelError, match=r"take 39\.7 GB, and .* has 1\.0 free\n(.|\n)*fix: make room"):
        random_gguf.write(tmp_path / "model.gguf", shape("llama-3.1-70b"), "int4")
    monkeypatch.undo()
    with pytest.raises(ModelError, match="No such file or directory\n    fix: name another folder"):
        random_gguf.write(tmp_path / "none" / "model.gguf", SMALL, "int4")


def test_nothing_stays_of_a_file_that_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, tensors = random_gguf._numbers, itertools.count()

    def interrupted(*arguments: Any) -> Any:
        if next(tensors) == 3:
            raise KeyboardInterrupt
        return numbers(*arguments)

    monkeypatch.setattr(random_gguf, "_numbers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        random_gguf.write(tmp_path / "model.gguf", SMALL, "int4")
    assert not list(tmp_path.iterdir())
