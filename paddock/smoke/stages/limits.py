"""Limits of a device: those of its model in the catalogue, tightened by what this very device once reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from paddock.catalog.gpus import Limit, SmokeLimits, pcie_limit, smoke_limits
from paddock.smoke.verdict.model import Measurement

LEARNED = 0.95
"""Part of its own earlier speed below which a device is reported: superbench's limit of variance, 5 %."""
_UNITS = {"gemm_tflops": "TFLOP/s", "memory_gbs": "GB/s", "allreduce_gbs": "GB/s"}


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one device. Without a model in the catalogue there are only learned ones, which warn."""

    model: SmokeLimits | None = None
    learned: Mapping[str, float] = field(default_factory=dict)
    """Speed by name of measurement."""

    @classmethod
    def of(cls, model: str | None, learned: Mapping[str, float] | None = None) -> Limits:
        return cls(smoke_limits(model) if model else None, learned or {})

    @property
    def precision(self) -> str:
        """Number format of the GEMM: that of the model's limits."""
        return self.model.dtype if self.model else "fp32"

    def measurement(self, kind: str, value: float, name: str) -> Measurement:
        """Return the value with the model's limits of that `kind`, a field of SmokeLimits."""
        limit: Limit | None = getattr(self.model, kind) if self.model else None
        return self._measurement(name, value, _UNITS[kind], limit)

    def pcie(self, name: str, value: float, generation: int | None, lanes: int | None) -> Measurement:
        """Return the bandwidth with the limits of the link."""
        return self._measurement(name, value, "GB/s", pcie_limit(generation, lanes))

    def _measurement(self, name: str, value: float, unit: str, limit: Limit | None) -> Measurement:
        warn, fail, source = (limit.warn, limit.fail, limit.source) if limit else (None, None, "")
        earlier = self.learned.get(name)
        if earlier is not None and earlier * LEARNED > (warn or 0):
            warn, source = earlier * LEARNED, "95 % of what this device reached before"
        return Measurement(name, value, unit, warn, fail, source)
