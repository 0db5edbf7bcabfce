"""The roof of the processor."""

from __future__ import annotations

import math

import pytest

from tests.support.packages import need

need("numpy")

from paddock.bench.engines import processor_roof
from paddock.bench.engines.processor_roof import ProcessorRoof, UnknownRoof


def test_reads_and_products_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_roof, "_READ_BYTES", 2**24)
    roof = ProcessorRoof(2)
    passes = roof.read_gbs()
    assert (roof.nbytes, len(passes), passes) == (2**24, 4, sorted(passes))
    assert 0.01 < passes[0] < 10_000
    assert 0.0001 < roof.tflops("fp32") < 100


def test_another_device_has_no_roof_here() -> None:
    roof = UnknownRoof()
    assert (roof.read_gbs(), roof.nbytes) == ([], 0)
    assert math.isnan(roof.tflops("fp32"))
