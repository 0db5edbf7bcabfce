"""Engines' command lines, metrics and causes, as tables; vLLM's program cannot run without a GPU."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from paddock.serve.engines.engine import Engine, EngineJob, readings
from paddock.serve.engines.llama import LlamaCpp, environment
from paddock.serve.engines.vllm import Vllm
from paddock.serve.errors import ServeError

GGUF = EngineJob("chat", "/m/chat.gguf", "cuda", context=2048, slots=3)
FOLDER = EngineJob("chat", "/m/chat", "cuda", dtype="bf16", context=8192, slots=16, memory_part=0.7)


def words(engine: Engine, job: EngineJob) -> dict[str, str]:
    """Return the flags of a command line with their values."""
    found = re.findall(r"--([\w-]+)(?: ([^-]\S*|-\d\S*))?", " ".join(engine.command(job, 4711)))
    return dict(found)


def test_llama_cpp_gets_the_context_of_all_slots() -> None:
    assert words(LlamaCpp("/opt/llama-server"), GGUF) == {
        "model": "/m/chat.gguf", "alias": "chat", "host": "127.0.0.1", "port": "4711", "ctx-size": "6144",
        "parallel": "3", "n-gpu-layers": "999", "metrics": "",
    }  # fmt: skip
    assert words(LlamaCpp(), replace(GGUF, backend="cpu", threads=2)).items() >= {
        ("n-gpu-layers", "0"), ("threads", "2")
    }  # fmt: skip
    assert words(LlamaCpp("/opt/llama-server"), replace(GGUF, backend="cpu"))["device"] == "none"
    shared = words(LlamaCpp("/opt/llama-server"), replace(GGUF, degree=2))
    assert (shared["split-mode"], shared["tensor-split"]) == ("row", "1,1")


def test_vllm_0_33_gets_its_published_arguments() -> None:
    """By the table of `vllm serve --help`, 0.33.0."""
    assert words(Vllm("/opt/vllm/bin/python"), FOLDER) == {
        "served-model-name": "chat", "host": "127.0.0.1", "port": "4711", "dtype": "bfloat16",
        "max-model-len": "8192", "max-num-seqs": "16", "gpu-memory-utilization": "0.7",
    }  # fmt: skip
    more = words(Vllm("/p"), replace(FOLDER, dtype="", degree=4, quantization="fp8", across_machines=True))
    assert more.items() >= {
        ("dtype", "auto"), ("tensor-parallel-size", "4"), ("quantization", "fp8"),
        ("distributed-executor-backend", "ray"),
    }  # fmt: skip


def test_no_key_is_on_a_command_line() -> None:
    for engine in (LlamaCpp(), Vllm("/p")):
        assert not any("key" in word for word in engine.command(FOLDER, 1))
        assert engine.key_variable.endswith("_API_KEY")


@pytest.mark.parametrize(
    ("engine", "log", "cause"),
    [
        (
            LlamaCpp(),
            "0.00.1 I load\nllama_model_load: error loading model: unknown model architecture: 'x'\nexiting",
            "unknown model architecture: 'x'",
        ),
        (LlamaCpp(), "ggml\nCUDA error: out of memory\n  current device: 0", "CUDA error: out of memory"),
        (
            LlamaCpp(),
            "0.00.019.012 E srv    load_model: failed to load model, '/m'\n",
            "failed to load model, '/m'",
        ),
        (
            Vllm("/p"),
            "INFO x\n(EngineCore pid=7) ERROR 11-26 [core.py:9] torch.OutOfMemoryError: CUDA out of memory. Tried\n",
            "torch.OutOfMemoryError: CUDA out of memory. Tried",
        ),
        (
            Vllm("/p"),
            'Traceback\n  File "x"\nValueError: No available memory for the cache blocks.\n',
            "ValueError: No available memory for the cache blocks.",
        ),
        (
            Vllm("/p"),
            "usage: main.py [-h]\nmain.py: error: unrecognized arguments: --max-num-seqs 4",
            "unrecognized arguments: --max-num-seqs 4; fix: --python with vLLM 0.33, whose arguments these are",
        ),
        (
            Vllm("/p"),
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "  Value error, The checkpoint has model type `x` [type=value_error, input_value=A]\n",
            "The checkpoint has model type `x`",
        ),
        (Vllm("/p"), "huggingface_hub.errors.HFValidationError: Repo id\n", "HFValidationError: Repo id"),
        (
            LlamaCpp("/l"),
            "error: invalid argument: --alias\n",
            "invalid argument: --alias; fix: --server with a llama-server that knows it, such as a newer one",
        ),
        (LlamaCpp(), "ggml.c:7: GGML_ASSERT(a == b) failed\n", "ggml.c:7: GGML_ASSERT(a == b) failed"),
        (LlamaCpp(), "nothing of it\n", ""),
    ],
)
def test_a_log_gives_its_first_cause(engine: Engine, log: str, cause: str) -> None:
    assert cause in engine.cause(log)
    assert bool(engine.cause(log)) == bool(cause)


def test_metrics_of_an_engine_are_summed_under_our_names() -> None:
    text = (
        '# HELP x\nvllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
        'vllm:num_requests_running{engine="1",model_name="m"} 1.0\nvllm:kv_cache_usage_perc{a="b"} NaNx\nother 3\n'
    )
    assert readings(Vllm("/p"), text) == {"running": 3.0}
    assert readings(LlamaCpp(), "llamacpp:requests_deferred 4\n") == {"waiting": 4.0}


def test_variables_that_change_a_llama_server_are_emptied() -> None:
    assert environment({"LLAMA_ARG_CTX_SIZE": "9", "HOME": "/"}) == {"LLAMA_ARG_CTX_SIZE": ""}


def test_a_build_without_its_gpu_is_unfit() -> None:
    warning = "warning: no usable GPU found, --gpu-layers option will be ignored\n"
    assert "would compute on the CPU" in LlamaCpp("/l").unfit(GGUF, warning)
    assert LlamaCpp().unfit(replace(GGUF, backend="cpu"), warning) == LlamaCpp("/l").unfit(GGUF, "") == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("#!/bin/sh\necho something 1.2\n", "is not a llama-server: its --version says something 1.2; fix: name one"),
        ("#!/bin/sh\nexit 3\n", "its --version says nothing, and ends with code 3"),
        ("no program", "does not say its version: [Errno 8] Exec format error"),
        ("", "may not be executed on "),
    ],
)
def test_what_is_not_a_llama_server_is_said(text: str, why: str, tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text(text)
    program.chmod(0o755 if text else 0o644)
    with pytest.raises(ServeError, match=re.escape(why)):
        LlamaCpp(str(program)).version()


def test_an_environment_without_xllamacpp_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)
    with pytest.raises(ServeError, match=r"not installed here; fix: pip install 'paddock\[serve\]'"):
        LlamaCpp().version()


def test_an_engine_that_is_not_here_is_said() -> None:
    for engine, flag in ((LlamaCpp("/absent/llama-server"), "--server"), (Vllm("/absent/python"), "--python")):
        with pytest.raises(ServeError, match=f"{flag}: /absent/.* is not a program on "):
            engine.version()
