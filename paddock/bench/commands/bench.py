"""`bench`: how fast this machine serves a model."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.bench.engines.formats import ENGINES, check_cache, formats, refusal
from paddock.bench.errors import BenchError, BenchInputError
from paddock.console import output
from paddock.console.command import command
from paddock.console.output import caller_path, work_begins
from paddock.console.parameters import Parameters, one_of, parameter
from paddock.console.progress import Progress, progress
from paddock.console.report import Report
from paddock.errors import did_you_mean, program
from paddock.gpu.inventory import inventory
from paddock.gpu.model import Inventory
from paddock.models import gguf, sources
from paddock.models.local import hub
from paddock.models.model import Model
from paddock.models.shapes import Shape

if TYPE_CHECKING:
    from paddock.bench.report.model import BenchDocument

_MODEL, _REGION = "qwen3-0.6b", "us-east-1"
_MAX_LENGTH = 1_000_000
_LAST_PORT = 65535
_MOST_ROWS = 256
"""Sequences of llama.cpp (llama.cpp, src/llama-cparams.h, LLAMA_MAX_SEQ)."""
_SERVERS = ("vllm", "sglang", "tgi", "ollama", "llama-server", "tensorrt-llm", "openai")
_PACKAGES = {"llama.cpp": (("xllamacpp",), "bench"), "torch": (("torch", "transformers", "torchao"), "torch")}
"""Modules and extra of each engine."""
_A = {"engine": "an engine", "dtype": "a number format"}


@dataclass(frozen=True, kw_only=True)
class Bench(Parameters):
    """Parameters of a benchmark."""

    model_name: str = parameter(
        "", "a shape with random weights (qwen3-0.6b, llama-3.1-8b), a checkpoint's folder, or a .gguf file",
        flag="model",
    )  # fmt: skip
    engine: str = parameter(
        "", "llama.cpp or torch; by default torch on a GPU of NVIDIA's or AMD's, and llama.cpp elsewhere"
    )
    dtype: tuple[str, ...] = parameter(
        (),
        "number formats, by default the usual ones: torch fp32, fp16, bf16, fp8, int8, int4; llama.cpp fp32, fp16,"
        " bf16, int8 (Q8_0), int4 (Q4_0) and its own, q2_k to q6_k, or what a .gguf file has",
    )
    batch: tuple[str, ...] = parameter((), "rows at once; by default 1, or 1,16 with several modes")
    new: int = parameter(32, "new tokens of each row", ge=2)
    runs: int = parameter(3, "counted runs of each", ge=1)
    threads: int | None = parameter(None, "llama.cpp: threads that compute; by default as many as CPUs", ge=1)
    cache: str = parameter(
        "", "llama.cpp: type of the numbers in the cache, such as q8_0; f16 by default", flag="cache-type"
    )
    prompt: tuple[str, ...] = parameter((), "tokens of each prompt; by default 64")
    warm_up: int = parameter(1, "runs before them that are not counted", flag="warm-up", ge=0)
    sessions: int = parameter(1, "fresh processes, each with its own runs; bench.compare needs some on each side", ge=1)
    mode: tuple[str, ...] = parameter(
        (),
        "resource modes: conservative, default, aggressive, or the file of a policy; by default that of"
        " PADDOCK_DEPLOYMENT_MODE, if it is set",
    )
    application: str = parameter("", "apply the limits that a policy has for this application")
    user: str = parameter("", "apply the limits that a policy has for this user")
    gpus: tuple[str, ...] = parameter(
        (), "only these GPUs or MIG parts, indexes or UUIDs; by default the best free ones"
    )
    region: str = parameter(_REGION, f"region of the prices; by default {_REGION}")
    instance: str | None = parameter(None, "instance type of this machine, for its price; by default as EC2 reports")
    seed: int = parameter(0, "seed of random weights and prompts")
    metrics: int | None = parameter(
        None, "port of this machine on which Prometheus finds the mode's metrics during the run", ge=1
    )
    in_turn: int | None = parameter(
        None,
        "port of this machine at which the benchmark of another build, with the same flag, takes turns with this one,"
        " run by run: for bench.compare on a noisy machine",
        flag="in-turn",
        ge=1,
    )
    html: Path | None = parameter(None, "also write a page with plots to this file", writes=True)


@dataclass(frozen=True, kw_only=True)
class Measured(Report):
    """The results of a benchmark, whose document is read back by `bench.compare`."""

    SCHEMA = 1
    results: BenchDocument

    def text(self) -> Iterator[str]:
        from paddock.bench.report.text import lines

        yield ""
        yield from lines(self.results)

    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = self.results.model_dump(mode="json")
        return document

    @property
    def exit_code(self) -> int:
        return self.results.exit_code


@command(checks_values_first=True)
def bench(parameters: Bench) -> Measured:
    """Measure this machine. Raises BenchError, GpuError, OutputError."""
    machine = inventory(processes=True)
    with progress(quiet=parameters.json.replaces_text) as shown:
        options = _options(parameters, machine, shown)
        from paddock.bench.runner.run import run

        results = run(options, shown.now, machine=machine)
    if parameters.html is not None:
        from paddock.bench.report.page import page

        output.write(parameters.html, page(results))
    return Measured(results=results)


def _options(parameters: Bench, machine: Inventory, shown: Progress) -> Any:
    """Return the options of the run. Raises BenchInputError, before anything slow happens."""
    model, source = _model(parameters.model_name)
    modes = _modes(parameters.mode)
    batches = _counts("batch", parameters.batch) or ((1, 16) if len(modes) > 1 else (1,))
    prompts = _counts("prompt", parameters.prompt) or (64,)
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
    for flag, port in (("metrics", parameters.metrics), ("in-turn", parameters.in_turn)):
        if port is not None and port > _LAST_PORT:
            raise BenchInputError(f"--{flag} is {port}\n    expected: a port, 1 to {_LAST_PORT}")
    _check_prices(parameters.region, parameters.instance)
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
    if hub.is_reference(parameters.model_name):
        source = str(hub.fetch(parameters.model_name, shown.share, "--model"))
    if source.endswith(".gguf"):
        source = str(gguf.parts(Path(source))[0])
    from paddock.bench.runner.plan import Options, same_fields

    return Options(
        **same_fields(
            Options, parameters, shape=Shape.of(model), source=source, engine=engine, dtypes=dtypes, batches=batches,
            prompts=prompts, modes=modes, metrics_port=parameters.metrics,
        )
    )  # fmt: skip


def _model(name: str) -> tuple[Model, str]:
    """Return the model, and the path of its checkpoint or file if it has one. Raises ModelError.

    A model of a hub is not fetched yet: its path has the ending that it will have.
    """
    path, model = caller_path(name or _MODEL), sources.model(name or _MODEL, "--model")
    if hub.is_reference(name):
        return model, name if model.facts != "file" or name.endswith(".gguf") else f"{name}.gguf"
    return model, str(path) if path.exists() else ""


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
    """Return the resource modes by name, by default the one that PADDOCK_DEPLOYMENT_MODE chooses, if it is set.

    Raises ModeInputError.
    """
    from paddock.modes import policy
    from paddock.modes.config import VARIABLE, deployment_mode

    if not names and os.environ.get(VARIABLE):
        names = (deployment_mode(),)
    return {name: limits for name, _, limits in map(policy.named, names)}


def _check_shares(parameters: Bench, policies: Sequence[Any]) -> None:
    """Raise BenchInputError for an application or a user for whom no policy has limits."""
    for flag, value, more in (("application", parameters.application, ""), ("user", parameters.user, "each_user")):
        known = [name for policy in policies for name in getattr(policy, f"{flag}s")]
        if not any(getattr(policy, more) for policy in policies if more):
            otherwise = f"one of the {flag}s of a policy's file (--mode)" + (f", or {more} in it" if more else "")
            _check_known(flag, value or None, known, "no policy has limits for", otherwise)


def _check_prices(region: str, instance: str | None) -> None:
    """Raise BenchInputError for a region or instance type that the catalogue does not have."""
    from paddock.catalog.aws import regions
    from paddock.catalog.instances import instances

    for flag, value, known in (("region", region, regions()), ("instance", instance, instances())):
        _check_known(flag, value, known, "the catalogue has no", f"one that `{program()} catalog` lists")


def _check_known(flag: str, value: str | None, known: Collection[str], said: str, otherwise: str) -> None:
    if value is not None and value not in known:
        expected = did_you_mean(value, known, otherwise)
        raise BenchInputError(f"--{flag}: {said} {value!r}\n    expected: {expected}")


def _one_of(flag: str, value: str, candidates: tuple[str, ...], of: str = "") -> str:
    if value in candidates:
        return value
    expected = one_of(value, candidates)
    raise BenchInputError(f"--{flag}: {value!r} is not {_A[flag]}{f' {of}' * bool(of)}\n    expected: {expected}")


def _counts(flag: str, values: tuple[str, ...]) -> tuple[int, ...]:
    counts = []
    for value in values:
        if not value.isdecimal() or not 0 < int(value) < _MAX_LENGTH:
            raise BenchInputError(
                f"--{flag}: {value!r} is not a number above 0\n    expected: whole numbers, such as 1,4,16"
            )
        counts.append(int(value))
    return tuple(dict.fromkeys(counts))
