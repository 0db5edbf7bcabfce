"""`bench.load`: how an OpenAI-compatible server answers under load."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock.bench.errors import BenchError, BenchInputError
from paddock.bench.load import endpoint
from paddock.bench.load.client.messages import LoadPlan, Target
from paddock.bench.load.measure import text
from paddock.bench.load.measure.documents import document
from paddock.bench.load.measure.latency import parse_limit
from paddock.bench.load.measure.report import LoadReport, build_report
from paddock.bench.load.run import Run, run
from paddock.bench.load.workload import CONSTANT, POISSON, Lengths, arrivals, read_trace, scaled
from paddock.bench.report.load_page import page
from paddock.console import output
from paddock.console.command import command
from paddock.console.parameters import Parameters, parameter
from paddock.console.progress import Progress, progress
from paddock.console.report import Report
from paddock.duration import Seconds
from paddock.openai.address import parse_url
from paddock.openai.request import dialect_of

_REQUESTS, _USERS = 100, 8
_MOST_REQUESTS = 1_000_000
_PROBE_SECONDS = 60.0
_INTERVAL, _PLAIN_INTERVAL = 0.25, 10.0
"""Seconds between two looks at the progress on a terminal, and between two lines elsewhere."""


@dataclass(frozen=True, kw_only=True)
class BenchLoad(Parameters):
    """Parameters of a load on an OpenAI-compatible server."""

    url: str = parameter(..., "the server, such as http://localhost:8000, or one of its two endpoints")
    rate: float | None = parameter(None, "open loop: requests a second, whatever the server does")
    burstiness: float | None = parameter(
        None, "shape of the gaps between requests: 1 is Poisson (the default), less comes in bursts, more is steadier"
    )
    constant: bool = parameter(False, "one request every 1/rate seconds")
    trace: Path | None = parameter(
        None, 'open loop: a JSONL file of requests, {"arrival": seconds, "prompt": tokens, "new": tokens}'
    )
    concurrency: int | None = parameter(None, "closed loop: users who each wait for their answer; 8 by default")
    requests: int | None = parameter(None, "how many are measured; by default 100 where --duration does not decide")
    duration: float | None = parameter(None, "time after which no more are sent", unit=Seconds)
    warm_up: int = parameter(0, "requests before those that are measured, in the same stream")
    prompt: str = parameter("512", "tokens of a prompt, or a range: 128-1024")
    new: str = parameter("128", "tokens of an answer, or a range")
    model_name: str = parameter("", "the model; by default the first that the server lists", flag="model")
    dialect: str = parameter(
        "",
        "engines: max_tokens and temperature 0; openai: max_completion_tokens and no temperature; by default what the"
        " server takes",
    )
    key_env: str = parameter("", "the environment variable that holds the server's key")
    timeout: float = parameter(600.0, "time that a request may take", unit=Seconds)
    insecure: bool = parameter(False, "accept any TLS certificate")
    slo: str = parameter("", "limits for goodput: llama3.1-8b-server and other MLPerf names, or ttft=500,tpot=30")
    seed: int = parameter(0, "of arrivals, lengths and prompts")
    html: Path | None = parameter(None, "also write a page with plots to this file", writes=True)


@dataclass(frozen=True, kw_only=True)
class Answered(Report):
    """The outcome of a load."""

    SCHEMA = 1
    offered: str
    report: LoadReport

    def text(self) -> Iterator[str]:
        yield self.offered
        yield ""
        yield from text.lines(self.report)

    def document(self) -> dict[str, Any]:
        return document(self.report)

    @property
    def exit_code(self) -> int:
        return self.report.exit_code


@command()
def load(parameters: BenchLoad) -> Answered:
    """Offer a load to a server. Raises BenchError and OutputError."""
    plan, limit = build_plan(parameters), parse_limit(parameters.slo) if parameters.slo else None
    address, key = parse_url(parameters.url), _key(parameters.key_env)
    if parameters.dialect:
        dialect_of(parameters.dialect)
    there = endpoint.probe(
        address, model=parameters.model_name, key=key, verify=not parameters.insecure,
        timeout=min(parameters.timeout, _PROBE_SECONDS), dialect=parameters.dialect,
    )  # fmt: skip
    plan, offered = replace(plan, target=there.target), f"{there.model}: {text.offered(plan)}"
    with progress(quiet=parameters.json.replaces_text) as shown:
        shown.now(offered)
        outcome = run(plan, _progress(plan, shown))
    if outcome.client_error and not outcome.answers and not outcome.interrupted:
        raise BenchError(f"the client ended before it sent anything: {outcome.client_error}")
    report = build_report(
        plan, there.model, there.accepted, outcome.answers, outcome.usage, interrupted=outcome.interrupted,
        limit=limit,
    )  # fmt: skip
    if parameters.html is not None:
        output.write(parameters.html, page(report, outcome.answers))
    return Answered(offered=offered, report=report)


def build_plan(parameters: BenchLoad) -> LoadPlan:
    """Return the load that the flags describe, without its target. Raises BenchInputError."""
    _check(parameters)
    prompt, new = Lengths.parse("prompt", parameters.prompt), Lengths.parse("new", parameters.new)
    target = Target("", "", {}, False)
    plan = LoadPlan(target, prompt, new, warm_up=parameters.warm_up, timeout=parameters.timeout, seed=parameters.seed)
    if parameters.trace:
        return _trace_plan(parameters, parameters.trace, plan)
    if parameters.rate is not None:
        return _rate_plan(parameters, parameters.rate, plan)
    requests = parameters.requests if parameters.requests or parameters.duration else _REQUESTS
    users = _USERS if parameters.concurrency is None else parameters.concurrency
    return replace(plan, concurrency=users, requests=requests, duration=parameters.duration)


def _rate_plan(parameters: BenchLoad, rate: float, plan: LoadPlan) -> LoadPlan:
    timed = None if parameters.duration is None else max(1, round(rate * parameters.duration))
    measured = min((count for count in (parameters.requests, timed) if count is not None), default=_REQUESTS)
    total = measured + parameters.warm_up
    if total > _MOST_REQUESTS:
        raise BenchInputError(f"--rate and --duration: {total} requests\n    expected: at most {_MOST_REQUESTS}")
    burstiness = CONSTANT if parameters.constant else POISSON
    if parameters.burstiness is not None:
        burstiness = parameters.burstiness
    kind = {POISSON: "Poisson", CONSTANT: "constant"}.get(burstiness, f"gamma with burstiness {burstiness:g}")
    return replace(
        plan, arrivals=arrivals(total, rate, burstiness, parameters.seed), requests=measured,
        burstiness=None if math.isinf(burstiness) else burstiness, schedule=f"{kind} at {rate:g} requests/s",
    )  # fmt: skip


def _trace_plan(parameters: BenchLoad, path: Path, plan: LoadPlan) -> LoadPlan:
    entries = read_trace(path)
    if parameters.requests is not None:
        entries = entries[: parameters.requests + parameters.warm_up]
    times = tuple(entry.arrival for entry in entries)
    if parameters.rate is not None:
        times = scaled(times, parameters.rate)
    if parameters.duration is not None:
        times = tuple(moment for moment in times if moment <= parameters.duration)
    measured = len(times) - parameters.warm_up
    if measured < 1:
        raise BenchInputError(
            f"--trace: {path} has {len(times)} requests within the limits\n"
            f"    expected: more than the {parameters.warm_up} of --warm-up"
        )
    trace, schedule = entries[: len(times)], f"trace {path.name}"
    return replace(plan, arrivals=times, trace=trace, schedule=schedule, requests=measured)


def _check(parameters: BenchLoad) -> None:
    """Raise BenchInputError for flags that contradict each other, or are out of bounds."""
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
        raise BenchInputError(f"--{flag} is {value:g}\n    expected: {unit}, {low:g} to {high:g}")


def _key(name: str) -> str:
    if not name:
        return ""
    key = os.environ.get(name, "").strip()
    if not key:
        raise BenchInputError(
            f"--key-env: the environment variable {name} is not set, or is empty\n"
            f"    expected: the name of the variable that holds the key\n    fix: export {name}=..."
        )
    if not key.isascii() or not key.isprintable():
        raise BenchInputError(f"--key-env: {name} holds characters that no HTTP header may have")
    return key


def _progress(plan: LoadPlan, shown: Progress) -> Callable[[Run], None]:
    """Return what shows how many have answered."""
    interval = _INTERVAL if sys.stderr.isatty() else _PLAIN_INTERVAL
    begun = last = time.monotonic()

    def show(outcome: Run) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= interval:
            last = now
            failed = sum(1 for answer in outcome.answers if not answer.succeeded)
            of = f" of {plan.total}" if plan.total else ""
            shown.now(f"{now - begun:.0f} s: {len(outcome.answers)}{of} answers, {failed} failed")

    return show
