"""GGUF files, written by the real library."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.packages import need

need("gguf", "numpy")

import gguf

from paddock import cli
from paddock.models.ggml_types import GGML_TYPES
from paddock.models.gguf import read
from paddock.models.shapes import Shape, stored_dtype
from tests.support.gguf_files import write


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "m.gguf", gguf.GGMLQuantizationType.Q8_0)


def test_a_quantised_file_says_so(model: Path) -> None:
    written = read(model)
    assert (written.quantised, written.format, stored_dtype(written)) == (True, "Q8_0", "int8")
    shape = Shape.of(written)
    assert (shape.hidden, shape.layers, shape.heads, shape.kv_heads, shape.vocabulary) == (64, 1, 4, 2, 96)
    assert shape.tied, "it has no head of its own"
    assert written.bytes == sum(tensor.n_bytes for tensor in gguf.GGUFReader(model).tensors)


def test_a_plain_file_is_not_quantised(tmp_path: Path) -> None:
    plain = read(write(tmp_path / "p.gguf", gguf.GGMLQuantizationType.BF16))
    assert (plain.quantised, stored_dtype(plain)) == (False, "bf16")


def test_every_type_of_ggml_has_its_size() -> None:
    known = {kind.value: (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert {number: tuple(kind) for number, kind in GGML_TYPES.items()} == known


def test_the_engine_on_torch_computes_with_a_files_weights(tmp_path: Path) -> None:
    import torch

    from paddock.serve.own.protocol import Spec
    from paddock.serve.own.torch_engine import TorchEngine

    logits = []
    for kind in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0):
        file, engine = write(tmp_path / f"{kind.name}.gguf", kind), TorchEngine()
        engine.load(Spec(Shape.of(read(file)), "fp32", "cpu", 1, 32, str(file)))
        logits.append(engine.logits(torch.arange(1, 9)[None]))
    plain, quantised = logits
    error = float((plain - quantised).pow(2).mean().sqrt() / plain.std())
    assert 0 < error < 0.05, "the same weights but for their rounding to 8 bits"


def test_a_plan_takes_the_format_of_the_file(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["paddock", "serve.plan", str(model), "--backend", "cpu"]) == 0
    assert "Request    Q8_0 weights" in capsys.readouterr().out
    assert cli.main(["paddock", "serve.plan", str(model), "--dtype", "bf16"]) == 2
    assert "the weights of m.gguf are Q8_0 in the file" in capsys.readouterr().err
