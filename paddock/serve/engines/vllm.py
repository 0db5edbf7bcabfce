"""vLLM: its server, from an environment of Python of its own, since it pins other versions of torch.

The arguments are those of vLLM 0.33 (`vllm serve --help`, 2026-11).
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from paddock.serve.engines.engine import EngineJob, first_match, missing
from paddock.serve.errors import ServeError, first_line

DTYPES: Mapping[str, str] = MappingProxyType({"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"})
"""Formats of weights that vLLM takes as they are, by our names."""
_VERSION = "import importlib.metadata; print(importlib.metadata.version('vllm'))"
_VERSION_S = 60.0
_CAUSES = (
    re.compile(r"([\w.]*OutOfMemoryError: .+)"),
    re.compile(r"(.*CUDA out of memory.*)"),
    re.compile(r"^\s+Value error, (.+?)(?: \[type=.*)?$", re.MULTILINE),  # of pydantic, below the line of its error
    re.compile(r"^(?:\(\w+ pid=\d+\) )?(?:ERROR .*?\] )?([\w.]*(?:Error|Exception): .+)$", re.MULTILINE),
    re.compile(r"^\S.*: error: (.+)$", re.MULTILINE),
)


class Vllm:
    """vLLM's server. `python` is the interpreter of its environment on each machine that may get the model."""

    name = "vllm"
    key_variable = "VLLM_API_KEY"
    environment: Mapping[str, str] = MappingProxyType(
        {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
    )
    metrics: Mapping[str, str] = MappingProxyType(
        {
            "vllm:num_requests_running": "running",
            "vllm:num_requests_waiting": "waiting",
            "vllm:kv_cache_usage_perc": "cache_used",
            "vllm:prompt_tokens_total": "prompt_tokens_total",
            "vllm:generation_tokens_total": "tokens_total",
        }
    )

    def __init__(self, python: str) -> None:
        self._python = python

    def version(self) -> str:
        """Return the version of vLLM in its environment. Raises ServeError where it has none."""
        python = self._python
        if not (Path(python).is_file() and os.access(python, os.X_OK)):
            raise missing("--python", python, socket.gethostname())
        try:
            done = subprocess.run(
                [python, "-c", _VERSION], capture_output=True, text=True, timeout=_VERSION_S, check=False,
                env={name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServeError(f"--python: {python} cannot be asked for vLLM: {first_line(error)}") from None
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"code {done.returncode}"]
            raise ServeError(f"--python: {python} has no vLLM: {last[0]}; fix: name the Python of an environment of it")
        return done.stdout.strip()

    def command(self, job: EngineJob, port: int) -> list[str]:
        """Return the command line of the server."""
        words = {
            "served-model-name": job.id, "host": "127.0.0.1", "port": port,
            "dtype": DTYPES.get(job.dtype, "auto"), "max-model-len": job.context, "max-num-seqs": job.slots,
            "gpu-memory-utilization": f"{job.memory_part:g}",
        }  # fmt: skip
        if job.quantization:
            words["quantization"] = job.quantization
        if job.degree > 1:
            words["tensor-parallel-size"] = job.degree
        if job.across_machines:
            words["distributed-executor-backend"] = "ray"
        flags = [word for name, value in words.items() for word in (f"--{name}", str(value))]
        return [self._python, "-m", "vllm.entrypoints.cli.main", "serve", job.path, *flags]

    def cause(self, log: str) -> str:
        """Return the first cause that its log names."""
        found = first_match(log, *_CAUSES)
        other = found.startswith(("unrecognized arguments", "argument --"))
        return f"{found}; fix: --python with vLLM 0.33, whose arguments these are" if other else found

    def unfit(self, job: EngineJob, log: str) -> str:
        """Return nothing: it ends where it cannot do what it is asked for."""
        return ""
