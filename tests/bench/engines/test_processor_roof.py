"""The roof of the processor."""

from __future__ import annotations

import pytest

from paddock.bench.engines import processor_roof
from paddock.bench.engines.processor_roof import ProcessorRoof, UnknownRoof


def test_reads_and_products_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_roof, "_READ_BYTES", 2**24)
    roof = ProcessorRoof(2)
    passes = roof.read_gbs()
    assert (roof.nbytes, len(passes), passes) == (2**24, 4, sorted(passes))
    assert 0.01 < passes[0] < 10_000
    assert all(0.0001 < (roof.tflops(dtype) or 0) < 100 for dtype in ("fp32", "bf16"))


@pytest.mark.parametrize("dtype", ["int8", "int4", "q4_k"])
def test_products_of_whole_numbers_are_not_known(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_roof, "_READ_BYTES", 2**20)
    assert ProcessorRoof(1).tflops(dtype) is None


def test_another_device_has_no_roof_here() -> None:
    roof = UnknownRoof()
    assert (roof.read_gbs(), roof.tflops("fp32"), roof.nbytes) == ([], None, 0)
