"""The benchmark of this machine, on the console: flags, progress, output and exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from paddock import process, terminal
from paddock.bench.engines.formats import ENGINES, check_cache, formats, refusal
from paddock.bench.errors import BenchError, BenchInputError
from paddock.errors import did_you_mean, printable, program
from paddock.gpu.inventory import inventory
from paddock.gpu.model import Inventory
from paddock.gpu.parameter import JSON, Parameters, parameter
from paddock.models import sources
from paddock.models.model import Model
from paddock.models.shapes import Shape
from paddock.terminal import JsonOutput, caller_path, output_path, work_begins

_MODEL, _REGION = "qwen3-0.6b", "us-east-1"
_MAX_LENGTH = 1_000_000
_PORTS = range(1, 65536)
_MOST_ROWS = 256
"""Sequences of llama.cpp (llama.cpp, src/llama-cparams.h, LLAMA_MAX_SEQ)."""
_SERVERS = ("vllm", "sglang", "tgi", "ollama", "llama-server", "tensorrt-llm", "openai")
_PACKAGES = {"llama.cpp": (("xllamacpp",), "bench"), "torch": (("torch", "transformers", "torchao"), "torch")}
"""Modules and extra of each engine."""


@dataclass(frozen=True, kw_only=True)
class Bench(Parameters):
    """Parameters of a benchmark."""

    model_name: str = parameter(
        "",
        "a shape with random weights (qwen3-0.6b, llama-3.1-8b), a checkpoint's folder, or a .gguf file",
        flag="model",
    )
    engine: str = parameter(
        "", "llama.cpp or torch; by default torch on a GPU of NVIDIA's or AMD's, and llama.cpp elsewhere"
    )
    dtype: tuple[str, ...] = parameter(
        (),
        "number formats, by default the usual ones: torch fp32, fp16, bf16, fp8, int8, int4; llama.cpp fp32, fp16,"
        " bf16, int8 (Q8_0), int4 (Q4_0) and its own, q2_k to q6_k, or what a .gguf file has",
    )
    batch: tuple[str, ...] = parameter((), "rows at once; by default 1")
    prompt: tuple[str, ...] = parameter((), "tokens of each prompt; by default 64")
    new: int = parameter(32, "new tokens of each row", ge=2)
    runs: int = parameter(3, "counted runs of each", ge=1)
    warm_up: int = parameter(1, "runs before them that are not counted", flag="warm-up", ge=0)
    sessions: int = parameter(1, "fresh processes, each with its own runs; bench.compare needs some on each side", ge=1)
    mode: tuple[str, ...] = parameter(
        (),
        "resource modes: conservative, default, aggressive, or the file of a policy; by default that of"
        " PADDOCK_DEPLOYMENT_MODE, without which there is none",
    )
    application: str = parameter("", "the application that asks: the limits that a policy has for it hold")
    user: str = parameter("", "the user who asks, likewise")
    gpus: tuple[str, ...] = parameter(
        (), "only these GPUs or MIG parts, indexes or UUIDs; by default the best free ones"
    )
    threads: int | None = parameter(None, "llama.cpp: threads that compute; by default as many as processors", ge=1)
    cache: str = parameter(
        "", "llama.cpp: type of the numbers in the cache, such as q8_0; f16 by default", flag="cache-type"
    )
    region: str = parameter(_REGION, f"region of the prices; by default {_REGION}")
    instance: str | None = parameter(None, "instance type that this machine is, for its price; by default EC2 says it")
    seed: int = parameter(0, "seed of random weights and prompts")
    metrics: int | None = parameter(None, "port of this machine on which Prometheus finds the mode's metrics meanwhile")
    in_turn: int | None = parameter(
        None,
        "port of this machine at which the benchmark of another build, with the same flag, takes turns with this one,"
        " run by run: for bench.compare on a noisy machine",
        flag="in-turn",
    )
    json: str | None = parameter(None, JSON.help, flag=JSON)
    html: str | None = parameter(None, "also write a page with plots to this file")


def bench(flags: Mapping[str, Any]) -> int:
    """Measure this machine, print the results and return the exit code. Raises BenchError, GpuError, OutputError."""
    parameters = Bench.from_flags(flags)
    json, page_file = JsonOutput.parse(parameters.json), output_path("html", parameters.html)
    machine = inventory(processes=True)
    options = _options(parameters, machine)
    from paddock.bench.report.page import page
    from paddock.bench.report.text import lines
    from paddock.bench.runner.run import run

    with process.sigterm_as_interrupt():
        document = run(options, (lambda _: None) if json.replaces_text else _show, machine=machine)
    if not json.replaces_text:
        sys.stdout.write("\n")
        sys.stdout.writelines(f"{printable(line)}\n" for line in lines(document))
    json.write(document.model_dump(mode="json"))
    if page_file is not None:
        terminal.write(page_file, page(document))
    return document.exit_code


def _options(parameters: Bench, machine: Inventory) -> Any:
    """Return the options of the run. Raises BenchInputError, before anything slow happens."""
    model, source = _model(parameters.model_name)
    batches, prompts = _counts("batch", parameters.batch) or (1,), _counts("prompt", parameters.prompt) or (64,)
    engine = _engine(parameters, machine, source)
    if error := refusal(engine, model, source):
        raise error
    dtypes = _dtypes(engine, parameters.dtype, model, source)
    check_cache(engine, parameters.cache)
    if engine == "llama.cpp" and max(batches) > _MOST_ROWS:
        raise BenchInputError(
            f"--batch: llama.cpp computes at most {_MOST_ROWS} rows at once, not {max(batches)}"
            f"\n    expected: 1 to {_MOST_ROWS}"
        )
    if parameters.threads is not None and engine != "llama.cpp":
        raise BenchInputError("--threads: torch chooses its own\n    expected: no --threads\n    fix: OMP_NUM_THREADS")
    _at_least("new", parameters.new, 2)
    _at_least("runs", parameters.runs, 1)
    _at_least("warm-up", parameters.warm_up, 0)
    _at_least("sessions", parameters.sessions, 1)
    for flag, port in (("metrics", parameters.metrics), ("in-turn", parameters.in_turn)):
        if port is not None and port not in _PORTS:
            raise BenchInputError(f"--{flag} {port} is no port\n    expected: 1 to 65535")
    _check_prices(parameters.region, parameters.instance)
    modes = _modes(parameters.mode)
    _check_shares(parameters, tuple(modes.values()))
    if max(prompts) + parameters.new > model.context:
        raise BenchInputError(
            f"--prompt: {max(prompts)} and {parameters.new} new tokens are more than {model.name} has places for\n"
            f"    expected: at most {model.context} together"
        )
    work_begins()
    modules, extra = _PACKAGES[engine]
    if absent := [module for module in modules if find_spec(module) is None]:
        raise BenchError(
            f"{absent[0]} is not installed here, and --engine {engine} needs it\n"
            f"    fix: ./inv bench --engine {engine} in a checkout installs it, or pip install 'paddock[{extra}]'"
        )
    from paddock.bench.runner.plan import Options

    return Options(
        Shape.of(model),
        source,
        engine,
        dtypes,
        batches,
        prompts,
        parameters.new,
        parameters.runs,
        parameters.warm_up,
        parameters.region,
        parameters.instance,
        modes,
        parameters.seed,
        parameters.sessions,
        parameters.gpus,
        parameters.application,
        parameters.user,
        parameters.metrics,
        parameters.in_turn,
        parameters.threads,
        parameters.cache,
    )


def _model(name: str) -> tuple[Model, str]:
    """Return the model, and the path of its checkpoint or file if it has one. Raises ModelError."""
    path = caller_path(name or _MODEL)
    return sources.model(name or _MODEL, "--model"), str(path) if path.exists() else ""


def _engine(parameters: Bench, machine: Inventory, source: str) -> str:
    """Return the engine that was asked for, or this machine's. Raises BenchInputError."""
    from paddock.bench.runner.run import default_engine

    name = parameters.engine
    if name.lower() in _SERVERS:
        raise BenchInputError(
            f"--engine: {name} is a server, which is measured as it runs\n    expected: one of {', '.join(ENGINES)}\n"
            f"    fix: start it, and {program()} bench.load --url http://HOST:PORT"
        )
    return _one_of("engine", name, ENGINES) if name else default_engine(machine, source, parameters.gpus)


def _dtypes(engine: str, asked: tuple[str, ...], model: Model, source: str) -> tuple[str, ...]:
    """Return the formats to measure; those of a .gguf file are its own. Raises BenchInputError."""
    if engine == "llama.cpp" and source:
        own = model.format.lower()
        if asked and asked != (own,):
            raise BenchInputError(
                f"--dtype {','.join(asked)}: the weights of {model.name} are {model.format} in the file"
                "\n    expected: no --dtype\n    fix: leave it out, or name a file in another format"
            )
        return (own,)
    return tuple(_one_of("dtype", dtype, formats(engine), f"of {engine}") for dtype in asked)


def _modes(names: Sequence[str]) -> dict[str, Any]:
    """Return the resource modes by name, by default the one that PADDOCK_DEPLOYMENT_MODE chooses, if it is set."""
    from paddock.modes.config import VARIABLE, deployment_mode

    if not names and os.environ.get(VARIABLE):
        names = (deployment_mode(),)
    return dict(map(_mode, names))


def _mode(name: str) -> tuple[str, Any]:
    """Return a resource mode by its name, or a policy by its file. Raises BenchInputError."""
    from paddock.modes import policy
    from paddock.modes.config import PRESETS

    path = caller_path(name)
    if path.suffix in (".yaml", ".yml", ".json"):
        return path.stem, policy.read(path)
    _one_of("mode", name, tuple(PRESETS))
    return name, policy.of_mode(next(mode for mode in PRESETS if mode == name))


def _check_shares(parameters: Bench, policies: Sequence[Any]) -> None:
    """Raise BenchInputError for an application or a user for whom no policy has limits."""
    known = [name for policy in policies for name in policy.applications]
    if parameters.application and parameters.application not in known:
        expected = did_you_mean(parameters.application, known, "one of the applications of a policy's file (--mode)")
        raise BenchInputError(
            f"--application: no policy has limits for {parameters.application!r}\n    expected: {expected}"
        )
    users = [name for policy in policies for name in policy.users]
    if parameters.user and parameters.user not in users and not any(policy.each_user for policy in policies):
        expected = did_you_mean(
            parameters.user, users, "one of the users of a policy's file (--mode), or each_user in it"
        )
        raise BenchInputError(f"--user: no policy has limits for {parameters.user!r}\n    expected: {expected}")


def _check_prices(region: str, instance: str | None) -> None:
    """Raise BenchInputError for a region or instance type that the catalogue does not have."""
    from paddock.catalog.instances import instances
    from paddock.catalog.regions import regions

    for flag, value, known in (("region", region, regions()), ("instance", instance, instances())):
        if value is not None and value not in known:
            expected = did_you_mean(value, known, f"one that `{program()} catalog.instances` lists")
            raise BenchInputError(f"--{flag}: the catalogue has no {value!r}\n    expected: {expected}")


def _one_of(flag: str, value: str, candidates: tuple[str, ...], of: str = "") -> str:
    if value in candidates:
        return value
    expected = did_you_mean(value, candidates, f"one of {', '.join(candidates)}")
    raise BenchInputError(f"--{flag}: there is no {flag} {value!r}{f' {of}' * bool(of)}\n    expected: {expected}")


def _counts(flag: str, values: tuple[str, ...]) -> tuple[int, ...]:
    counts = []
    for value in values:
        if not value.isdecimal() or not 0 < int(value) < _MAX_LENGTH:
            raise BenchInputError(f"--{flag}: {value!r} makes no sense\n    expected: whole numbers, such as 1,4,16")
        counts.append(int(value))
    return tuple(dict.fromkeys(counts))


def _at_least(flag: str, value: int, least: int) -> None:
    if value < least:
        raise BenchInputError(f"--{flag}: {value} makes no sense\n    expected: at least {least}")


def _show(line: str) -> None:
    sys.stdout.write(f"{printable(line)}\n")
    sys.stdout.flush()
