"""The command against a real server with a script, faults among them."""

from __future__ import annotations

import gc
import json
import re
import shlex
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock.lab.control_plane import certificates
from paddock.tasks.program import main
from tests.openai.forms import FAILED
from tests.openai.forms import body as published
from tests.support.serving import free_port
from tests.support.waiting import until

from .scripted_server import Reply, ScriptedServer, event, stream


def run(capsys: pytest.CaptureFixture[str], url: str, *words: str) -> tuple[int, dict[str, Any]]:
    """Run the command with --json - and return its exit code and document."""
    code = main(["inv", "bench.load", url, "--prompt", "4", "--new", "4", "--json", "-", *words])
    return code, json.loads(capsys.readouterr().out)


def documented(root: Path) -> list[str]:
    return re.findall(r"^\./inv (bench\.load .*?)(?:\s+#.*)?$", (root / "docs/bench-load.md").read_text(), re.M)


def test_documented_commands_work_at_a_quicker_pace(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def script(_: int, body: Mapping[str, Any]) -> Reply:
        if "messages" not in body:
            return stream(body["max_tokens"], per_chunk=64)
        chunk = {"choices": [{"delta": {"content": "all"}, "finish_reason": "length"}]}
        return Reply([(0, event(chunk | {"usage": {"prompt_tokens": 9, "completion_tokens": 128}}))])

    commands = documented(root)
    assert len(commands) == 4
    quicker = {"http://localhost:8000": "URL", "--rate 20": "--rate 200", "--duration 3": "--duration 0.3"}
    with ScriptedServer(script).running() as server:
        for command in commands:
            for written, given in quicker.items():
                command = command.replace(written, given)
            code = main(["inv", *shlex.split(command.replace("URL", server.url))])
            output = capsys.readouterr().out
            assert re.search(r"(\d+) of \1 requests succeeded|\"failures\": {}", output), output
            # On a busy machine the client may be late, which the run says of itself.
            assert code == 0 or "the client " in output, output


def test_an_engine_of_known_pace_gets_its_own_figures(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(lambda *_: stream(7, first=0.2, gap=0.1, per_chunk=3)).running() as server:
        code, report = run(capsys, server.url, "--concurrency", "3", "--requests", "3", "--warm-up", "3")
    latency = report["latency_ms"]
    assert code == 0
    assert report["tokens"]["counted_by"] == {"token ids": 3}
    # Another way of counting gives 100 ms a chunk, and 500 with the queue of the warm-up: also far on a busy machine.
    assert latency["ttft"]["p50"]["value"] == pytest.approx(200, rel=1)
    assert latency["tpot"]["p50"]["value"] == pytest.approx(200 / 6, rel=1)
    assert latency["itl"]["p50"]["value"] == pytest.approx(100 / 3, rel=1)
    assert report["requests"]["warm_up"] == 3
    assert report["peak_concurrency"] == 3


def test_an_open_loop_charges_a_stall_to_all_who_came(capsys: pytest.CaptureFixture[str]) -> None:
    one_at_a_time = threading.Lock()

    def script(number: int, body: Mapping[str, Any]) -> Reply:
        with one_at_a_time:
            if number == 1:
                threading.Event().wait(1.0)
        return stream(4)

    with ScriptedServer(script).running() as server:
        rate = ("--rate", "20", "--constant", "--requests", "20", "--slo", "ttft=100")
        _, report = run(capsys, server.url, *rate)
    # Twenty arrivals in one second, while the server stalls: half of them wait for half a second and more.
    assert report["latency_ms"]["ttft"]["p50"]["value"] > 350
    assert report["goodput"]["attained"] < 0.5


def test_a_trace_is_sent_with_its_own_lengths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(f'{{"arrival": {n / 10}, "prompt": {n + 2}, "new": {n + 1}}}\n' for n in range(4)))
    with ScriptedServer(lambda _, body: stream(body["max_tokens"])).running() as server:
        _, report = run(capsys, server.url, "--trace", str(trace), "--rate", "40", "--warm-up", "1")
    sent = sorted((len(body["prompt"].split()), body["max_tokens"]) for body in server.bodies[1:])
    assert sent == [(2, 1), (3, 2), (4, 3), (5, 4)]
    assert (report["requests"]["measured"], report["tokens"]["mean_new"]) == (3, 3)
    assert report["load"]["mean_rate"] == pytest.approx(30)  # three gaps of what was four requests in 0.1 s


def test_a_duration_ends_a_closed_loop(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(lambda *_: stream(2, first=0.05)).running() as server:
        _, report = run(capsys, server.url, "--duration", "0.4", "--concurrency", "1", "--warm-up", "2")
    assert report["requests"]["warm_up"] == 2
    assert 1 <= report["requests"]["measured"] <= 8


def test_extensions_that_are_refused_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    def script(_: int, body: Mapping[str, Any]) -> Reply:
        if {"ignore_eos", "min_tokens", "return_token_ids"} & body.keys():
            return Reply([(0, b'{"error": "unknown field"}')], 400)
        return stream(2, ids=False)

    with ScriptedServer(script).running() as server:
        code, report = run(capsys, server.url, "--requests", "4")
    assert code == 0
    assert report["endpoint"]["extensions"] == ["stream_options"]
    assert report["tokens"]["counted_by"] == {"usage, spread over the chunks": 4}
    assert server.bodies[-1]["model"] == "scripted"


OPENAI = {
    "max_tokens": "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
    "temperature": "Unsupported value: 'temperature' does not support 0 with this model. Only the default (1) is.",
}


def reasoning_model(_: int, body: Mapping[str, Any]) -> Reply:
    """Answer as OpenAI's reasoning models do: they refuse the limit of engines, and every temperature."""
    for name, words in OPENAI.items():
        if name in body:
            return Reply([(0, json.dumps({"error": {"message": words, "param": name}}).encode())], 400)
    return stream(body["max_completion_tokens"])


def test_a_server_without_max_tokens_is_asked_in_its_dialect(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ((), ("--dialect", "openai")):
        with ScriptedServer(reasoning_model).running() as server:
            code, report = run(capsys, server.url, "--requests", "4", *words)
        assert code == 0
        assert "max_completion_tokens" in report["endpoint"]["extensions"]
        assert report["tokens"]["mean_new"] == 4
        assert not OPENAI.keys() & server.bodies[-1].keys()


def test_a_refusal_of_max_tokens_names_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(reasoning_model).running() as server:
        assert main(["inv", "bench.load", server.url, "--dialect", "engines"]) == 1
    message = capsys.readouterr().err
    assert "HTTP 400" in message
    assert "fix: --dialect openai, or leave --dialect out" in message


def test_a_server_that_refuses_the_temperature_alone_keeps_max_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    def script(_: int, body: Mapping[str, Any]) -> Reply:
        if "temperature" in body:
            return Reply([(0, OPENAI["temperature"].encode())], 422)
        return stream(body["max_tokens"])

    with ScriptedServer(script).running() as server:
        code, report = run(capsys, server.url, "--requests", "4")
    assert (code, report["tokens"]["mean_new"]) == (0, 4)
    assert "max_completion_tokens" not in report["endpoint"]["extensions"]


def whole(body: Mapping[str, Any]) -> list[bytes]:
    """Return the events of a whole answer in a chat: the role, content null, the tokens, the end and the usage."""
    words = [{"role": "assistant", "content": None}, *[{"content": "w "}] * body["max_tokens"], {}]
    chunks = [{"choices": [{"index": 0, "delta": word, "finish_reason": None}], "error": None} for word in words]
    chunks[-1]["choices"][0]["finish_reason"] = "length"
    usage = {"usage": {"completion_tokens": body["max_tokens"]}}
    return [b": keep-alive\n\n", *map(event, [*chunks, usage]), b"data: [DONE]\n"]


def test_every_published_error_in_a_stream_is_a_failed_request(capsys: pytest.CaptureFixture[str]) -> None:
    def script(number: int, request: Mapping[str, Any]) -> Reply:
        failed = 0 < number <= len(FAILED)  # the probe is number 0
        return Reply([(0, published(FAILED[number - 1]) if failed else b"".join(whole(request)))])

    with ScriptedServer(script).running() as server:
        url, count = f"{server.url}/v1/chat/completions", len(FAILED) + 3
        code, report = run(capsys, url, "--requests", str(count), "--concurrency", "1")
    assert code == 1
    assert (report["valid"], report["requests"]["succeeded"], report["tokens"]["mean_new"]) == (False, 3, 4)
    failures = {kind: of_kind["count"] for kind, of_kind in report["requests"]["failures"].items()}
    assert failures == {"server error": len(FAILED) - 2, "closed early": 2}
    assert "Context size has been exceeded." in report["requests"]["failures"]["server error"]["first"]


FAULTS = {
    "cut": (Reply([(0, event({"choices": [{"text": "a"}]}))], cut=True), "closed early"),
    "malformed": (Reply([(0, b"data: {oops\n\n")]), "malformed"),
    "refusal": (Reply([(0, b"busy")], 503, {"Retry-After": "0"}), "HTTP status"),
    "silence": (Reply([(6, b"")]), "timeout"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_counted_by_its_kind(fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    reply, kind = FAULTS[fault]
    # The probe is number 0; the last request is good.
    with ScriptedServer(lambda number, _: reply if number == 1 else stream(4)).running() as server:
        code, report = run(capsys, server.url, "--requests", "2", "--concurrency", "1", "--timeout", "1")
    assert code == 1
    assert report["requests"]["succeeded"] == 1
    assert {name: failures["count"] for name, failures in report["requests"]["failures"].items()} == {kind: 1}
    assert report["problems"] == ["1 of 2 requests failed: more than 1%"]


@pytest.mark.parametrize(("reply", "message"), [
    (None, "cannot connect to 127.0.0.1"),
    (Reply([(0, b"<html>welcome</html>")]), "a page of HTML, not a stream: <html>welcome</html>"),
    (Reply([(0, b'{"choices": [{"text": "all"}]}')]), "one whole answer, and a stream was asked for"),
    (Reply([(0, b"who are you")], 401), "HTTP 401: who are you\n    fix: name the environment variable"),
    (Reply([(0, b"nothing here")], 404), "HTTP 404: nothing here\n    expected: a streamed answer of OpenAI's"),
])  # fmt: skip
def test_no_endpoint_says_what_came_back(reply: Reply | None, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    if reply is None:
        assert main(["inv", "bench.load", f"http://127.0.0.1:{free_port()}"]) == 1
    else:
        with ScriptedServer(lambda *_: reply).running() as server:
            assert main(["inv", "bench.load", server.url]) == 1
    assert message in capsys.readouterr().err


# asyncio in Python 3.11 leaves the socket of a refused certificate to the garbage collector, which warns in whichever
# test runs then; here it is collected, and the warning ignored.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_a_certificate_is_verified_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    identity, context = certificates.create(tmp_path), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    with ScriptedServer(lambda *_: stream(2), context).running() as server:
        assert main(["inv", "bench.load", server.url]) == 1
        assert "local issuer certificate\n    fix: trust the server's authority" in capsys.readouterr().err
        assert server.bodies == []
        code, report = run(capsys, server.url, "--requests", "2", "--insecure")
    assert (code, report["problems"]) == (0, [])
    assert report["endpoint"]["tls_verified"] is False
    gc.collect()


def test_the_key_reaches_the_server_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVER_KEY", "sk-secret")
    with ScriptedServer(lambda *_: stream(2)).running() as server:
        main(["inv", "bench.load", server.url, "--requests", "2", "--key-env", "SERVER_KEY", "--json", "-"])
    assert set(server.keys) == {"Bearer sk-secret"}
    output = capsys.readouterr()
    assert "secret" not in output.out + output.err


@pytest.mark.parametrize(("words", "message"), [
    (["ftp://x"], "URL: 'ftp://x' is not the address"),
    (["http://me:pw@x"], "fix: put the key into an environment variable"),
    (["x", "--rate", "0"], "--rate is 0"),
    (["x", "--rate", "1", "--concurrency", "2"], "--concurrency: a closed loop has no schedule"),
    (["x", "--burstiness", "2"], "--burstiness: it shapes the gaps of --rate"),
    (["x", "--prompt", "9-3"], "--prompt: '9-3' is not a number of tokens"),
    (["x", "--key-env", "NO_SUCH"], "the environment variable NO_SUCH is not set"),
    (["x", "--dialect", "opnai"], "--dialect: there is no dialect 'opnai'\n    expected: did you mean openai?"),
    (["x", "--slo", "llama3.1-8b-servr"], "did you mean llama3.1-8b-server?"),
    (["x", "--json", "/no/such/folder/x.json"], "cannot write /no/such/folder/x.json"),
])  # fmt: skip
def test_a_bad_flag_is_refused_before_anything_is_sent(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inv", "bench.load", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.door("bench.load", "an HTTP server that stops in its answers", interrupted=True)
def test_an_interrupted_load_keeps_what_it_has(root: Path, tmp_path: Path) -> None:
    with ScriptedServer(lambda number, _: stream(4, gap=0.0 if number < 5 else 20.0)).running() as server:
        command = [sys.executable, str(root / "inv"), "bench.load", server.url, "--concurrency", "2"]
        command += ["--requests", "50", "--new", "4", "--prompt", "4", "--json", str(tmp_path / "result.json")]
        load = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        until(lambda: len(server.bodies) >= 7)
        load.send_signal(signal.SIGINT)
        output, errors = load.communicate(timeout=60)
    assert (load.returncode, b"Traceback" in errors) == (130, False)
    assert b"interrupted: these are the results until then" in output
    report = json.loads((tmp_path / "result.json").read_text())
    assert (report["complete"], report["requests"]["succeeded"], report["requests"]["unfinished"]) == (False, 4, 2)
