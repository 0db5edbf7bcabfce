"""Report as data, for --json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from paddock.bench.load.measure.latency import JUDGED_PART, OFFICIAL_SECONDS, Goodput, needed_samples, summary_ms
from paddock.bench.load.measure.report import LATEST_LAG, LoadReport, Throughput
from paddock.bench.measurement.statistics import PERCENTS

SCHEMA = 1
_RATES = ("requests", "output_tokens", "input_tokens")


def document(report: LoadReport) -> dict[str, Any]:
    """Return the report as JSON has it; the unit is in each key, and null is what is not known."""
    plan, latencies = report.plan, report.latencies
    return {
        "schema": SCHEMA,
        "complete": not report.interrupted,
        "valid": report.valid,
        "problems": list(report.problems),
        "endpoint": {
            "url": f"{plan.target.origin}{plan.target.path}",
            "model": report.model,
            "extensions": list(report.accepted),
            "tls_verified": plan.target.verify if plan.target.origin.startswith("https") else None,
        },
        "load": load(report),
        "requests": {
            **_of(report, "measured", "succeeded", "warm_up", "unfinished"),
            "failures": {kind: asdict(failures) for kind, failures in report.failures.items()},
        },
        "tokens": {"counted_by": dict(report.counted_by), **_of(report, "mean_prompt", "mean_new", "mean_requested")},
        "latency_ms": {
            name: summary(getattr(latencies, name)) for name in ("ttft", "queue_wait", "tpot", "itl", "e2e")
        },
        "throughput": {"full": _throughput(report.full), "steady": _throughput(report.steady)},
        "peak_concurrency": report.peak_concurrency,
        "goodput": _goodput(report.goodput, report),
        "client": {
            "lag_p99_ms": None if report.lag_p99 is None else report.lag_p99 * 1000,
            "lag_limit_ms": LATEST_LAG * 1000,
            "cpu_share": report.client.cpu_share if report.client else None,
            "seconds": report.client.seconds if report.client else None,
        },
    }


def load(report: LoadReport) -> dict[str, Any]:
    """Return the load that was offered."""
    plan = report.plan
    seconds = plan.arrivals[-1] - plan.arrivals[0] if len(plan.arrivals) > 1 else 0.0
    return {
        "loop": "open" if plan.arrivals else "closed",
        "schedule": plan.schedule,
        "mean_rate": (len(plan.arrivals) - 1) / seconds if seconds else None,
        "burstiness": None if plan.burstiness is None or math.isinf(plan.burstiness) else plan.burstiness,
        "concurrency": plan.concurrency or None,
        "duration_s": plan.duration,
        **_of(plan, "requests", "warm_up", "seed"),
        **{name: None if plan.trace else str(getattr(plan, name)) for name in ("prompt", "new")},
        "timeout_s": plan.timeout,
    }


def summary(seconds: Sequence[float]) -> dict[str, Any] | None:
    """Return a latency in milliseconds; a percentile that the samples are too few for is null and has its reason."""
    whole = summary_ms(seconds)
    if whole is None:
        return None
    found = {percent: whole.percentile(percent) for percent in PERCENTS}
    percentiles = {f"p{percent:g}": item and _of(item, "value", "low", "high") for percent, item in found.items()}
    absent = {
        f"p{percent:g}": f"needs {needed_samples(percent)} samples, there are {whole.count}"
        for percent, item in found.items()
        if item is None
    }
    return {
        **_of(whole, "count", "mean", "deviation", "minimum", "maximum"),
        **percentiles,
        **({"absent": absent} if absent else {}),
    }


def _throughput(throughput: Throughput | None) -> dict[str, Any] | None:
    if throughput is None:
        return None
    rates = {f"{name}_per_s": getattr(throughput, f"{name}_per_second") for name in _RATES}
    return {"start_s": throughput.window.start, "seconds": throughput.window.seconds, **rates}


def _goodput(result: Goodput | None, report: LoadReport) -> dict[str, Any] | None:
    if result is None:
        return None
    limit = result.limit
    bounds = {"ttft_ms": limit.ttft_ms, "tpot_ms": limit.tpot_ms}
    return {
        **_of(limit, "name", "source"),
        **{name: None if math.isinf(bound) else bound for name, bound in bounds.items()},
        **_of(result, "good", "requests", "attained"),
        "per_s": result.per_second,
        "attained_by_99_percent": result.attained >= JUDGED_PART,
        "official_duration": bool(report.full and report.full.window.seconds >= OFFICIAL_SECONDS),
    }


def _of(source: object, *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}
