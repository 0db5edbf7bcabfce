"""Parameters of the benchmark's commands."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.duration import Seconds
from paddock.gpu.parameter import JSON, Parameters, parameter


@dataclass(frozen=True, kw_only=True)
class Load(Parameters):
    """Parameters of a load on an OpenAI-compatible server."""

    url: str = parameter(..., "the server, such as http://localhost:8000, or one of its two endpoints")
    rate: float | None = parameter(None, "open loop: requests a second, whatever the server does")
    burstiness: float | None = parameter(
        None, "shape of the gaps between requests: 1 is Poisson (the default), less comes in bursts, more is steadier"
    )
    constant: bool = parameter(False, "one request every 1/rate seconds")
    trace: str | None = parameter(
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
    json: str | None = parameter(None, JSON.help, flag=JSON)
    html: str | None = parameter(None, "also write a page with plots to this file")
