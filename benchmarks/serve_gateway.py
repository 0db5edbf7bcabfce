#!/usr/bin/env python3
"""What the gateway adds to a request and to a token, beside its engine asked directly.

    .venv/bin/python benchmarks/serve_gateway.py [--model FILE.gguf] [--rounds N] [--only stand-in|llama.cpp]

Starts `python -m paddock.serve.gateway` before two engines, each a process of its own, and asks each in turn directly
and through the gateway, on kept connections, so that a machine that slows down slows both:

- a stand-in that computes nothing: it streams as many answers as are asked for at 50 tokens/s each. It writes the time
  into every token, so that the delay of one is known to the microsecond (one clock serves all processes of a machine).
- llama.cpp's server, held by xllamacpp, with a GGUF: by default random weights in the shape of qwen3-0.6b, int4.

A request: the whole time of an answer of one token. A token: the whole time of an answer of many, by their number.
Beside it stands how old a token is that comes from the stand-in: one more program on its way wakes up for each.
Throughput: tokens/s of 8 and of 64 streams. Every number is a median of pairs in turn.
Writes benchmarks/results/serve_gateway.json. Needs the lock `serve` and xllamacpp.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
RESULT = ROOT / "benchmarks" / "results" / "serve_gateway.json"
KEY = "a-key-of-this-benchmark"
REQUEST_MS, TOKEN_MS, THROUGHPUT = 2.0, 0.1, 0.95
STEP_S = 1 / 50
SIZES: Mapping[str, tuple[int, Mapping[int, int]]] = {
    "stand-in": (100, {8: 64, 64: 64}),
    "llama.cpp": (40, {8: 32, 64: 10}),
}
"""Tokens of an answer alone, and of each of so many streams, of each engine."""
PROMPT = "What does a gateway add to an answer?"
REST = '"created":1,"model":"m","object":"text_completion","id":"c"'
SENT = re.compile(rb'"text":"@(\d+\.\d{7})"')
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its seconds, and the delays of its tokens where the engine says when it sent them."""

    seconds: float
    tokens: int
    delays: tuple[float, ...]


Ask = Callable[[int], Awaitable[Answer]]


def ask_at(url: str, model: str, key: str) -> Ask:
    """Return requests to an address, on kept connections."""
    from paddock.openai.http import HttpClient

    client = HttpClient(url)

    async def ask(new: int) -> Answer:
        request = {"model": model, "prompt": PROMPT, "max_tokens": new, "stream": True, "ignore_eos": True}
        body = json.dumps({**request, "stream_options": {"include_usage": True}}).encode()
        started = time.perf_counter()
        response = await client.request("POST", "/v1/completions", body, key)
        pieces, delays = [], []
        async for piece in response.pieces:
            pieces.append(piece)
            if sent := SENT.search(piece):
                delays.append(time.monotonic() - float(sent[1]))
        seconds = time.perf_counter() - started
        text = b"".join(pieces)
        if response.status != 200 or not text.rstrip().endswith(b"[DONE]"):
            raise SystemExit(f"{url}: HTTP {response.status}: {text[-300:]!r}")
        tokens = int(text.rpartition(b'"completion_tokens":')[2].split(b",")[0].strip(b" }"))
        return Answer(seconds, tokens, tuple(delays))

    return ask


async def measure(engine: str, direct: Ask, gateway: Ask, rounds: int, spent: Callable[[], float]) -> dict[str, Any]:
    """Return what the gateway adds, and the ratio of throughputs."""
    long, many = SIZES[engine]
    ways = {"direct": direct, "gateway": gateway}
    one: dict[str, list[float]] = {way: [] for way in ways}
    token: dict[str, list[float]] = {way: [] for way in ways}
    delay: dict[str, list[float]] = {way: [] for way in ways}
    for ask in ways.values():
        for _ in range(3):
            await ask(1)
    for number in range(rounds):
        for way in sorted(ways, reverse=bool(number % 2)):
            one[way].append((await ways[way](1)).seconds * 1000)
    for number in range(max(3, rounds // (10 if engine == "stand-in" else 4))):
        for way in sorted(ways, reverse=bool(number % 2)):
            answer = await ways[way](long)
            token[way].append(answer.seconds * 1000 / answer.tokens)
            delay[way] += [seconds * 1000 for seconds in answer.delays]
    result: dict[str, Any] = {
        "request": _added("milliseconds that an answer of one token takes longer", one, REQUEST_MS),
        "token": _added(f"milliseconds that each token of an answer of {long} takes longer", token, TOKEN_MS),
    }
    if delay["direct"]:
        result["delay"] = {f"{way}_ms": _spread(values) for way, values in delay.items()}
    for streams, new in many.items():
        result[f"streams_{streams}"] = await throughput(ways, streams, new, 5, spent)
    return result


async def throughput(
    ways: dict[str, Ask], streams: int, new: int, pairs: int, spent: Callable[[], float]
) -> dict[str, Any]:
    """Return the tokens/s of streams side by side, gateway by direct, and the gateway's processor time for each."""
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    delays: dict[str, list[float]] = {way: [] for way in ways}
    before = spent()
    for number in range(pairs):
        for way in sorted(ways, reverse=bool(number % 2)):
            started = time.perf_counter()
            answers = await asyncio.gather(*(ways[way](new) for _ in range(streams)))
            speeds[way].append(sum(answer.tokens for answer in answers) / (time.perf_counter() - started))
            delays[way] += [delay * 1000 for answer in answers for delay in answer.delays]
    ratios = [through / direct for direct, through in zip(speeds["direct"], speeds["gateway"], strict=True)]
    ratio = statistics.median(ratios)
    result = {
        "name": f"tokens/s of {streams} streams, gateway / direct", "ratio": round(ratio, 4),
        "range": [round(min(ratios), 4), round(max(ratios), 4)], "goal": f">= {THROUGHPUT}", "met": ratio >= THROUGHPUT,
        "gateway_processor_ms_a_token": round((spent() - before) * 1000 / (pairs * streams * new), 4),
        **{f"{way}_tokens_s": round(statistics.median(values), 1) for way, values in speeds.items()},
    }  # fmt: skip
    if delays["direct"]:
        result |= {f"{way}_delay_ms": _spread(values) for way, values in delays.items()}
    return result


def _added(name: str, times: dict[str, list[float]], goal: float) -> dict[str, Any]:
    pairs = zip(times["direct"], times["gateway"], strict=True)
    added = statistics.median(through - direct for direct, through in pairs)
    spreads = {f"{way}_ms": _spread(values) for way, values in times.items()}
    return {"name": f"{name}, p50", "added_ms": round(added, 4), "goal": f"<= {goal}", "met": added <= goal, **spreads}


def _spread(values: list[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"p25": round(low, 4), "p50": round(middle, 4), "p75": round(high, 4)}


async def stand_in() -> None:
    """Serve streams that compute nothing, and say where."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    text = b'{"object":"list","data":[{"id":"m"}]}'
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
                    continue
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
                new = json.loads(await reader.readexactly(length))["max_tokens"]
                writer.write(HEAD)
                began = asyncio.get_running_loop().time()
                for number in range(new):
                    if number:
                        due = began + number * STEP_S - asyncio.get_running_loop().time()
                        await asyncio.sleep(max(0.0, due))
                    finish = '"length"' if number == new - 1 else "null"
                    choice = f'{{"text":"@{time.monotonic():.7f}","index":0,"logprobs":null,"finish_reason":{finish}}}'
                    _write(writer, f'{{"choices":[{choice}],{REST}}}')
                usage = f'"usage":{{"completion_tokens":{new},"prompt_tokens":9,"total_tokens":{new + 9}}}'
                _write(writer, f'{{"choices":[],{REST},{usage}}}')
                _write(writer, "[DONE]")
                writer.write(b"0\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def _write(writer: asyncio.StreamWriter, data: str) -> None:
    event = f"data: {data}\n\n".encode()
    writer.write(b"%x\r\n%s\r\n" % (len(event), event))


def llama(model: str) -> None:
    """Serve a GGUF by llama.cpp, and say where."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"m"}
    params.n_parallel, params.n_ctx = 64, 64 * 64
    params.cpuparams.n_threads = max(1, (os.cpu_count() or 2) // 2)
    params.warmup = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    while sys.stdin.read(1):
        pass


@contextmanager
def child(*arguments: str, said: bool = True) -> Iterator[tuple[str, int]]:
    """Run a program while the block runs; yield the address that it says, and its number."""
    process = subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE if said else None,
        stderr=subprocess.DEVNULL if said else None, text=True,
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    try:
        line = ""
        while said and process.stdout and not line.startswith("http"):
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"{arguments} has ended")
        yield line.strip(), process.pid
    finally:
        process.terminate()
        process.wait()


def engines(model: str, folder: Path, only: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield each engine: its name, what it is, and its command line."""
    own = str(Path(__file__))
    if only in ("", "stand-in"):
        yield "stand-in", "streams at 50 tokens/s each, computes nothing", (own, "--stand-in")
    if only in ("", "llama.cpp"):
        what = model
        if not model:
            from paddock.models.random_gguf import write
            from paddock.models.shapes import shape

            model, what = str(folder / "random.gguf"), "random weights in the shape of qwen3-0.6b, int4"
            write(Path(model), shape("qwen3-0.6b"), "int4")
        yield "llama.cpp", what, (own, "--llama", model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="", help="a GGUF for llama.cpp; by default random weights")
    parser.add_argument("--rounds", type=int, default=100, help="pairs of requests of one token; 100")
    parser.add_argument("--only", default="", choices=("", "stand-in", "llama.cpp"))
    parser.add_argument("--stand-in", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--llama", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stand_in:
        asyncio.run(stand_in())
    elif given.llama:
        llama(given.llama)
    else:
        _write_result(given)


def _write_result(given: argparse.Namespace) -> None:
    before, measured = os.getloadavg(), {}
    with tempfile.TemporaryDirectory(prefix="serve-gateway-") as name:
        for engine, what, command in engines(given.model, Path(name), given.only):
            with child(*command) as (url, _):
                measured[engine] = {"engine": what, **_beside(engine, url, Path(name), given.rounds)}
            sys.stderr.write(f"{engine}: {json.dumps(measured[engine], indent=1)}\n")
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors, other work shares it",
        "load_before": before, "load_after": os.getloadavg(), "python": platform.python_version(),
        "engines": measured,
    }  # fmt: skip
    if not given.only:
        RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _beside(engine: str, url: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Start a gateway before an engine, and measure both."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    (folder / "keys").write_text(KEY)
    config = folder / "gateway.json"
    models = [{"id": "m", "url": url, "concurrency": 64}]
    config.write_text(json.dumps({"listen": listen, "keysFile": str(folder / "keys"), "models": models}))
    with child("-m", "paddock.serve.gateway", str(config), said=False) as (_, process):
        direct, gateway = ask_at(url, "m", ""), ask_at(f"http://{listen}", "m", KEY)
        _until_up(listen)
        return asyncio.run(measure(engine, direct, gateway, rounds, lambda: _processor_s(process)))


def _processor_s(process: int) -> float:
    """Return the processor time of a program (proc(5): its user and system time, in ticks)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _until_up(listen: str) -> None:
    import urllib.request

    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://{listen}/health") as answer:
                if json.load(answer)["serving"]:
                    return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the gateway does not serve")


if __name__ == "__main__":
    main()
