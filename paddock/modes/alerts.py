"""Alerts on a server of models: judged here, and as rules for Prometheus.

Reports of a slow desktop only people can raise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddock.modes.config import Deployment
from paddock.modes.limiter import Statistics

HIGH_THROTTLE_RATE = 0.5
LOW_UTILISATION = 20.0
"""Per cent, on a server."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition and its remedy. `expression` is its form in PromQL."""

    name: str
    expression: str
    minutes: int
    """Time for which the condition holds before the alert is raised."""
    summary: str
    fix: str


THROTTLED = Alert(
    "InferenceThrottleRateHigh",
    f"inference_throttle_rate > {HIGH_THROTTLE_RATE:g}",
    5,
    "more than half of the requests are throttled",
    "raise the resource limits, or add capacity",
)
UNUSED = Alert(
    "InferenceGpuUtilisationLow",
    f"DCGM_FI_DEV_GPU_UTIL < {LOW_UTILISATION:g}",
    15,
    "the GPU of a server is used for less than a fifth of the time",
    "raise the resource limits: they are too conservative, or there is no traffic",
)
NO_VRAM = Alert(
    "InferenceVramLimitErrors",
    "increase(inference_vram_limit_errors_total[10m]) > 0",
    0,
    "requests or models were refused for want of GPU memory",
    "more memory, a smaller model or batch, or int4 in place of int8",
)


def raised(
    statistics: Statistics, *, deployment: Deployment | None = None, utilisation: float | None = None
) -> Iterator[Alert]:
    """Yield the alerts that hold now. `utilisation` is the GPU's in per cent, None where it is unknown."""
    if statistics.throttle_rate > HIGH_THROTTLE_RATE:
        yield THROTTLED
    if deployment == "server" and utilisation is not None and utilisation < LOW_UTILISATION:
        yield UNUSED
    if statistics.vram_limit_errors:
        yield NO_VRAM


def rules() -> dict[str, Any]:
    """Return the alerts as a document of Prometheus rules; that of the GPU is for servers."""
    return {
        "groups": [{"name": "paddock-inference", "rules": [_rule(alert) for alert in (THROTTLED, UNUSED, NO_VRAM)]}]
    }


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": f"{alert.minutes}m",
        "labels": {"severity": "warning"},
        "annotations": {"summary": alert.summary, "description": alert.fix},
    }
