"""Report as data, for --json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paddock.bench.load.measure.goodput import JUDGED_PART, OFFICIAL_SECONDS, Goodput
from paddock.bench.load.measure.latency import PERCENTS, needed_samples, summary_ms
from paddock.bench.load.measure.report import LATEST_LAG, Report, Throughput

SCHEMA = 1


def document(report: Report) -> dict[str, Any]:
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
            "measured": report.measured,
            "succeeded": report.succeeded,
            "warm_up": report.warm_up,
            "unfinished": report.unfinished,
            "failures": {kind: {"count": f.count, "first": f.first} for kind, f in report.failures.items()},
        },
        "tokens": {
            "counted_by": dict(report.counted_by),
            "mean_prompt": report.mean_prompt,
            "mean_new": report.mean_new,
            "mean_requested": report.mean_requested,
        },
        "latency_ms": {
            "ttft": summary(latencies.ttft),
            "queue_wait": summary(latencies.queue_wait),
            "tpot": summary(latencies.tpot),
            "itl": summary(latencies.itl),
            "e2e": summary(latencies.e2e),
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


def load(report: Report) -> dict[str, Any]:
    """Return the load that was offered."""
    plan = report.plan
    seconds = plan.arrivals[-1] - plan.arrivals[0] if len(plan.arrivals) > 1 else 0.0
    return {
        "loop": "open" if plan.arrivals else "closed",
        "schedule": plan.schedule,
        "mean_rate": (len(plan.arrivals) - 1) / seconds if seconds else None,
        "burstiness": None if plan.burstiness is None or math.isinf(plan.burstiness) else plan.burstiness,
        "concurrency": plan.concurrency or None,
        "requests": plan.requests,
        "duration_s": plan.duration,
        "warm_up": plan.warm_up,
        "prompt": None if plan.trace else str(plan.prompt),
        "new": None if plan.trace else str(plan.new),
        "timeout_s": plan.timeout,
        "seed": plan.seed,
    }


def summary(seconds: Sequence[float]) -> dict[str, Any] | None:
    """Return a latency in milliseconds; a percentile that the samples are too few for is null and has its reason."""
    whole = summary_ms(seconds)
    if whole is None:
        return None
    percentiles: dict[str, Any] = {}
    absent: dict[str, str] = {}
    for percent in PERCENTS:
        name, percentile = f"p{percent:g}", whole.percentile(percent)
        percentiles[name] = percentile and {"value": percentile.value, "low": percentile.low, "high": percentile.high}
        if percentile is None:
            absent[name] = f"needs {needed_samples(percent)} samples, there are {whole.count}"
    return {
        "count": whole.count,
        "mean": whole.mean,
        "deviation": whole.deviation,
        "minimum": whole.minimum,
        "maximum": whole.maximum,
        **percentiles,
        **({"absent": absent} if absent else {}),
    }


def _throughput(throughput: Throughput | None) -> dict[str, Any] | None:
    if throughput is None:
        return None
    return {
        "start_s": throughput.window.start,
        "seconds": throughput.window.seconds,
        "requests_per_s": throughput.requests_per_second,
        "output_tokens_per_s": throughput.output_tokens_per_second,
        "input_tokens_per_s": throughput.input_tokens_per_second,
    }


def _goodput(result: Goodput | None, report: Report) -> dict[str, Any] | None:
    if result is None:
        return None
    limit = result.limit
    return {
        "name": limit.name,
        "ttft_ms": None if math.isinf(limit.ttft_ms) else limit.ttft_ms,
        "tpot_ms": None if math.isinf(limit.tpot_ms) else limit.tpot_ms,
        "source": limit.source,
        "good": result.good,
        "requests": result.requests,
        "attained": result.attained,
        "per_s": result.per_second,
        "attained_by_99_percent": result.attained >= JUDGED_PART,
        "official_duration": bool(report.full and report.full.window.seconds >= OFFICIAL_SECONDS),
    }
