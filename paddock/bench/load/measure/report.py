"""Report of a load: everything that its exchanges say, as one value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from paddock.bench.load.answer import Answer
from paddock.bench.load.client.messages import ClientUsage, LoadPlan
from paddock.bench.load.measure.latency import Goodput, Latencies, conservative_p99, goodput
from paddock.bench.load.measure.window import Window, peak_concurrency, steady_window
from paddock.bench.measurement.statistics import total
from paddock.catalog.latency_limits import LatencyLimit
from paddock.openai.errors import FailureKind
from paddock.openai.stream import CountedBy

LATEST_LAG = 0.010
"""Seconds that the client may send later than scheduled at the 99th percentile; beyond, its own load is measured."""
MOST_FAILED = 0.01
"""Part of the requests that may fail in a run that can be trusted."""
BUSIEST_CLIENT = 0.8
"""Part of one core beyond which the client itself may be what is slow."""
SHORTEST_JUDGED = 1.0
"""Seconds below which a client is not judged by how busy it was: it was mostly starting."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """Rates over an interval. Input and output tokens are apart; None where they could not be counted."""

    window: Window
    requests_per_second: float | None
    output_tokens_per_second: float | None
    input_tokens_per_second: float | None


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of one kind, and what the first of them was."""

    count: int
    first: str


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Result of a load. Times are in seconds."""

    plan: LoadPlan
    model: str
    accepted: tuple[str, ...]
    measured: int
    succeeded: int
    warm_up: int
    unfinished: int
    failures: Mapping[FailureKind, Failures]
    latencies: Latencies
    full: Throughput | None
    steady: Throughput | None
    peak_concurrency: int
    counted_by: Mapping[CountedBy, int]
    """Number of answers by how their tokens were counted."""
    mean_prompt: float | None
    """Tokens of a prompt as the server counted them."""
    mean_new: float | None
    mean_requested: float
    goodput: Goodput | None
    lag_p99: float | None
    """Sending behind schedule; None in a closed loop."""
    client: ClientUsage | None
    interrupted: bool
    problems: tuple[str, ...] = field(default=())
    """Reasons why the run cannot be trusted."""

    @property
    def valid(self) -> bool:
        return not self.problems and not self.interrupted

    @property
    def exit_code(self) -> int:
        return 130 if self.interrupted else 1 if self.problems else 0


def build_report(
    plan: LoadPlan,
    model: str,
    accepted: Sequence[str],
    answers: Sequence[Answer],
    client: ClientUsage | None,
    *,
    interrupted: bool = False,
    limit: LatencyLimit | None = None,
) -> LoadReport:
    """Add up the answers of a load, those of its warm-up among them."""
    measured = [answer for answer in answers if not answer.exchange.warm_up]
    ended = [answer for answer in measured if not answer.failure or answer.failure.kind != "interrupted"]
    good = [answer for answer in ended if answer.succeeded]
    # From the first sending of a measured request to the last token of one.
    whole = Window(min(one.exchange.sent for one in good), max(one.last for one in good)) if good else None
    # From the first scheduled arrival to the last end, those of failed requests among them.
    offered = [(one.exchange.scheduled, one.exchange.ended) for one in ended]
    seconds = max(end for _, end in offered) - min(begin for begin, _ in offered) if offered else 0.0
    spans = [(answer.exchange.sent, answer.exchange.ended) for answer in answers]
    steady = steady_window(spans, whole) if whole else None
    lag = [answer.exchange.sent - answer.exchange.scheduled for answer in measured] if plan.arrivals else []
    failures = _failures(ended)
    return LoadReport(
        plan=plan, model=model, accepted=tuple(accepted), measured=len(ended), succeeded=len(good),
        warm_up=len(answers) - len(measured), unfinished=len(measured) - len(ended), failures=failures,
        latencies=Latencies.of(good),
        full=_rates(whole, len(good), [answer.tokens for answer in good], good) if whole else None,
        steady=_steady(answers, steady) if steady else None, peak_concurrency=peak_concurrency(spans),
        counted_by=Counter(answer.counted_by for answer in good), mean_prompt=_mean(_prompts(good)),
        mean_new=_mean([answer.tokens for answer in good]),
        mean_requested=_mean([answer.exchange.new for answer in measured]) or 0.0,
        goodput=goodput(ended, limit, seconds) if limit and ended else None,
        lag_p99=conservative_p99(lag) if lag else None, client=client, interrupted=interrupted,
        problems=tuple(_problems(len(ended), len(good), failures, lag, client)),
    )  # fmt: skip


def _problems(
    measured: int,
    succeeded: int,
    failures: Mapping[FailureKind, Failures],
    lag: Sequence[float],
    client: ClientUsage | None,
) -> Iterator[str]:
    if not succeeded:
        yield "no request succeeded"
    elif measured - succeeded > MOST_FAILED * measured:
        yield f"{measured - succeeded} of {measured} requests failed: more than {MOST_FAILED:.0%}"
    if lag and (late := conservative_p99(lag)) > LATEST_LAG:
        yield (
            f"the client sent up to {late * 1000:.1f} ms behind schedule (p99; at most {LATEST_LAG * 1000:g} ms):"
            " give it a core of its own, or a lower --rate"
        )
    if "client" in failures:
        yield f"the client ran out of files or ports: {failures['client'].first}"
    if client is None:
        yield "the client ended before its time"
    elif client.cpu_share > BUSIEST_CLIENT and client.seconds >= SHORTEST_JUDGED:
        yield f"the client was busy for {client.cpu_share:.0%} of a core: it may be what was slow"


def _failures(answers: Sequence[Answer]) -> dict[FailureKind, Failures]:
    result: dict[FailureKind, Failures] = {}
    for answer in answers:
        if answer.failure:
            before = result.get(answer.failure.kind, Failures(0, answer.failure.message))
            result[answer.failure.kind] = Failures(before.count + 1, before.first)
    return result


def _steady(answers: Sequence[Answer], window: Window) -> Throughput:
    """Return the rates of what came inside the window, from warm-up requests too: they load the server alike."""
    seen = [answer for answer in answers if answer.chunks and window.holds(answer.last) and answer.succeeded]
    chunks = [chunk for answer in answers for chunk in answer.chunks if window.holds(chunk.time)]
    begun = [answer for answer in answers if answer.succeeded and window.holds(answer.first)]
    return _rates(window, len(seen), [chunk.tokens for chunk in chunks], begun)


def _rates(window: Window, count: int, tokens: Sequence[int | None], begun: Sequence[Answer]) -> Throughput:
    amounts = count, total(tokens), total(_prompts(begun))
    rates = (amount / window.seconds if amount is not None and window.seconds > 0 else None for amount in amounts)
    return Throughput(window, *rates)


def _prompts(answers: Sequence[Answer]) -> list[int | None]:
    return [answer.usage.prompt if answer.usage else None for answer in answers]


def _mean(counts: Sequence[int | None]) -> float | None:
    whole = total(counts)
    return whole / len(counts) if counts and whole is not None else None
