"""llama.cpp: `xllamacpp` from this environment, or a `llama-server` that was built for CUDA, ROCm or Vulkan.

Both take the same arguments (llama.cpp, tools/server/README.md, b11549), so that one command line serves both.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from paddock.errors import one_line
from paddock.serve.engines import xllama
from paddock.serve.engines.engine import EngineJob, first_match, missing
from paddock.serve.errors import ServeError, first_line

_VERSION_S = 30.0
_BLIND = "no usable GPU found"
"""Words of llama.cpp's warning (common/arg.cpp, b11549)."""
_BUILD = re.compile(r"version: (.+)")
_CAUSES = (
    re.compile(r"error loading model: (.+)"),
    re.compile(r"^(.*(?:(?:CUDA|ROCm|Metal) error: |GGML_ASSERT|out of memory|failed to allocate).*)$", re.MULTILINE),
    re.compile(r"^[\d.]+ E (?:\S+ +)*?\S+: (.+)", re.MULTILINE),
    re.compile(r"^(?:error|main|llama_\w+|srv +\w+): +(.*(?:error|fail|invalid|unable|could not).*)$", re.M | re.I),
)


class LlamaCpp:
    """llama.cpp's server. `server` is a `llama-server`; empty for `xllamacpp`."""

    name = "llama.cpp"
    key_variable = "LLAMA_API_KEY"
    # By its default, libgomp's threads spin at every barrier for as long as a CPU that others use is away.
    environment: Mapping[str, str] = MappingProxyType({"GOMP_SPINCOUNT": "10000"})
    metrics: Mapping[str, str] = MappingProxyType(
        {
            "llamacpp:requests_processing": "running",
            "llamacpp:requests_deferred": "waiting",
            "llamacpp:prompt_tokens_total": "prompt_tokens_total",
            "llamacpp:tokens_predicted_total": "tokens_total",
        }
    )

    def __init__(self, server: str = "") -> None:
        self._server = server

    def version(self) -> str:
        """Return the version. Raises ServeError where the program is not there, or does not say it."""
        if not self._server:
            try:
                return importlib.metadata.version("xllamacpp")
            except importlib.metadata.PackageNotFoundError:
                raise ServeError("llama.cpp is not installed here; fix: pip install 'paddock[serve]'") from None
        program = shutil.which(self._server)
        if program is None:
            raise missing("--server", self._server, socket.gethostname())
        try:
            done = subprocess.run(
                [program, "--version"], capture_output=True, text=True, errors="replace", timeout=_VERSION_S,
                check=False, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ServeError(f"--server: {program} does not say its version: {first_line(error)}") from None
        said = (done.stderr + done.stdout).strip()
        if found := _BUILD.search(said):
            return found[1].strip()
        words = one_line(said.partition("\n")[0]) or f"nothing, and ends with code {done.returncode}"
        raise ServeError(
            f"--server: {program} is not a llama-server: its --version says {words}; fix: name one of llama.cpp's build"
        )

    def command(self, job: EngineJob, port: int) -> list[str]:
        """Return the command line. The context of all slots is one cache, cut into equal parts."""
        program = [self._server] if self._server else [sys.executable, str(Path(xllama.__file__))]
        words = {
            "model": job.path, "alias": job.id, "host": "127.0.0.1", "port": port,
            "ctx-size": job.context * job.slots, "parallel": job.slots,
            "n-gpu-layers": 0 if job.backend == "cpu" else 999,
        }  # fmt: skip
        if job.threads:
            words["threads"] = job.threads
        if job.backend == "cpu":
            words["device"] = "none"  # by its default, a build for GPUs computes long prompts there all the same
        if job.degree > 1:
            words |= {"split-mode": "row", "tensor-split": ",".join(["1"] * job.degree)}
        return [*program, *(word for name, value in words.items() for word in (f"--{name}", str(value))), "--metrics"]

    def cause(self, log: str) -> str:
        """Return the first cause that its log names."""
        found = first_match(log, *_CAUSES)
        old = any(words in found for words in ("invalid argument", "unknown model architecture"))
        return f"{found}; fix: --server with a llama-server that knows it, such as a newer one" if old else found

    def unfit(self, job: EngineJob, log: str) -> str:
        """Return that it computes on the CPU, where it should on a GPU: it serves all the same then."""
        blind = job.backend != "cpu" and _BLIND in log
        return f"it would compute on the CPU ({_BLIND}); fix: see serve.nodes" if blind else ""


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what llama.cpp's variables of the user would change without a word; each is emptied for the child."""
    return {name: "" for name in environ if name.startswith("LLAMA_ARG_")}
