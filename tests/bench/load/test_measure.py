"""Measurement: cases worked by hand."""

from __future__ import annotations

import pytest

from paddock.bench.errors import BenchInputError
from paddock.bench.load.answer import Answer, Chunk
from paddock.bench.load.client.messages import ClientUsage, Exchange, LoadPlan, Target
from paddock.bench.load.measure.documents import document
from paddock.bench.load.measure.latency import Latencies, goodput, parse_limit
from paddock.bench.load.measure.report import LoadReport, build_report
from paddock.bench.load.measure.window import Window, steady_window
from paddock.bench.load.workload import Lengths
from paddock.bench.report.load_page import page
from paddock.openai.errors import Failure

TARGET = Target("http://server", "/v1/completions", {}, False)
CLIENT = ClientUsage(seconds=10, cpu_seconds=1)


def answered(scheduled: float, sent: float, *times: float, index: int = 0, warm_up: bool = False) -> Answer:
    exchange = Exchange(index, scheduled, sent, times[-1], len(times), warm_up=warm_up, status=200)
    return Answer(exchange, tuple(Chunk(time, 1, "token ids") for time in times), None, "token ids")


def failed(scheduled: float, ended: float, kind: str = "timeout") -> Answer:
    failure = Failure(kind, "why")  # type: ignore[arg-type]  # a parameter of the test
    return Answer(Exchange(9, scheduled, scheduled, ended, 4, failure=failure), failure=failure)


def report(
    *answers: Answer,
    arrivals: tuple[float, ...] = (),
    client: ClientUsage | None = CLIENT,
    interrupted: bool = False,
) -> LoadReport:
    plan = LoadPlan(
        TARGET, Lengths(1, 1), Lengths(4, 4), arrivals, concurrency=0 if arrivals else 2, requests=len(answers)
    )
    return build_report(plan, "m", (), answers, client, interrupted=interrupted)


def test_latencies_of_one_request_follow_their_formulas() -> None:
    latencies = Latencies.of([answered(1.0, 1.25, 1.5, 1.75, 2.5)])
    assert latencies == Latencies(ttft=[0.5], queue_wait=[0.25], tpot=[0.5], itl=[0.25, 0.75], e2e=[1.5])


def test_tpot_weighs_requests_and_itl_weighs_tokens() -> None:
    latencies = Latencies.of([answered(0, 0, 1, 2), answered(0, 0, 1, 1.5, 2.0, 2.5), answered(0, 0, 1)])
    assert latencies.tpot == [1.0, 0.5]
    assert latencies.itl == [1.0, 0.5, 0.5, 0.5]


def test_goodput_counts_what_met_both_limits() -> None:
    answers = [
        answered(0, 0, 0.5, 0.53125),  # both at their limits
        answered(0, 0, 0.6, 0.61),  # first token late
        answered(0, 0, 0.1, 0.2),  # later tokens slow
        answered(0, 0, 0.4),  # one token has no TPOT
        failed(0, 1),
    ]
    result = goodput(answers, parse_limit("ttft=500,tpot=31.25"), seconds=4)
    assert (result.good, result.requests, result.per_second, result.attained) == (2, 5, 0.5, 0.4)
    assert goodput(answers, parse_limit("ttft=550"), 4).good == 3


def test_a_preset_is_the_limit_that_mlperf_publishes() -> None:
    limit = parse_limit("llama3.1-8b-interactive")
    assert (limit.ttft_ms, limit.tpot_ms) == (500, 30)
    assert "2026-08-20 (https://github.com/mlcommons/inference/" in limit.source


@pytest.mark.parametrize("text", ["llama", "ttft=0", "ttft=5,tpot", "tpot=x", "ttft=1,ttft=2"])
def test_bad_limits_say_what_was_expected(text: str) -> None:
    with pytest.raises(BenchInputError, match="expected: "):
        parse_limit(text)


def test_the_steady_window_leaves_ramp_and_drain_out() -> None:
    # Five users, one after the other from 0 to 4 s; the first leaves at 10 s and the rest at 11 s to 14 s.
    spans = [(float(n), 10.0 + n) for n in range(5)]
    assert steady_window(spans, Window(0, 14)) == Window(3, 11)  # four or five of five at once
    # A user's turn between two requests is no dip; a second without anybody is one.
    assert steady_window([(0, 2), (2.01, 4), (5, 6)], Window(0, 6)) == Window(0, 4)
    assert steady_window([(n, n + 0.1) for n in range(10)], Window(0, 10)) is None


def test_warm_up_loads_the_server_and_is_not_measured() -> None:
    result = report(answered(0, 0, 1, 9, warm_up=True), answered(0, 0, 1, 2, 3), answered(3, 3, 4, 5, 6))
    assert (result.measured, result.warm_up, result.latencies.ttft) == (2, 1, [1, 1])
    assert (result.full.window, result.full.output_tokens_per_second) == (Window(0, 6), 1.0)
    assert result.steady.output_tokens_per_second == pytest.approx(7 / 6)


@pytest.mark.parametrize(("run", "problem"), [
    (report(*[answered(n, n + 0.011, n + 1) for n in range(2)], arrivals=(0, 1)), "behind schedule"),
    (report(answered(0, 0, 1), failed(0, 2)), "1 of 2 requests failed"),
    (report(failed(0, 2)), "no request succeeded"),
    (report(answered(0, 0, 1), client=ClientUsage(10, 9)), "busy for 90% of a core"),
    (report(answered(0, 0, 1), client=None), "ended before its time"),
])  # fmt: skip
def test_a_run_that_cannot_be_trusted_says_why(run: LoadReport, problem: str) -> None:
    assert run.exit_code == 1
    assert problem in run.problems[0]


def test_a_percentile_of_too_few_samples_has_a_reason() -> None:
    ttft = document(report(*[answered(0, 0, 1, 2) for _ in range(60)]))["latency_ms"]["ttft"]
    assert ttft["p90"]["value"] == 1000
    assert ttft["p99"] is None
    assert ttft["absent"]["p99"] == "needs 500 samples, there are 60"


def test_interrupted_requests_are_unfinished_and_not_failed() -> None:
    result = report(answered(0, 0, 1, 2), failed(0, 2, "interrupted"), interrupted=True)
    assert (result.measured, result.unfinished, result.failures, result.exit_code) == (1, 1, {}, 130)
    assert document(result)["complete"] is False


def test_the_page_has_plots_and_what_the_text_says() -> None:
    answers = [answered(0, 0, 0.5, 0.75, 1.0), answered(0, 0, 0.5, 0.5, 0.5), failed(0, 1, "TLS")]
    html = page(report(*answers), answers)
    assert (html.count("<svg"), "1 x TLS: why" in html, "Not to be trusted" in html) == (3, True, True)
