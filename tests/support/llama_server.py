"""llama.cpp's own server in a child process, with a small model of random weights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

_PROGRAM = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.model_alias, params.api_keys = sys.argv[1], {sys.argv[2]}, [sys.argv[3]]
params.n_parallel, params.n_ctx, params.cpuparams.n_threads, params.warmup = 2, 8192, 1, False
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


def small_model(path: Path) -> Path:
    """Write a model that answers within milliseconds, with a tokenizer of any text and a chat template."""
    from paddock.models.random_gguf import write
    from paddock.models.shapes import shape

    tiny = replace(
        shape("tiny"), hidden=64, intermediate=128, layers=2, heads=4, kv_heads=2, head_dim=16, vocabulary=512
    )
    write(path, tiny, "fp16")
    return path


@contextmanager
def llama_server(model: Path, name: str, key: str) -> Iterator[str]:
    """Serve a model under a name while the block runs; yield the address."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(model), name, key], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout
    try:
        line = next((line for line in process.stdout if line.startswith("http")), "")
        assert line, "llama.cpp's server has ended"
        yield line.strip()
    finally:
        process.kill()
        process.communicate()
