"""Load on a server, on the console: flags, progress, output and exit code."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock import process, terminal
from paddock.bench.cli.parameters import Load
from paddock.bench.errors import BenchError, BenchInputError
from paddock.bench.load import endpoint
from paddock.bench.load.arrivals import CONSTANT, POISSON, arrivals, read_trace, scaled
from paddock.bench.load.client.messages import Plan, Target
from paddock.bench.load.measure import text
from paddock.bench.load.measure.documents import document
from paddock.bench.load.measure.goodput import parse_limit
from paddock.bench.load.measure.report import build_report
from paddock.bench.load.run import Run, run
from paddock.bench.load.workload import Lengths
from paddock.bench.report.load_page import page
from paddock.errors import printable
from paddock.openai.address import parse_url
from paddock.openai.request import dialect_of

_REQUESTS, _USERS = 100, 8
_MOST_REQUESTS = 1_000_000
_PROBE_SECONDS = 60.0
_CLEAR_LINE = "\r\x1b[K"
_PLAIN_INTERVAL = 10.0
"""Seconds between lines of progress where there is no terminal."""


def load(flags: Mapping[str, Any]) -> int:
    """Offer a load to a server, print what came of it and return the exit code. Raises BenchError and OutputError."""
    parameters = Load.from_flags(flags)
    plan, limit = build_plan(parameters), parse_limit(parameters.slo) if parameters.slo else None
    address, key = parse_url(parameters.url), _key(parameters.key_env)
    if parameters.dialect:
        dialect_of(parameters.dialect)
    json, page_file = terminal.JsonOutput.parse(parameters.json), terminal.output_path("html", parameters.html)
    quiet = json.replaces_text
    with process.sigterm_as_interrupt():
        there = endpoint.probe(
            address,
            model=parameters.model_name,
            key=key,
            verify=not parameters.insecure,
            timeout=min(parameters.timeout, _PROBE_SECONDS),
            dialect=parameters.dialect,
        )
        plan = replace(plan, target=there.target)
        if not quiet:
            sys.stdout.write(f"{printable(there.model)}: {text.offered(plan)}\n")
            sys.stdout.flush()
        outcome = run(plan, (lambda _: None) if quiet else _progress(plan))
        if not quiet and sys.stderr.isatty():
            sys.stderr.write(_CLEAR_LINE)
    if not outcome.usage and outcome.client_error and not outcome.answers:
        raise BenchError(f"the client ended before it sent anything: {outcome.client_error}")
    report = build_report(
        plan,
        there.model,
        there.accepted,
        outcome.answers,
        outcome.usage,
        interrupted=outcome.interrupted,
        limit=limit,
    )
    if not quiet:
        sys.stdout.writelines(f"{printable(line)}\n" for line in ["", *text.lines(report)])
    json.write(document(report))
    if page_file is not None:
        terminal.write(page_file, page(report, outcome.answers))
    return report.exit_code


def build_plan(parameters: Load) -> Plan:
    """Return the load that the flags describe, without its target. Raises BenchInputError."""
    _check(parameters)
    prompt, new = Lengths.parse("prompt", parameters.prompt), Lengths.parse("new", parameters.new)
    common: dict[str, Any] = {
        "target": Target("", "", {}, False),
        "prompt": prompt,
        "new": new,
        "warm_up": parameters.warm_up,
        "timeout": parameters.timeout,
        "seed": parameters.seed,
    }
    trace = terminal.optional_path("trace", parameters.trace)
    if trace:
        return _trace_plan(parameters, trace, common)
    if parameters.rate is not None:
        return _rate_plan(parameters, parameters.rate, common)
    requests = parameters.requests if parameters.requests or parameters.duration else _REQUESTS
    users = _USERS if parameters.concurrency is None else parameters.concurrency
    return Plan(**common, concurrency=users, requests=requests, duration=parameters.duration)


def _rate_plan(parameters: Load, rate: float, common: Mapping[str, Any]) -> Plan:
    counts = [
        parameters.requests,
        None if parameters.duration is None else max(1, round(rate * parameters.duration)),
    ]
    measured = min((count for count in counts if count is not None), default=_REQUESTS)
    total = measured + parameters.warm_up
    if total > _MOST_REQUESTS:
        raise BenchInputError(f"--rate and --duration: {total} requests\n    expected: at most {_MOST_REQUESTS}")
    burstiness = CONSTANT if parameters.constant else POISSON
    if parameters.burstiness is not None:
        burstiness = parameters.burstiness
    kind = {POISSON: "Poisson", CONSTANT: "constant"}.get(burstiness, f"gamma with burstiness {burstiness:g}")
    return Plan(
        **common,
        arrivals=arrivals(total, rate, burstiness, parameters.seed),
        burstiness=None if math.isinf(burstiness) else burstiness,
        schedule=f"{kind} at {rate:g} requests/s",
        requests=measured,
    )


def _trace_plan(parameters: Load, path: Path, common: Mapping[str, Any]) -> Plan:
    entries = read_trace(path)
    if parameters.requests is not None:
        entries = entries[: parameters.requests + parameters.warm_up]
    times = tuple(entry.arrival for entry in entries)
    if parameters.rate is not None:
        times = scaled(times, parameters.rate)
    if parameters.duration is not None:
        times = tuple(moment for moment in times if moment <= parameters.duration)
    entries = entries[: len(times)]
    if len(entries) <= parameters.warm_up:
        raise BenchInputError(
            f"--trace: {path} has {len(entries)} requests within the limits\n"
            f"    expected: more than the {parameters.warm_up} of --warm-up"
        )
    return Plan(
        **common,
        arrivals=times,
        trace=entries,
        schedule=f"trace {path.name}",
        requests=len(entries) - parameters.warm_up,
    )


def _check(parameters: Load) -> None:
    """Raise BenchInputError for flags that contradict each other, or make no sense."""
    is_open = parameters.rate is not None or parameters.trace is not None
    if is_open and parameters.concurrency is not None:
        raise BenchInputError(
            "--concurrency: a closed loop has no schedule of arrivals\n"
            "    expected: --concurrency alone, or --rate or --trace without it"
        )
    shaped = "--burstiness" if parameters.burstiness is not None else "--constant" if parameters.constant else ""
    if shaped and (parameters.rate is None or parameters.trace):
        raise BenchInputError(f"{shaped}: it shapes the gaps of --rate\n    fix: add --rate, without --trace")
    if parameters.constant and parameters.burstiness is not None:
        raise BenchInputError("--constant: it has no bursts\n    fix: leave --constant or --burstiness out")
    _within("rate", parameters.rate, 1e-4, 1e5, "requests a second")
    _within("burstiness", parameters.burstiness, 1e-3, 1e6, "1 for Poisson, less for bursts")
    _within("concurrency", parameters.concurrency, 1, 20_000, "users")
    _within("requests", parameters.requests, 1, _MOST_REQUESTS, "requests")
    _within("duration", parameters.duration, 0.1, 7 * 86400, "seconds")
    _within("warm-up", parameters.warm_up, 0, _MOST_REQUESTS, "requests")
    _within("timeout", parameters.timeout, 0.01, 86400, "seconds")


def _within(flag: str, value: float | None, low: float, high: float, unit: str) -> None:
    if value is not None and not low <= value <= high:
        raise BenchInputError(f"--{flag}: {value:g} makes no sense\n    expected: {unit}, {low:g} to {high:g}")


def _key(name: str) -> str:
    if not name:
        return ""
    key = os.environ.get(name, "").strip()
    if not key:
        raise BenchInputError(
            f"--key-env: there is no environment variable {name}, or it is empty\n"
            f"    expected: the name of the variable that holds the key\n    fix: export {name}=..."
        )
    if not key.isascii() or not key.isprintable():
        raise BenchInputError(f"--key-env: {name} holds characters that no HTTP header may have")
    return key


def _progress(plan: Plan) -> Callable[[Run], None]:
    """Return what shows the progress: one line that changes on a terminal, a line now and then elsewhere."""
    on_terminal = sys.stderr.isatty()
    interval = 0.25 if on_terminal else _PLAIN_INTERVAL
    begun = shown = time.monotonic()

    def show(outcome: Run) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < interval:
            return
        shown = now
        failed = sum(1 for answer in outcome.answers if not answer.succeeded)
        of = f" of {plan.total}" if plan.total else ""
        line = f"{now - begun:.0f} s: {len(outcome.answers)}{of} answers, {failed} failed"
        sys.stderr.write(f"{_CLEAR_LINE}{line}" if on_terminal else f"{line}\n")
        sys.stderr.flush()

    return show
