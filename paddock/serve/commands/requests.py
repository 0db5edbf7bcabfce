"""The flags by which a model is placed: its request, its policy and its resource mode."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal, get_args

from paddock.console.parameters import Parameters, one_of, parameter
from paddock.models import gguf
from paddock.models.model import FILE_BITS, PLAIN, Model
from paddock.serve.errors import ServeInputError
from paddock.serve.placement.device import Backend
from paddock.serve.placement.engines import CONVERT, PACKED, QUANTISATIONS, VLLM_BACKENDS, engine_of
from paddock.serve.placement.request import MOST_DEVICES, Engine, Policy, Request

_CONTEXT = 4096
_REQUESTS, _MOST_REQUESTS = 4, 65536
_RESERVE, _MOST_RESERVE = 0.05, 0.95
_OTHER_NAMES = {"nvidia": "cuda", "amd": "rocm", "hip": "rocm", "apple": "metal", "mps": "metal", "mlx": "metal"}


@dataclass(frozen=True, kw_only=True)
class Placed(Parameters):
    """Parameters by which a model is placed."""

    model_name: str = parameter(
        ..., "a .gguf file, a checkpoint's folder, hf://OWNER/REPO[@REVISION][/FILE], or a name (qwen3-0.6b: random "
        "weights); with serve.load --url the endpoint's name of it", flag="model",
    )  # fmt: skip
    engine: Literal["llama.cpp", "vllm"] | None = parameter(
        None, "llama.cpp or vllm; by default llama.cpp for .gguf, vllm for a checkpoint"
    )
    server: str = parameter("", "llama.cpp: use this llama-server on each machine, instead of the one for CPUs")
    python: str = parameter("", "vllm: use this Python on each machine, instead of the environment of Paddock's lock")
    dtype: str = parameter("", "int8 or int4: quantise a 16-bit .gguf to it; by default the weights stay as they are")
    quantization: str = parameter("", "with vllm: how it quantises, such as fp8")
    backend: str = parameter("", "cuda, rocm, metal or cpu; by default the one with most devices")
    context: int | None = parameter(
        None, "tokens of one request, prompt and answer; by default 4096, or all it can", ge=1
    )
    concurrency: int | None = parameter(None, "requests at once; by default 4, or what the mode allows", ge=1)
    mode: str = parameter(
        "", "conservative, default, aggressive, or a policy's file; serve.load takes PADDOCK_DEPLOYMENT_MODE by"
        " default, or aggressive",
    )  # fmt: skip
    tp: int | None = parameter(None, "most devices that share the weights; by default as many as are equal", ge=1)
    across_agents: bool = parameter(False, "let equal devices of several machines share the weights")


def plan_request(parameters: Placed, model: Model) -> Request:
    """Return the checked request. Weights that a file has in a format stay in it. Raises ServeInputError."""
    if model.tokenizer is False:
        raise ServeInputError(
            f"MODEL: {model.name} has no tokenizer, so that nothing reads or writes text"
            "\n    expected: a .gguf file with tokenizer.ggml.*, or tokenizer files next to config.json"
            "\n    fix: fetch it whole, or convert it together with its tokenizer"
        )
    engine = _engine(parameters, model)
    if engine == "vllm":
        dtype = _vllm_dtype(parameters, model)
    else:
        dtype, note = _file_dtype(parameters, model)
        unknown = gguf.unknown_architecture(model.architecture) if model.facts == "file" else ""
        model = replace(model, notes=(*model.notes, *filter(None, (note, unknown))))
    context = min(_CONTEXT, model.context) if parameters.context is None else parameters.context
    _within("context", context, model.context, _places(model))
    concurrency = _REQUESTS if parameters.concurrency is None else parameters.concurrency
    _within("concurrency", concurrency, _MOST_REQUESTS)
    return Request(model, dtype, context, concurrency)


def _file_dtype(parameters: Placed, model: Model) -> tuple[str | None, str]:
    """Return the format in which llama.cpp's weights are written, None for that of the file, and a note on it."""
    dtype, of_file = parameters.dtype, model.facts == "file"
    formats = PACKED if of_file else tuple(FILE_BITS)
    if not dtype or (of_file and dtype == model.format):
        return None, ""
    if dtype not in formats:
        stays = f": llama.cpp computes {model.name} in {model.format}, which it is in" if dtype in FILE_BITS else ""
        raise ServeInputError(
            f"--dtype: {dtype!r} is not a format that llama.cpp packs{stays}\n    expected: {one_of(dtype, formats)}"
        )
    if not (of_file and model.quantised):
        return dtype, ""
    bits = 8 * model.bytes / max(1, model.parameters)
    if bits <= FILE_BITS[dtype]:
        return None, f"--dtype {dtype}: its weights have {bits:.1f} bits already ({model.format}), and stay as they are"
    raise ServeInputError(
        f"--dtype: {dtype}, and the weights of {model.name} are {model.format} in the file: packed again they would"
        " lose more than those of 16 bits do\n    expected: no --dtype, or a file of 16 bits"
        f"\n    fix: leave --dtype out, or take the model's F16 or BF16 file, or one that is {dtype} already"
    )


def _vllm_dtype(parameters: Placed, model: Model) -> str | None:
    dtype = parameters.dtype
    if dtype in PACKED:
        names = [name for name, bits in QUANTISATIONS.items() if round(bits) == int(dtype[3:])]
        raise ServeInputError(
            f"--dtype: {dtype} is that of .gguf files, and vLLM packs weights in its own ways"
            f"\n    expected: --quantization {' or '.join(names)}"
        )
    if dtype and dtype not in PLAIN:
        raise ServeInputError(f"--dtype: {dtype!r} is not a format of vLLM\n    expected: {one_of(dtype, PLAIN)}")
    if parameters.quantization and parameters.quantization not in QUANTISATIONS:
        raise ServeInputError(
            f"--quantization: {parameters.quantization!r} packs no plain weights in vLLM, as far as is known here"
            f"\n    expected: {one_of(parameters.quantization, QUANTISATIONS)}"
            "\n    fix: leave it out where the checkpoint is quantised: vLLM reads that itself"
        )
    if model.quantised and (dtype or parameters.quantization):
        flag = "--dtype" if dtype else "--quantization"
        raise ServeInputError(
            f"{flag}: the weights of {model.name} are {model.format} already, which vLLM reads by itself"
            f"\n    expected: no {flag}\n    fix: leave {flag} out"
        )
    return dtype or None


def _places(model: Model) -> str:
    rope = model.rope
    stretched = f", stretched from {rope.original} ({rope.type})" if rope.original and rope.factor > 1 else ""
    return f"{model.name} has places for {model.context} tokens{stretched}"


def plan_policy(parameters: Placed, model: Model, reserve: float | None) -> Policy:
    """Return the checked policy, with the engine that takes the model. Raises ServeInputError."""
    reserve = _RESERVE if reserve is None else reserve
    _within("reserve", reserve, _MOST_RESERVE)
    if parameters.tp is not None:
        _within("tp", parameters.tp, MOST_DEVICES)
    engine, backend = _engine(parameters, model), backend_of(parameters.backend)
    if engine == "vllm" and backend and backend not in VLLM_BACKENDS:
        raise ServeInputError(
            f"--backend {backend}: vLLM computes on CUDA and ROCm\n    expected: --backend cuda or rocm, or none"
            f"\n    fix: serve the model as a .gguf file: {CONVERT}"
        )
    if engine == "llama.cpp" and parameters.across_agents:
        raise ServeInputError(
            "--across-agents: llama.cpp computes on one machine here\n    expected: vLLM and a checkpoint's folder"
            "\n    fix: start a llama-server built with RPC yourself (--rpc HOST:PORT,...), and serve.load --url it"
        )
    return Policy(
        backend, reserve, parameters.tp or MOST_DEVICES, parameters.across_agents, engine=engine,
        server=parameters.server, python=parameters.python, quantization=parameters.quantization,
    )  # fmt: skip


def _engine(parameters: Placed, model: Model) -> Engine:
    """Return the engine that takes the model. Raises ServeInputError where it does not, or flags are another's."""
    named, form = parameters.engine, engine_of(model, Policy())
    if named and named != form:
        what = "a .gguf file" if model.facts == "file" else "a name, whose random weights are written as .gguf"
        if named == "vllm":
            raise ServeInputError(
                f"--engine vllm: {model.name} is {what}, and vLLM takes checkpoints"
                "\n    expected: a folder with config.json and .safetensors\n    fix: leave --engine out"
            )
        raise ServeInputError(
            f"--engine llama.cpp: {model.name} is a checkpoint, and llama.cpp reads .gguf files"
            f"\n    expected: a .gguf file\n    fix: {CONVERT}"
        )
    for flag, value, of in (
        ("server", parameters.server, "llama.cpp"), ("python", parameters.python, "vllm"),
        ("quantization", parameters.quantization, "vllm"),
    ):  # fmt: skip
        if value and of != form:
            pack = "\n    fix: --dtype int8 or int4 packs a .gguf file of 16 bits" if flag == "quantization" else ""
            raise ServeInputError(
                f"--{flag} is a flag of {of}, and {model.name} runs on {form}\n    expected: no --{flag}{pack}"
            )
    if "/" in parameters.server and not PurePosixPath(parameters.server).is_absolute():
        raise ServeInputError(
            f"--server: {parameters.server!r} is not a path from the root, and other machines look there, too"
            "\n    expected: llama-server, which is on PATH there, or a path such as /opt/llama.cpp/llama-server"
        )
    if parameters.python and not PurePosixPath(parameters.python).is_absolute():
        raise ServeInputError(
            f"--python: {parameters.python!r} is not a path from the root, and other machines look there, too"
            "\n    expected: the Python of vLLM's environment, such as /opt/vllm/bin/python"
        )
    return form


def backend_of(name: str) -> Backend | None:
    """Return the backend of that name, None for an empty one. Raises ServeInputError."""
    for backend in get_args(Backend):
        if name == backend:
            return backend  # type: ignore[no-any-return]  # get_args does not say of what
    if not name:
        return None
    other = _OTHER_NAMES.get(name.lower())
    hint = f"did you mean {other}?" if other else one_of(name, get_args(Backend))
    raise ServeInputError(f"--backend: {name!r} is not a backend\n    expected: {hint}")


def _within(flag: str, value: float, most: float, why: str = "") -> None:
    if value > most:
        raise ServeInputError(f"--{flag} is {value:g}\n    expected: at most {most:g}{f': {why}' if why else ''}")


@dataclass(frozen=True, slots=True)
class LoadMode:
    """Mode of an instance: its name or JSON text, the largest batch, and the part of the memory left to others.

    `share` is the part of a GPU that it leases, None the GPU alone.
    """

    name: str
    text: str
    most: int
    reserve: float
    share: float | None

    def concurrency(self, requested: int | None) -> int:
        """Return the requests side by side. Raises ServeInputError for more than the mode allows."""
        if requested is not None and requested > self.most:
            raise ServeInputError(
                f"--concurrency: {requested}, and the mode {self.name} allows {self.most} requests side by side"
                f"\n    expected: 1 to {self.most}\n    fix: another --mode, or a policy with max_batch_size"
            )
        return min(_REQUESTS, self.most) if requested is None else requested


def load_mode(name: str) -> LoadMode:
    """Return the mode of `--mode`. Raises ModeInputError."""
    from paddock.modes import effects, policy
    from paddock.modes.config import VARIABLE, deployment_mode

    short, text, own = policy.named(name or (deployment_mode() if os.environ.get(VARIABLE) else "aggressive"))
    reserve = round(1 - effects.largest_memory_part(own), 4)
    return LoadMode(short, text, effects.most_slots(own), reserve, effects.lease_share(own))
