"""Report as text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from paddock.bench.load.client.messages import LoadPlan
from paddock.bench.load.measure.documents import load
from paddock.bench.load.measure.latency import JUDGED_PART, Goodput, needed_samples, summary_ms
from paddock.bench.load.measure.report import LoadReport, Throughput
from paddock.bench.measurement.statistics import PERCENTS, figure

ROWS = (("TTFT", "ttft"), ("TPOT", "tpot"), ("ITL", "itl"), ("E2E", "e2e"), ("queue wait", "queue_wait"))


def offered(plan: LoadPlan) -> str:
    """Return the load in one line."""
    lengths = "lengths of the trace" if plan.trace else f"prompt {plan.prompt}, new {plan.new} tokens"
    warm_up = f", {plan.warm_up} to warm up" if plan.warm_up else ""
    if plan.arrivals:
        return (
            f"open loop, {plan.schedule}: {len(plan.arrivals) - plan.warm_up} requests in"
            f" {plan.arrivals[-1]:.1f} s{warm_up}; {lengths}; seed {plan.seed}"
        )
    ends = [] if plan.requests is None else [f"{plan.requests} requests"]
    ends += [] if plan.duration is None else [f"{plan.duration:g} s"]
    return f"closed loop, {plan.concurrency} at once: {' or '.join(ends)}{warm_up}; {lengths}; seed {plan.seed}"


def lines(report: LoadReport) -> Iterator[str]:
    """Yield the lines of the report."""
    yield f"{report.model} at {report.plan.target.origin}{report.plan.target.path}"
    if report.plan.arrivals and (rate := load(report)["mean_rate"]):
        yield f"mean rate {rate:.3g} requests/s"
    yield ""
    failed = report.measured - report.succeeded
    unfinished = f", {report.unfinished} unfinished" if report.unfinished else ""
    yield f"{report.succeeded} of {report.measured} requests succeeded, {failed} failed{unfinished}"
    for kind, failures in report.failures.items():
        yield f"  {failures.count} x {kind}: {failures.first}"
    if report.succeeded:
        yield ""
        yield from _latencies(report)
        yield ""
        yield from _throughputs(report)
        yield from _tokens(report)
    if report.goodput:
        yield from _goodput(report.goodput)
    if report.client:
        lag = "" if report.lag_p99 is None else f", {report.lag_p99 * 1000:.1f} ms behind schedule at p99"
        yield f"client       {report.client.cpu_share:.0%} of a core{lag}"
    yield ""
    if report.interrupted:
        yield "interrupted: these are the results until then"
    for problem in report.problems:
        yield f"not to be trusted: {problem}"
    if report.valid:
        yield "valid"


def _latencies(report: LoadReport) -> Iterator[str]:
    yield f"{'ms':<12}{'mean':>10}" + "".join(f"{f'p{percent:g}':>10}" for percent in PERCENTS) + f"{'max':>10}"
    notes: dict[str, list[str]] = {}
    for title, name in ROWS:
        samples: Sequence[float] = getattr(report.latencies, name)
        whole = summary_ms(samples)
        if whole is None:
            yield f"{title:<12}" + f"{'-':>10}" * (2 + len(PERCENTS))
            continue
        cells = []
        for percent in PERCENTS:
            percentile = whole.percentile(percent)
            cells.append(figure(percentile.value) if percentile else "-")
            if percentile is None:
                need = f"p{percent:g} needs {needed_samples(percent)} samples, there are {whole.count}"
                notes.setdefault(need, []).append(title)
        yield f"{title:<12}" + "".join(f"{cell:>10}" for cell in (figure(whole.mean), *cells, figure(whole.maximum)))
    for need, titles in notes.items():
        yield f"  {', '.join(titles)}: {need}"


def _throughputs(report: LoadReport) -> Iterator[str]:
    if report.full:
        yield f"whole run    {_rates(report.full)}"
    if report.steady:
        yield f"steady       {_rates(report.steady)}, at 80 % of the peak of {report.peak_concurrency} at once or more"
    else:
        yield f"steady       none: the load was not at 80 % of its peak of {report.peak_concurrency} for long enough"


def _rates(throughput: Throughput) -> str:
    return (
        f"{figure(throughput.requests_per_second)} requests/s,"
        f" {figure(throughput.output_tokens_per_second)} output tokens/s,"
        f" {figure(throughput.input_tokens_per_second)} input tokens/s over {throughput.window.seconds:.2f} s"
    )


def _tokens(report: LoadReport) -> Iterator[str]:
    counted = ", ".join(f"{count} by {by}" for by, count in report.counted_by.items() if by != "nothing")
    unknown = report.counted_by.get("nothing", 0)
    means = f"{figure(report.mean_prompt)} a prompt, {figure(report.mean_new)} an answer"
    yield f"tokens       {means}; counted {counted or 'by nothing'}"
    if unknown:
        yield f"  {unknown} answers say nothing of their tokens, so they have no TPOT and no ITL"
    if report.counted_by.get("usage, spread over the chunks"):
        yield "  where tokens are spread over the chunks, single gaps are estimates; TPOT is not"
    if report.mean_new is not None and report.mean_new < 0.95 * report.mean_requested:
        yield f"  answers ended early: {report.mean_requested:.0f} tokens were requested"


def _goodput(result: Goodput) -> Iterator[str]:
    limit = result.limit
    bounds = {"TTFT": limit.ttft_ms, "TPOT": limit.tpot_ms}
    limits = " and ".join(f"{name} {value:g} ms" for name, value in bounds.items() if not math.isinf(value))
    met = "met" if result.attained >= JUDGED_PART else "not met"
    yield f"goodput      {result.per_second:.3g} requests/s within {limits}: {result.good} of {result.requests}"
    yield f"  {limit.name}: {met} (by {result.attained:.1%}, 99 % is the limit); {limit.source}"
