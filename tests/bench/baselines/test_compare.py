"""Comparisons of results: noise passes, a slower build fails, and the stated rate holds."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from paddock.bench.baselines import report, store
from paddock.bench.baselines.compare import Comparison, compare
from paddock.bench.baselines.ranks import holm, lower_by_chance, samples_needed, slower_by_chance
from paddock.bench.baselines.result import BenchResult, read
from paddock.bench.errors import BenchInputError
from paddock.tasks.program import main

KEY = {"instance": "g5.xlarge", "gpu": "NVIDIA A10G", "driver": "580.95.05", "image": "sha256:1", "ami": "ami-1",
       "model": "llama-3.2-1b", "dtype": "int4", "batch": 1, "prompt": 128, "new": 64, "engine": "torch"}  # fmt: skip
METRICS = {"decode_tokens_per_s": ("tokens/s", "higher", 100.0), "prefill_tokens_per_s": ("tokens/s", "higher", 2000.0),
           "ttft_s": ("s", "lower", 0.06), "tpot_s": ("s", "lower", 0.01)}  # fmt: skip


def noisy(source: random.Random, runs: int, variation: float, correlation: float) -> list[float]:
    """Factors around 1 that drift: neighbours correlate."""
    value, factors = source.gauss(0, 1), []
    for _ in range(runs):
        factors.append(math.exp(variation * value))
        value = correlation * value + math.sqrt(1 - correlation**2) * source.gauss(0, 1)
    return factors


def build(
    seed: int, *, slower: float = 0.0, runs: int = 7, variation: float = 0.02, correlation: float = 0.5, **key: object
) -> BenchResult:
    """A result whose speed is `slower` by that part; all metrics of a run share half of its noise."""
    source = random.Random(seed)
    common = noisy(source, runs, variation / math.sqrt(2), correlation)
    metrics = {}
    for name, (unit, better, level) in METRICS.items():
        own = noisy(source, runs, variation / math.sqrt(2), correlation)
        speed = [a * b * (1 - slower) for a, b in zip(common, own, strict=True)]
        values = [level * factor if better == "higher" else level / factor for factor in speed]
        metrics[name] = {"unit": unit, "better": better, "runs": values, "sessions": values}
    return BenchResult.model_validate({"schema": 1, "key": {**KEY, **key}, "metrics": metrics, "notes": ["kept"]})


def regressed(old: BenchResult, new: BenchResult) -> bool:
    return compare([old], [new]).count("regression") > 0


@pytest.mark.parametrize(("variation", "runs"), [(0.01, 7), (0.02, 7), (0.03, 10)])
def test_a_build_slower_by_a_tenth_fails(variation: float, runs: int) -> None:
    pairs = [
        (build(seed, variation=variation, runs=runs), build(seed + 20, slower=0.1, variation=variation, runs=runs))
        for seed in range(20)
    ]
    assert sum(regressed(old, new) for old, new in pairs) >= 19


def in_turn(seed: int, slower: float, sessions: int = 16, variation: float = 0.03) -> tuple[BenchResult, BenchResult]:
    """Two builds on a machine that drifts by a third and back; which of the two is first changes with each pair."""
    drift = [math.exp(0.3 * math.sin(index / 5)) for index in range(sessions)]
    sides = []
    for side, part in ((0, 0.0), (1, slower)):
        result = build(2 * seed + side, slower=part, runs=sessions, variation=variation, correlation=0.0)
        metrics = {
            name: metric.model_copy(update={"sessions": tuple(
                value * factor if metric.better == "higher" else value / factor
                for value, factor in zip(metric.sessions, drift, strict=True)
            )})
            for name, metric in result.metrics.items()
        }  # fmt: skip
        times = tuple(10.0 * index + (index + side) % 2 for index in range(sessions))
        sides.append(result.model_copy(update={"metrics": metrics, "sessions_at": times}))
    return sides[0], sides[1]


def test_sessions_in_turn_show_a_tenth_through_drift_of_a_third() -> None:
    alarms = {slower: [regressed(*in_turn(seed, slower)) for seed in range(20)] for slower in (0.0, 0.1)}
    assert alarms == {0.0: [False] * 20, 0.1: [True] * 20}
    (row, *_) = compare(*([side] for side in in_turn(1, 0.1))).rows
    assert (row.paired, row.change) == (True, pytest.approx(-0.1, abs=0.03))


def run_by_run(seed: int, slower: float) -> tuple[BenchResult, BenchResult]:
    """Two builds on a machine whose speed halves and doubles between runs: seven sessions of twenty runs."""
    source = random.Random(seed)
    moments = [[source.uniform(0.5, 1.0) for _ in range(20)] for _ in range(7)]
    sides = []
    for side, part in ((0, 0.0), (1, slower)):
        lucks = [math.exp(source.gauss(0, 0.015)) for _ in moments]
        sessions = [
            [100 * (1 - part) * luck * moment * math.exp(source.gauss(0, 0.03)) for moment in session]
            for luck, session in zip(lucks, moments, strict=True)
        ]
        metric = {
            "unit": "tokens/s",
            "better": "higher",
            "runs": [run for session in sessions for run in session],
            "sessions": [median(session) for session in sessions],
        }
        times = tuple(10.0 * index + (index + side) % 2 for index in range(7))
        document = {"schema": 1, "key": KEY, "metrics": {"speed": metric}, "sessions_at": times, "in_turn": True}
        sides.append(BenchResult.model_validate(document))
    return sides[0], sides[1]


def test_runs_in_turn_show_a_tenth_through_a_speed_that_halves() -> None:
    def regressions(slower: float) -> int:
        pairs = (run_by_run(seed, slower) for seed in range(20))
        return sum(compare([old], [new], min_change=0.03).count("regression") for old, new in pairs)

    assert (regressions(0.0), regressions(0.1)) == (0, 20)


def test_change_of_runs_in_turn_is_the_median_of_their_pairs() -> None:
    old, new = run_by_run(1, 0.1)
    pairs = zip(old.metrics["speed"].runs, new.metrics["speed"].runs, strict=True)
    ratios = [after / before for before, after in pairs]
    (row,) = compare([old], [new]).rows
    assert row.change == pytest.approx(median(median(ratios[i : i + 20]) for i in range(0, 140, 20)) - 1)


def test_runs_that_one_side_lacks_leave_the_pairs_of_sessions() -> None:
    old, new = run_by_run(1, 0.1)
    metric = new.metrics["speed"]
    fewer = new.model_copy(update={"metrics": {"speed": metric.model_copy(update={"runs": metric.runs[:70]})}})
    (row,) = compare([old], [fewer]).rows
    assert row.paired
    assert row.change == pytest.approx(median(b / a for a, b in zip(
        old.metrics["speed"].sessions, metric.sessions, strict=True)) - 1)  # fmt: skip


@pytest.mark.parametrize(
    "times",
    [
        tuple(100.0 + index for index in range(16)),
        tuple(10.0 * index for index in range(15)),
        (),
    ],
    ids=["one after the other", "a session without its time", "no times"],
)
def test_sessions_that_were_not_in_turn_are_no_pairs(times: tuple[float, ...]) -> None:
    old, new = in_turn(1, 0.1)
    comparison = compare([old.model_copy(update={"sessions_at": times})], [new])
    assert {row.paired for row in comparison.rows} == {False}
    assert "Mann-Whitney" in "".join(report.lines(comparison))


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_false_alarms_stay_below_the_stated_rate(correlation: float) -> None:
    alarms = [
        regressed(*(build(2 * seed + side, variation=0.03, correlation=correlation) for side in (0, 1)))
        for seed in range(500)
    ]
    assert sum(alarms) <= 0.01 * len(alarms)


def test_the_rate_holds_where_the_margin_hides_nothing() -> None:
    """Without a margin and without drift the correction alone has to hold the rate: 5 % of 600, within 3 deviations."""
    builds = [build(seed, correlation=0.0, runs=8) for seed in range(1200)]
    pairs = zip(builds[::2], builds[1::2], strict=True)
    alarms = sum(compare([old], [new], false_alarms=0.05, min_change=0).count("regression") > 0 for old, new in pairs)
    assert 0 < alarms <= 600 * 0.05 + 3 * math.sqrt(600 * 0.05 * 0.95)


@pytest.mark.parametrize(("old", "new", "probability"), [
    ([4, 5, 6], [1, 2, 3], 1 / 20),
    ([3, 5, 6], [1, 2, 4], 2 / 20),
    ([1, 2, 3], [4, 5, 6], 1),
    ([1, 1], [1, 1], 4 / 6),
])  # fmt: skip
def test_probabilities_are_those_worked_by_hand(old: Sequence[float], new: Sequence[float], probability: float) -> None:
    assert slower_by_chance(old, new) == pytest.approx(probability)


@pytest.mark.parametrize(("differences", "probability"), [
    ([-1, -2, -3], 1 / 8),
    ([-1, 2, -3], 3 / 8),
    ([1, -2, -3], 2 / 8),
    ([-1, -1, 1], 4 / 8),
    ([0, -1, -2], 2 / 8),
])  # fmt: skip
def test_probabilities_of_signed_ranks_are_those_worked_by_hand(differences: list[float], probability: float) -> None:
    assert lower_by_chance(differences) == pytest.approx(probability)


def test_holm_stops_at_the_first_that_is_not_clear() -> None:
    assert holm([0.001, 0.02, 0.004, 0.03], 0.01) == [True, False, False, False]
    assert holm([0.001, 0.009, 0.003], 0.01) == [True, True, True]


@pytest.mark.parametrize(("tests", "runs", "pairs"), [(1, 5, 7), (4, 6, 9), (20, 7, 11)])
def test_more_metrics_need_more_runs_and_pairs(tests: int, runs: int, pairs: int) -> None:
    assert (samples_needed(tests, 0.01), samples_needed(tests, 0.01, pairs=True)) == (runs, pairs)


def test_runs_of_one_process_are_one_sample() -> None:
    """A process that had bad luck is no slower build, however much its own runs agree."""
    old, unlucky = build(1, runs=10), build(2, runs=10, slower=0.3)
    metrics = {name: metric.model_copy(update={"sessions": ()}) for name, metric in unlucky.metrics.items()}
    comparison = compare([old], [unlucky.model_copy(update={"metrics": metrics})])
    assert comparison.count("undecided") == len(comparison.rows)
    assert {row.sessions for row in comparison.rows} == {(10, 1)}


def test_files_of_one_build_add_their_sessions_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for side, name in enumerate(("old", "new")):
        (tmp_path / name).mkdir()
        for number in range(4):
            write(tmp_path / name / f"{number}.json", build(10 * number + side, runs=2))
    folders = {"old": str(tmp_path / "old"), "new": str(tmp_path / "new")}
    assert perform(**folders, json="-") == 0
    assert {tuple(row["sessions"]) for row in json.loads(capsys.readouterr().out)["rows"]} == {(8, 8)}
    assert perform(old=str(tmp_path / "kept"), new=folders["new"], keep=True) == 0
    (kept,) = read(tmp_path / "kept")
    assert {len(metric.sessions) for metric in kept.metrics.values()} == {8}


def test_one_side_is_of_one_machine() -> None:
    with pytest.raises(BenchInputError, match="results of one side are of different machines or software"):
        compare([build(1), build(2, image="sha256:2")], [build(3)])


def test_a_lower_time_is_better() -> None:
    rows = {row.metric: row for row in compare([build(1)], [build(2, slower=0.1, variation=0.001)]).rows}
    assert rows["tpot_s"].change == pytest.approx(-0.11, abs=0.02)
    assert rows["decode_tokens_per_s"].change == pytest.approx(-0.1, abs=0.02)
    faster = compare([build(2, slower=0.3)], [build(1)])
    assert (faster.count("better"), faster.count("regression")) == (4, 0)


def test_different_machines_are_compared_only_on_request() -> None:
    with pytest.raises(BenchInputError, match=r"the machines differ: instance g5\.xlarge -> g6\.xlarge"):
        compare([build(1)], [build(2, instance="g6.xlarge")])
    notes = compare([build(1)], [build(2, instance="g6.xlarge", driver="590")], across=True).notes
    assert notes == ("changed: instance g5.xlarge -> g6.xlarge", "changed: driver 580.95.05 -> 590")


def test_cells_of_one_side_are_named_and_not_judged() -> None:
    comparison = compare([build(1), build(3, dtype="bf16")], [build(2), build(4, dtype="int8")])
    assert len(comparison.rows) == 4
    assert [note.partition(":")[0] for note in comparison.notes] == ["only in the new result", "only in the old result"]
    with pytest.raises(BenchInputError, match="no cell in common"):
        compare([build(1)], [build(2, batch=8)])


def write(path: Path, result: BenchResult) -> str:
    path.write_text(json.dumps(result.model_dump(by_alias=True)))
    return str(path)


def perform(**flags: Any) -> int:
    old, new = flags.pop("old"), flags.pop("new")
    words = [f"--{name}" if value is True else f"--{name}={value}" for name, value in flags.items()]
    return main(["inv", "bench.compare", old, new, *words])


def test_the_gate_ends_with_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, same = write(tmp_path / "old.json", build(1)), write(tmp_path / "same.json", build(2))
    slow, few = write(tmp_path / "slow.json", build(3, slower=0.1)), write(tmp_path / "few.json", build(4, runs=3))
    markdown = tmp_path / "comparison.md"
    assert perform(old=old, new=same, gate=True) == 0
    assert "none of 4 metrics is worse by more than 5%" in capsys.readouterr().out
    assert perform(old=old, new=slow, gate=True, markdown=str(markdown)) == 1
    assert "| **regression** | batch=1 dtype=int4" in markdown.read_text()
    assert perform(old=old, new=few, gate=True) == 2
    assert "too few sessions: 6 on each side are needed" in capsys.readouterr().out
    assert perform(old=old, new=slow, json="-") == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "regression"


def test_a_kept_result_stays_until_it_is_replaced_on_purpose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kept"
    new = [write(tmp_path / f"{seed}.json", build(seed)) for seed in (1, 2)]
    assert [perform(new=path, old=str(folder), keep=True, gate=True) for path in new] == [0, 0]
    (path,) = folder.glob("*.json")
    assert path == store.path(folder, build(2))
    assert [line.partition(": ")[0] for line in capsys.readouterr().err.splitlines()[1:]] == ["kept", "not kept"]
    assert store.baseline(folder, [build(9)]) == [build(1)]
    assert perform(new=new[1], old=str(folder), replace=True, gate=True) == 0
    assert store.baseline(folder, [build(9)]) == [build(2)]
    slow = write(tmp_path / "slow.json", build(3, slower=0.1))
    assert perform(new=slow, old=str(folder), replace=True, gate=True) == 1
    assert store.baseline(folder, [build(9)]) == [build(2)], "a regression becomes no baseline"


def test_four_per_cent_a_day_fail_in_the_end(tmp_path: Path) -> None:
    codes = []
    for day in range(5):
        slower = build(100 + day, slower=1 - 0.96**day, variation=0.005)
        codes.append(
            perform(new=write(tmp_path / "new.json", slower), old=str(tmp_path / "kept"), keep=True, gate=True)
        )
    assert codes == [0, 0, 1, 1, 1]


def test_after_a_new_driver_the_fastest_before_it_is_the_reference(tmp_path: Path) -> None:
    drivers = {"580": 0.0, "590": 0.04, "595": 0.02}
    results = [build(10, slower=slower, variation=0.001, driver=name) for name, slower in drivers.items()]
    store.keep(tmp_path, results)
    assert store.baseline(tmp_path, [build(11, driver="600")]) == [results[0]]


def gating(result: BenchResult, name: str = "tpot_s") -> BenchResult:
    """The result, of whose metrics one alone gates."""
    metrics = {key: metric.model_copy(update={"gates": key == name}) for key, metric in result.metrics.items()}
    return result.model_copy(update={"metrics": metrics})


def test_a_metric_that_does_not_gate_is_reported_and_fails_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, slow = build(1, variation=0.01), build(2, slower=0.2, variation=0.01)
    mixed = slow.model_copy(update={"metrics": {**slow.metrics, "tpot_s": build(2, variation=0.01).metrics["tpot_s"]}})
    comparison = compare([gating(old)], [gating(mixed)])
    assert (comparison.rows[0].metric, comparison.rows[0].verdict) == ("tpot_s", "same")
    assert {row.verdict for row in comparison.rows[1:]} == {"reported"}
    assert comparison.rows[1].change < -0.15, "its change is there to read"
    assert comparison.needed == 5, "the sessions that one metric takes"
    files = [write(tmp_path / name, gating(result)) for name, result in (("old.json", old), ("new.json", mixed))]
    assert perform(old=files[0], new=files[1], gate=True) == 0
    output = capsys.readouterr().out
    assert "none of 1 metrics is worse" in output
    assert "not judged" in output
    slow_file = write(tmp_path / "slow.json", gating(slow))
    assert perform(old=files[0], new=slow_file, gate=True) == 1
    assert compare([old], [gating(slow)]).judged == 1, "results from before a metric gated have no say"


def test_one_steady_metric_shows_a_tenth_more_often_alone() -> None:
    """Noise of 4 % of the one and of 20 % of the others, in 9 pairs of sessions in turn: Holm shares the rate."""
    shown, alarms = {False: 0, True: 0}, 0
    for seed in range(60):
        for slower in (0.1, 0.0):
            steady, noisy = (in_turn(seed, slower, 9, variation) for variation in (0.04, 0.2))
            old, new = (
                side.model_copy(update={"metrics": {**side.metrics, "tpot_s": own.metrics["tpot_s"]}})
                for side, own in zip(noisy, steady, strict=True)
            )
            alone = compare([gating(old)], [gating(new)], min_change=0.03).count("regression") > 0
            if slower:
                shown[True] += alone
                shown[False] += compare([old], [new], min_change=0.03).count("regression") > 0
            else:
                alarms += alone
    assert shown[True] > 1.2 * shown[False]
    assert alarms <= 1


@pytest.mark.parametrize(("change", "reason"), [
    ({"complete": False}, "it was interrupted"),
    ({"problems": [{"dtype": "int8", "message": "no"}]}, "1 of its jobs could not be measured"),
    ({"doubts": True}, "clocks were held low"),
])  # fmt: skip
def test_a_doubtful_result_is_noted_and_becomes_no_reference(
    change: dict[str, Any], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = build(2).model_dump(by_alias=True)
    if change.pop("doubts", False):
        result["doubts"] = ["clocks were held low"]
    new = tmp_path / "new.json"
    new.write_text(json.dumps({"results": [result], "complete": True, "problems": [], **change}))
    folder = tmp_path / "kept"
    assert perform(old=str(folder), new=str(new), keep=True) == 0
    assert f"not kept: {build(2).label}: {reason}" in capsys.readouterr().err
    assert not folder.exists()
    old = write(tmp_path / "old.json", build(1))
    markdown = tmp_path / "comparison.md"
    assert perform(old=old, new=str(new), gate=True, markdown=str(markdown)) == 0
    assert f"doubt about the new result, {build(2).label}: {reason}" in capsys.readouterr().out
    assert reason in markdown.read_text()


def test_the_same_software_is_the_first_choice_of_baseline(tmp_path: Path) -> None:
    store.keep(tmp_path, [build(1), build(2, image="sha256:2"), build(3, instance="g6.xlarge")])
    assert store.baseline(tmp_path, [build(9)]) == [build(1)]


@pytest.mark.parametrize(("text", "message"), [
    ("{", "not JSON"),
    ("[]", "expected: an object"),
    (
        '{"schema": 1, "key": {}, "metrics": {"a": {"unit": "s", "better": "more", "runs": [1]}}}',
        "metrics.a.better",
    ),
    ('{"schema": 1, "key": {}, "metrics": {"a": {"unit": "s", "better": "lower", "runs": []}}}', "it is empty"),
    ('{"schema": 2, "key": {}, "metrics": {}}', "schema"),
])  # fmt: skip
def test_a_file_that_is_not_a_result_is_explained(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    path.write_text(text)
    assert perform(old=str(path), new=str(path)) == 2
    error = capsys.readouterr().err
    assert str(path) in error
    assert message in error


@pytest.mark.parametrize(("flags", "message"), [
    ({"new": "a", "old": "b", "false-alarms": 0.9}, "--false-alarms is 0.9"),
    ({"new": "pyproject.toml", "old": "none.json"}, "pyproject.toml: not JSON"),
    ({"new": "none.json", "old": "none.json"}, "none.json: cannot be read"),
])  # fmt: skip
def test_a_bad_flag_is_explained(flags: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert perform(**flags) == 2
    assert message in capsys.readouterr().err


def test_markdown_shows_no_foreign_markup() -> None:
    result = build(1, model="a|b <b>@team</b>")
    comparison: Comparison = compare([result], [result])
    assert "a\\|b &lt;b>@\u200bteam&lt;/b>" in report.markdown(comparison)
