"""llama.cpp through its server: rows, clocks, texts, and each way in which it cannot go on."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.cells import job
from tests.support.packages import need

need("gguf", "numpy", "psutil", "xllamacpp")

import gguf as library
import numpy as np

from paddock.bench.engines import llama_request
from paddock.bench.engines.door import BenchJob
from paddock.bench.engines.llama import LlamaEngine
from paddock.bench.errors import BenchError, BenchInputError
from paddock.models import random_gguf
from paddock.models.shapes import shape
from tests.support.explore import examples
from tests.support.http_server import Handler, serving

TINY = shape("tiny")
JOB = job(TINY, "int4", 2, 32, threads=1)
"""One thread: more would wait for each other on a busy machine."""


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    engine = LlamaEngine()
    engine.load(JOB)
    yield engine
    engine.unload()


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    random_gguf.write(path, TINY, "int8")
    return path


def prompts(rows: int = 2, length: int = 8) -> Any:
    return np.random.default_rng(0).integers(0, TINY.vocabulary, (rows, length))


def decoded(engine: LlamaEngine, rows: int = 2, new: int = 8) -> dict[str, float]:
    engine.prepare(rows, 8 + new)
    token = engine.prefill(prompts(rows))
    for _ in range(new - 1):
        token = engine.decode(token)
    return dict(engine.finish())


def refusal(job: BenchJob) -> str:
    engine = LlamaEngine()
    with pytest.raises(BenchInputError) as refused:
        engine.load(job)
    assert refused.value.exit_code == 2
    assert "\n    expected: " in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("rows", [1, 2])
def test_rows_decode_together(engine: LlamaEngine, rows: int) -> None:
    report = decoded(engine, rows)
    assert (report["tokens"], report["together"]) == (8 * rows, 0)
    assert 0 < report["prefill_s"] < 60
    assert 0 < report["decode_s"] < 60
    engine.check()
    assert engine.finish() == {}


def test_a_request_that_is_left_holds_nothing_up(engine: LlamaEngine) -> None:
    engine.prepare(2, 32)
    engine.prefill(prompts())
    assert decoded(engine)["tokens"] == 16


def test_more_steps_than_tokens_are_refused(engine: LlamaEngine) -> None:
    engine.prepare(1, 9)
    engine.prefill(prompts(1))
    with pytest.raises(BenchError, match="asked for 1 tokens"):
        engine.decode(None)


def test_a_prompt_without_room_is_the_servers_to_refuse(engine: LlamaEngine) -> None:
    engine.prepare(1, 100_010)
    with pytest.raises(BenchError, match=r"server failed: .*context"):
        engine.prefill(prompts(1, 100_000))


@pytest.mark.parametrize("architecture", ["mistral", "qwen2", "qwen3"])
def test_random_weights_load_as_each_architecture(architecture: str) -> None:
    engine = LlamaEngine()
    info = engine.load(replace(JOB, shape=replace(TINY, architecture=architecture, tied=False), dtype="q4_k"))
    assert decoded(engine)["tokens"] == 16
    assert info.computed == ""
    assert "Q4_K" in info.kernel
    assert 0 < info.weight_bytes < random_gguf.nbytes(TINY, "q5_k")
    engine.unload()


def test_all_places_of_a_model_are_used() -> None:
    engine = LlamaEngine()
    engine.load(replace(JOB, shape=replace(TINY, max_length=256), prompts=(254,)))
    assert decoded(engine, new=248)["tokens"] == 496
    engine.unload()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a file without a name")
def test_no_file_stays_of_a_process_that_is_killed(tmp_path: Path) -> None:
    program = """if True:
        import os, signal
        from paddock.bench.engines.llama import _random
        from paddock.models.shapes import shape
        from tests.bench.cells import job
        with _random(job(shape("tiny"), "int4")) as path:
            print(path.stat().st_size, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert (int(done.stdout) > 10**6, done.returncode) == (True, -signal.SIGKILL)
    assert not list(tmp_path.iterdir())


def test_a_file_is_loaded_as_it_is(file: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    engine = LlamaEngine()
    info = engine.load(replace(JOB, source=str(file), cache="q8_0"))
    assert decoded(engine)["tokens"] == 16
    assert (info.cache_element, info.computed, info.notes) == (34 / 32, "", ())
    assert info.kernel.endswith("1 thread")
    assert 0 < engine.memory() < 2**34
    assert signal.getsignal(signal.SIGINT) is before
    engine.unload()


@given(text=st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0")))
@examples(30, 300)
def test_any_text_is_read_and_written_again(engine: LlamaEngine, text: str) -> None:
    server = engine._server.listening_address.removeprefix("http://")
    connection = http.client.HTTPConnection(server, timeout=60)

    def ask(path: str, body: object) -> Any:
        connection.request("POST", path, json.dumps(body), {"Authorization": f"Bearer {engine._key}"})
        return json.loads(connection.getresponse().read())

    tokens = ask("/tokenize", {"content": text})["tokens"]
    assert ask("/detokenize", {"tokens": tokens})["content"] == text
    connection.close()


def test_nobody_else_is_answered(engine: LlamaEngine) -> None:
    connection = http.client.HTTPConnection(engine._server.listening_address.removeprefix("http://"), timeout=60)
    connection.request("POST", "/completion", json.dumps({"prompt": "a"}))
    assert connection.getresponse().status == 401
    connection.close()


def test_a_format_that_is_not_written_is_refused() -> None:
    assert "'fp8' are not written" in refusal(replace(JOB, dtype="fp8"))


def changed(file: Path, folder: Path, tensor: str, value: float) -> str:
    damaged = folder / "damaged.gguf"
    damaged.write_bytes(file.read_bytes())
    reader = library.GGUFReader(damaged, "r+")
    next(one for one in reader.tensors if one.name == tensor).data[0] = value
    reader.data.flush()
    return str(damaged)


def test_a_file_is_refused_with_the_reason_of_llama(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(file.read_bytes().replace(b"llama", b"lxama"))
    assert "unknown model architecture: 'lxama'" in refusal(replace(JOB, source=str(other)))
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(file.read_bytes()[:-5000])
    assert "it is cut off" in refusal(replace(JOB, source=str(cut)))
    nan = changed(file, tmp_path, "output_norm.weight", np.nan)
    assert "tensors with invalid data" in refusal(replace(JOB, source=nan))


def test_a_template_beyond_llama_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_gguf, "_TEMPLATE", "{% unknown %}")
    random_gguf.write(tmp_path / "model.gguf", TINY, "int4")
    engine = LlamaEngine()
    engine.load(replace(JOB, source=str(tmp_path / "model.gguf")))
    assert decoded(engine)["tokens"] == 16
    engine.unload()


def test_results_of_a_damaged_file_are_not_believed(file: Path, tmp_path: Path) -> None:
    engine = LlamaEngine()
    engine.load(replace(JOB, source=changed(file, tmp_path, "output_norm.weight", 3e38)))
    decoded(engine)
    with pytest.raises(BenchError, match="not finite"):
        engine.check()
    engine.unload()


def test_without_a_wheel_another_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(BenchError, match=r"xllamacpp(.|\n)*fix: --engine torch"):
        LlamaEngine().load(JOB)


class Recorded(Handler):
    """A server that says what it is told."""

    answer: tuple[object, ...] = ()
    silent = False

    def do_POST(self) -> None:
        self.body()
        self.send_response(200)
        self.end_headers()
        for event in self.answer:
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        while self.silent:
            try:
                self.wfile.write(b":\n\n")
            except OSError:
                return


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[LlamaEngine, type[Recorded]]]:
    handler = type("Once", (Recorded,), {})
    engine = LlamaEngine()
    with serving(handler) as address:
        monkeypatch.setattr(engine, "_server", type("Server", (), {"listening_address": address}))
        engine.prepare(1, 8 + 3)
        yield engine, handler
        engine.unload()


def made(count: int, **more: object) -> dict[str, object]:
    return {"index": 0, "stop": False, "tokens_predicted": count, **more}


def test_a_token_that_was_kept_back_counts_when_it_comes(recorded: tuple[LlamaEngine, type[Recorded]]) -> None:
    engine, server = recorded
    timings = {"prompt_ms": 1, "predicted_ms": 2, "predicted_n": 3}
    server.answer = (None, made(1), made(3), made(3, stop=True, timings=timings))
    token = engine.prefill(prompts(1))
    for _ in range(2):
        token = engine.decode(token)
    report = engine.finish()
    assert (report["together"], report["tokens"], report["decode_s"]) == (1, 3, 0.002)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((made(1), {"error": {"code": 500, "message": "Compute error."}}), "failed: Compute error."),
        ((made(1),), "ended the answer before its last token"),
        ((made(1), made(2, stop=True, stop_type="eos")), r"after 2 of 3 tokens \(eos\)"),
    ],
)
def test_an_answer_that_breaks_off_is_an_error(
    answer: tuple[object, ...], why: str, recorded: tuple[LlamaEngine, type[Recorded]]
) -> None:
    engine, server = recorded
    server.answer = answer
    token = engine.prefill(prompts(1))
    with pytest.raises(BenchError, match=why):
        engine.decode(token)


def test_signs_of_life_are_not_tokens(
    recorded: tuple[LlamaEngine, type[Recorded]], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, server = recorded
    server.silent = True
    monkeypatch.setattr(llama_request, "_PATIENCE", 0.2)
    with pytest.raises(BenchError, match=r"no token within 0\.2 s"):
        engine.prefill(prompts(1))


@pytest.mark.e2e
def test_its_clock_and_ours_agree() -> None:
    engine, new = LlamaEngine(), 16
    engine.load(job(shape("qwen3-0.6b"), "int4", length=8 + new, threads=1))
    engine.prepare(1, 8 + new)
    ratios, parts = [], []
    for _ in range(5):
        token = engine.prefill(prompts(1))
        start = time.perf_counter()
        for _ in range(new - 1):
            token = engine.decode(token)
        ours = time.perf_counter() - start
        report = engine.finish()
        ratios.append(ours / report["decode_s"])
        parts.append(report["harness_s"] / ours)
    engine.unload()
    assert sorted(ratios)[2] == pytest.approx(1, abs=0.03)
    assert sorted(parts)[2] < 0.01
