"""A whole benchmark: workers that work, hang, die and are interrupted."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paddock.bench.engines.door import BenchJob
from paddock.bench.errors import BenchInputError
from paddock.bench.measurement import energy
from paddock.bench.report.model import BenchDocument
from paddock.bench.report.page import page
from paddock.bench.report.text import lines
from paddock.bench.runner import process, worker
from paddock.bench.runner.plan import Options
from paddock.bench.runner.run import run
from paddock.gpu.inventory import inventory
from paddock.gpu.leases.manager import Leases
from paddock.models.shapes import shape
from paddock.modes.admission import DoesNotFit
from paddock.modes.policy import Adaptive, GpuCap, Policy, of_mode
from paddock.tasks.program import main
from tests.support.model_files import checkpoint, llama_8b, llama_tensors
from tests.support.nvml import Driver, box, installed
from tests.support.packages import need
from tests.support.waiting import until

OPTIONS = Options(
    shape("tiny"), "", "torch", ("bf16", "int8", "fp32"), (1,), (16,), 8, 3, 1, "us-east-1", None
)  # fmt: skip

STAND_IN = """
import json, sys, time
jobs = json.loads(sys.argv[1])
def say(**event): print(json.dumps(event), flush=True)
for number, job in enumerate(jobs):
    say(event="job", number=number)
    say(event="loaded", kernel="none", weight_bytes=1e6, cache_element=2, load_s=1.0, quantise_s=0.0,
        computed="bf16", notes=[], tflops=1.0)
    if job["dtype"] == "int8":
        FAULT
    say(event="cell", batch=1, prompt=16, prefill=[0.1] * 3, runs=[[0.01] * 7] * 3, wall=[0.07] * 3,
        engine=[0.07] * 3, calls=[0.01] * 3, compile_s=0.0, step="eager", eager_because="", seconds=1.0,
        paused=[0.0] * 3, joules=None, requests=4, bandwidth=[10.0] * 8, reported=[], inside=0.0, together=0,
        others=None, memory=10**9,
        began=time.monotonic() - 1.0, started_at=time.time(), in_turn=False)
"""


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(energy, "IDLE_SECONDS", 0.3)
    with installed(Driver([])) as driver:
        yield driver


def stand_in(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    monkeypatch.setattr(process, "_START", STAND_IN.replace("FAULT", fault))


@pytest.mark.parametrize(("fault", "message"), [
    ("time.sleep(600)", "no answer within 2 s"),
    ("sys.exit(3)", r"it failed \(3\)"),
    ("import os; os.kill(os.getpid(), 9)", "ended by SIGKILL"),
    ("say(event='failed', message='too large', code=2); continue", "too large"),
])  # fmt: skip
def test_a_job_that_fails_leaves_the_others_measured(fault: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, fault)
    document = run(OPTIONS, silent_for=2.0 if "sleep" in fault else 60.0)
    assert [result.key["dtype"] for result in document.results] == ["bf16", "fp32"]
    (problem,) = document.problems
    assert problem.dtype == "int8"
    assert re.search(message, problem.message)
    assert document.exit_code == 1


def test_an_interrupt_keeps_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "time.sleep(600)")

    def interrupt(line: str) -> None:
        if "int8" in line:
            raise KeyboardInterrupt

    document = run(OPTIONS, interrupt)
    assert [result.key["dtype"] for result in document.results] == ["bf16"]
    assert not document.complete
    assert document.exit_code == 130
    assert list(lines(document))[-1].startswith("interrupted")


def test_numbers_of_a_cell_follow_from_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "pass")
    result = run(OPTIONS).results[0]
    assert result.tokens_per_s == pytest.approx(100.0)
    assert result.metrics["request_tokens_per_s"].runs == pytest.approx((8 / 0.17,) * 3)
    assert result.ttft.median == pytest.approx(100.0)
    assert result.prefill_tokens_per_s == pytest.approx(160.0)
    cache = 2 * 4 * 4 * 32 * 2  # K and V of 4 layers, 4 heads of 32, two bytes each
    assert result.roofline.bytes_per_step == pytest.approx(1e6 + (16 + 8 / 2 + 1) * cache)
    assert result.roofline.of_measured == pytest.approx(result.roofline.bytes_per_step / 10e9 / 0.01)
    assert result.energy is None
    assert result.doubts == ()


def test_slow_steps_do_not_move_the_quick_step_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    text = STAND_IN.replace("[[0.01] * 7] * 3", "[[0.05] * 16 + [0.01] * 4] * 3").replace("FAULT", "pass")
    monkeypatch.setattr(process, "_START", text)
    metrics = run(OPTIONS).results[0].metrics
    assert metrics["step_p10_ms"].runs == pytest.approx((10.0,) * 3)
    assert metrics["decode_tokens_per_s"].runs == pytest.approx((20 / 0.84,) * 3)


def test_modes_limit_batches_and_sort_results(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "pass")
    modes = {"small": of_mode("conservative")}
    document = run(replace(OPTIONS, batches=(1, 4, 8), modes=modes, dtypes=("bf16",)))
    assert {result.key["mode"] for result in document.results} == {"small"}
    assert any(line.startswith("bf16 small") and "100%" in line for line in lines(document))


def test_sessions_are_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "sys.exit(3)")
    document = run(replace(OPTIONS, sessions=3))
    assert [result.key["dtype"] for result in document.results] == ["bf16", "fp32"]
    assert len(document.problems) == 1
    first = document.results[0]
    metric = first.metrics["ttft_ms"]
    assert (len(metric.runs), metric.sessions) == (9, pytest.approx((100.0,) * 3))
    assert len(first.sessions_at) == 3
    assert list(first.sessions_at) == sorted(first.sessions_at)


def test_benchmarks_on_a_gpu_take_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "pass")
    with (
        installed(Driver(box("H100", 1))),
        pytest.raises(BenchInputError, match="--in-turn: a GPU is leased to one benchmark at a time"),
    ):
        run(replace(OPTIONS, in_turn=7700))


def test_runs_without_a_turn_are_a_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "pass")
    for result in run(replace(OPTIONS, in_turn=7700)).results:
        assert "the other benchmark ended early: not every run was in turn" in result.doubts
        assert not result.in_turn


def test_a_cap_that_the_driver_refuses_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "pass")
    options = replace(OPTIONS, dtypes=("bf16",), modes={"quiet": Policy(gpu=GpuCap(power_watts=200))})
    assert run(options).notes[-1] == "quiet: no GPU to cap"
    with installed(Driver(box("H100", 1))):
        assert re.match("quiet: GPU 0 is not capped: .+", run(options).notes[-1])


def test_a_job_pauses_longer_while_others_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    need("psutil")
    monkeypatch.setattr(worker, "adapting", partial(worker.adapting, interval=0.01))
    policy = Policy(adaptive=Adaptive())
    with installed(Driver(box("H100", 1, processes=((41, 500),)))):
        uuids = tuple(gpu.uuid or "" for gpu in inventory().gpus)
        limits: dict[str, Any] = {"mode": "own", "policy": policy.model_dump(mode="json")}
        job = BenchJob(OPTIONS.shape, "bf16", "cuda", (1,), (8,), 8, 1, 1, "torch", uuids=uuids, **limits)
        with worker.pacing(job) as turns:

            def pause() -> float:
                with turns(1) as paused:
                    time.sleep(0.02)
                return paused

            until(lambda: pause() > 0.1)  # without others 5 ms, or the 50 ms between two starts


@pytest.mark.e2e
@pytest.mark.parametrize(("engine", "package", "dtypes"), [
    ("", "xllamacpp", ["int8", "int4"]), ("torch", "torchao", ["bf16", "int8"]),
])  # fmt: skip
def test_a_machine_without_a_gpu_gets_every_number(
    engine: str, package: str, dtypes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    need(package)
    words = [
        "--model",
        "tiny",
        "--prompt",
        "16",
        "--new",
        "8",
        "--runs",
        "2",
        *(["--engine", engine] if engine else []),
    ]
    files = ["--json", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html")]
    assert main(["inv", "bench", *words, *files]) == 0
    document = BenchDocument.model_validate_json((tmp_path / "r.json").read_text())
    assert document.engine == (engine or "llama.cpp")
    assert [result.key["dtype"] for result in document.results] == dtypes
    for result in document.results:
        # Where other programs keep this one from its processor, tokens that waited come at once: that is doubted then.
        late = any("by this clock" in doubt for doubt in result.doubts)
        assert 0 < result.roofline.of_measured < (math.inf if late else 1.5)
        assert result.memory_bytes > 10**6
        assert result.cost
        assert (result.clocks is None) == (engine == "torch")
    assert document.environment["packages"][package]
    output = capsys.readouterr().out
    assert "its text means nothing" in output
    assert "measured on the CPU" in output
    html = (tmp_path / "r.html").read_text()
    assert (html.count('class="plot"'), html.count(" of the roof</title>")) == (1, 2)
    assert "its text means nothing" in html


@pytest.mark.e2e
def test_after_a_killed_worker_the_next_one_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("psutil", "xllamacpp")
    import psutil

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    others = {child.pid for child in psutil.Process().children()}

    def kill(line: str) -> None:
        if line.startswith("tiny int8: writing"):
            (worker,) = [child for child in psutil.Process().children() if child.pid not in others]
            worker.kill()

    document = run(replace(OPTIONS, engine="llama.cpp", dtypes=("int8", "int4"), runs=1), kill)
    assert [result.key["dtype"] for result in document.results] == ["int4"]
    assert "ended by SIGKILL" in document.problems[0].message
    assert document.exit_code == 1
    assert not list(tmp_path.glob("tmp*")), "no weights stay"


def test_page_shows_doubts_and_escapes_names(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "sys.exit(3)")
    document = run(OPTIONS)
    html = page(document.model_copy(update={"model": {**document.model, "name": "<script>"}}))
    assert "<script>" not in html
    assert "it failed (3)" in html


def refusal(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    """Return the message with which a benchmark is refused."""
    assert main(["inv", "bench", *words]) == code
    return capsys.readouterr().err


@pytest.mark.parametrize(("words", "message"), [
    ("--model llama-3.1-8", r"llama-3\.1-8b"),
    ("--dtype int5", "did you mean int8"),
    ("--batch 0", "--batch: '0' is not a number above 0"),
    ("--new 1", "--new is 1\n    expected: 2 or more"),
    ("--model tiny --prompt 5000", "at most 4096 together"),
    ("--engine lama.cpp", "did you mean llama.cpp"),
    ("--engine vLLM", r"fix: start it, and .* bench\.load --url"),
    ("--dtype fp8 --engine llama.cpp", "'fp8' is not a number format of llama.cpp"),
    ("--cache-type q9_0 --engine llama.cpp", "--cache-type: llama.cpp has no 'q9_0'"),
    ("--cache-type q8_0 --engine torch", "--cache-type q8_0: torch keeps"),
    ("--threads 2 --engine torch", "--threads: torch chooses its own\n.*\n.*OMP_NUM_THREADS"),
    ("--batch 300 --engine llama.cpp", "llama.cpp computes at most 256 rows at once, not 300"),
    ("--metrics 0", "--metrics is 0"),
    ("--metrics 65536", "--metrics is 65536"),
    ("--in-turn 0", "--in-turn is 0"),
])  # fmt: skip
def test_a_bad_flag_is_a_sentence_before_anything_runs(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert re.search(message, refusal(capsys, *words.split()))


def test_a_path_names_what_its_engine_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(llama_8b(tmp_path / "model.gguf"))
    folder = str(checkpoint(tmp_path / "folder", model=llama_tensors()))
    for words, message in (
        (["--model", file, "--dtype", "int4"], r"--dtype int4: .* are Q4_K in the file\n.*expected: no --dtype"),
        (["--model", file, "--engine", "torch"], r"torch: .* is a \.gguf file(.|\n)*fix: --engine llama.cpp"),
        (["--model", folder], r"--engine llama\.cpp: .* is a checkpoint(.|\n)*fix: --engine torch reads it"),
    ):
        assert re.search(message, refusal(capsys, *words))


def test_output_that_cannot_be_written_is_said_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--json", "--html"):
        assert "cannot write" in refusal(capsys, "--model", "tiny", flag, str(tmp_path / "absent" / "r"))


@pytest.mark.parametrize(("engine", "package"), [("llama.cpp", "xllamacpp"), ("torch", "torch")])
def test_without_its_package_an_engine_says_what_to_install(
    engine: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("paddock.bench.commands.bench.find_spec", lambda _: None)
    message = rf"{package} is not installed here, and .*\n.*fix: ./inv bench --engine {engine}"
    assert re.search(message, refusal(capsys, "--model", "tiny", "--engine", engine, code=1))


def test_the_document_says_what_its_reader_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "pass")
    document = json.loads(run(OPTIONS).model_dump_json())
    assert document["kind"] == "paddock-bench"
    (first, *_) = document["results"]
    assert set(first["metrics"]) == {"decode_tokens_per_s", "request_tokens_per_s", "ttft_ms", "step_p10_ms"}
    key = {"instance", "gpu", "driver", "image", "ami", "engine", "model", "dtype", "batch", "mode"}
    assert key <= set(first["key"])


@pytest.mark.parametrize("engine", ["llama.cpp", "torch"])
def test_a_model_larger_than_memory_is_refused_before_it_is_written(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_START", "raise SystemExit('it began')")
    with pytest.raises(DoesNotFit, match=r"needs \d+\.\d GiB.*\n.*at most.*\n.*fix: a smaller model") as refused:
        run(replace(OPTIONS, engine=engine, dtypes=(), shape=shape("llama-3.1-70b"), prompts=(64_000,), batches=(64,)))
    assert refused.value.exit_code == 2


def test_a_gpu_of_the_fake_driver_is_leased_and_held_against_its_data_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "pass")
    during: list[str] = []

    def note_leases(line: str) -> None:
        if "loading" in line and not during:
            during.extend(lease.command or "" for lease in Leases().held())

    with installed(Driver(box("H100", 3))):
        document = run(replace(OPTIONS, dtypes=("bf16",)), note_leases)
        assert Leases().held() == ()
    assert during == ["paddock bench"]
    assert (document.device["kind"], document.device["catalogue"], document.device["count"]) == ("cuda", "h100", 1)
    (result,) = document.results
    assert result.roofline.datasheet_gbs == 3350
    assert result.roofline.of_datasheet == pytest.approx(result.roofline.bytes_per_step / 3350e9 / 0.01, rel=0.01)
    assert [cost.instance.split(".")[0] for cost in result.cost].count("p5") == 1
