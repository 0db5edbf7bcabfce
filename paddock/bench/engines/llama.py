"""llama.cpp, by the server that xllamacpp holds: measured as its clients meet it, over HTTP on loopback."""

from __future__ import annotations

import os
import re
import secrets
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from paddock.bench.engines.door import BenchJob, Info, Prepared, Roof, Timer, model_of, process_bytes
from paddock.bench.engines.formats import cache_bytes
from paddock.bench.engines.llama_request import Request
from paddock.bench.engines.processor_roof import ProcessorRoof, UnknownRoof
from paddock.bench.errors import BenchError, BenchInputError
from paddock.errors import one_line
from paddock.gpu.host.resources import quota_threads, usable_cpus
from paddock.models import gguf, random_gguf
from paddock.models.errors import ModelError
from paddock.models.ggml_types import GGML_TYPES

_CACHE = "f16"
_SLACK = 16
"""Tokens of a row's place beyond its length."""
_LEAST_BATCH = 2048
"""Tokens of one pass of llama.cpp, unless all prompts together are more."""
_CHECKED = 64
"""Tokens of a prompt that are read again to see whether results are numbers."""
_INSTRUCTIONS = ("AMX_INT8", "AVX512_VNNI", "AVX512", "AVX_VNNI", "AVX2", "AVX", "SVE", "DOTPROD", "NEON")
_CAUSE = re.compile(r"error loading model: (.+)")
_LOGGED = re.compile(r"^[\d.]+ E (?:\S+ +)*?\S+: (.+)", re.MULTILINE)


class LlamaEngine:
    """A .gguf file, or random weights of a shape, in llama.cpp. All rows of a batch are one request to its server."""

    def __init__(self) -> None:
        self._server: Any = None
        self._roof: Roof = UnknownRoof()
        self._key = secrets.token_hex(16)
        self._request: Request | None = None
        self._length = 0
        self._prompt: list[int] = []

    def load(self, job: BenchJob) -> Info:
        """Load the file, or write random weights and load those; the file of random weights does not stay.

        Raises BenchInputError for what llama.cpp cannot load, BenchError where there is too little memory or disk, or
        no llama.cpp.
        """
        package, threads = _package(), job.threads or quota_threads() or usable_cpus()
        start, written = time.perf_counter(), 0.0
        try:
            if job.source:
                model = model_of(job.shape, job.source)
                self._server = _server(package, Path(job.source), job, threads, self._key)
            else:
                with _random(job) as path:
                    written = time.perf_counter() - start
                    model = gguf.read(path)
                    self._server = _server(package, path, job, threads, self._key)
        except ModelError as error:
            raise BenchInputError(str(error)) from None
        loaded = time.perf_counter() - start - written
        processor = job.device == "cpu"
        self._roof = ProcessorRoof(threads) if processor else UnknownRoof()
        return Info(
            _kernel(package, job.device, model.format, threads),
            # Others are multiplied as bf16 or 8-bit numbers where the CPU has them: nothing here measures that.
            "fp32" if processor and model.format == "fp32" else "",
            model.step_bytes,
            cache_bytes(job.cache),
            loaded,
            written,
        )

    def prepare(self, batch: int, length: int) -> Prepared:
        """Note the length: `load` made places for all rows, and llama.cpp builds its graph in the first request."""
        self._length = length
        return Prepared(0.0, "llama.cpp's own graph")

    def prefill(self, ids: Any) -> None:
        """Send the prompts, ids of shape [batch, prompt], and return when each row has its first new token.

        Raises BenchError where the server refuses, fails or says nothing.
        """
        if self._request is not None:
            self._request.close()
        prompts = ids.tolist()
        self._prompt = prompts[0][:_CHECKED]
        self._request = self._asked(prompts, self._length - ids.shape[1])
        self._request.step()

    def decode(self, token: Any) -> None:
        """Return when each row has its next token. Raises BenchError as `prefill`."""
        if self._request is None:
            raise BenchError("llama.cpp has no request: its prompts come first")
        self._request.step()

    def finish(self) -> Mapping[str, float]:
        """Return what llama.cpp says of the request, and what the harness took of its decoding.

        `prefill_s` is from the start of the prompts to the first new token of a row, `decode_s` from there to its last
        one: the seconds of ``tokens / batch - 1`` steps (llama.cpp, tools/server/server-context.cpp, post_decode:
        `update_prompt_last` at the first token, `update_gen_last` at each); both are the largest of the rows. `tokens`
        are the new ones of all rows. `harness_s` are the seconds of its steps in which the client did not wait,
        `together` the tokens that came with the one after them, because alone they were not text.
        """
        if self._request is None:
            return {}
        request, self._request = self._request, None
        return request.finish()

    def timer(self) -> Timer:
        """Return the wall clock: a token is there when the client has it."""
        return Timer()

    def forget_peak(self) -> None:
        """Do nothing: what is reported of memory is what the process has now."""

    def memory(self) -> int:
        """Return the bytes of this process, those of the mapped file among them.

        Weights that llama.cpp repacks for a CPU count twice: the system may take the mapped ones back.
        """
        return process_bytes()

    def roof(self) -> Roof:
        """Return the roof of the CPU; that of Metal is not known. `load` makes it."""
        return self._roof

    def check(self) -> None:
        """Raise BenchError where a token after the last prompt has a probability that is not a finite number."""
        if not self._prompt:
            return
        request = self._asked([self._prompt], 1, n_probs=1)
        try:
            request.step()
            request.finish()
        finally:
            request.close()
        if request.broken:
            raise BenchError(
                "the model's probabilities are not finite numbers: the results mean nothing"
                "\n    fix: fetch the file again, and compare its checksum with that of where it came from"
            )

    def unload(self) -> None:
        """End the request and the server, and give the memory back."""
        if self._request is not None:
            self._request.close()
            self._request = None
        self._prompt = []
        self._server, self._roof = None, UnknownRoof()

    def _asked(self, prompts: list[list[int]], new: int, n_probs: int = 0) -> Request:
        return Request(self._server.listening_address, self._key, prompts, new, n_probs)


@contextmanager
def _random(job: BenchJob) -> Iterator[Path]:
    """Yield the path of a file of random weights, which goes with the block.

    On Linux it has no name, and goes with this process too, however that ends. A descriptor on macOS is read where the
    last reader stopped, so there the file has a name, as where /proc is hidden.
    """
    folder, nameless, written = _folder(), sys.platform == "linux" and Path("/proc/self/fd").is_dir(), False
    try:
        temporary: Any = tempfile.TemporaryFile if nameless else tempfile.NamedTemporaryFile
        with temporary(dir=folder) as file:
            random_gguf.write_to(file, folder, job.shape, job.dtype, job.seed)
            file.flush()
            written = True
            yield Path(f"/proc/self/fd/{file.fileno()}" if nameless else file.name)
    except OSError as error:
        if written:
            raise
        raise BenchError(
            f"random weights of {job.shape.name} cannot be written in {folder}: {error.strerror or error}"
            "\n    fix: name another folder in TMPDIR"
        ) from None


def _folder() -> Path:
    """Return the folder of large files that do not stay: /tmp is in memory on many a Linux, and /var/tmp on disk."""
    on_disk = Path("/var/tmp")  # noqa: S108  # the file in it has no name
    named = any(name in os.environ for name in ("TMPDIR", "TEMP", "TMP"))
    return on_disk if not named and os.access(on_disk, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())


def _package() -> Any:
    try:
        import xllamacpp
    except ImportError as error:
        raise BenchError(
            f"--engine llama.cpp: xllamacpp cannot be loaded here ({error})"
            "\n    expected: Linux on x86-64 or arm64, or macOS"
            "\n    fix: --engine torch, or bench.load with a server that runs already"
        ) from None
    return xllamacpp


def _server(package: Any, path: Path, job: BenchJob, threads: int, key: str) -> Any:
    """Return a server with the model, at which nobody else can ask. Raises BenchInputError with llama.cpp's reason."""
    params = package.CommonParams()
    params.model.path = str(path)
    params.n_parallel = job.batch
    params.n_ctx = job.batch * (job.length + _SLACK)
    # The prompts of all rows are one pass, so that they begin to decode together.
    params.n_batch = max(_LEAST_BATCH, job.batch * job.length)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.n_gpu_layers = 0 if job.device == "cpu" else -2  # -2: all of them
    params.no_op_offload = job.device == "cpu"
    cache = next(number for number, kind in GGML_TYPES.items() if kind.name == (job.cache or _CACHE).upper())
    params.cache_type_k = params.cache_type_v = package.ggml_type(cache)
    if GGML_TYPES[cache].block > 1:
        params.flash_attn_type = package.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    params.fit_params = False
    # A known one: the prompts are tokens, and the file's own may be beyond this version.
    params.chat_template = "chatml"
    params.check_tensors = bool(job.source)
    params.cache_ram_mib = params.n_ctx_checkpoints = 0
    params.cache_idle_slots = params.ui = params.endpoint_slots = False
    params.n_threads_http = 2
    params.api_keys = [key]
    params.port = 0
    params.verbosity = 1  # errors
    with _own_signals(), _captured() as log:
        try:
            return package.Server(params)
        except (RuntimeError, ValueError, MemoryError) as error:
            raise _refused(job, log() or str(error)) from None


def _refused(job: BenchJob, log: str) -> BenchError:
    found = _CAUSE.search(log) or _LOGGED.search(log)
    cause = one_line(found[1] if found else log.strip())
    if "alloc" in cause or "memory" in cause:
        return BenchError(f"llama.cpp has too little memory: {cause}\n    fix: a smaller --batch, --prompt or model")
    if not job.source:
        return BenchError(
            f"llama.cpp cannot load random weights of {job.shape.name}: {cause}\n    fix: another --dtype or --model"
        )
    return BenchInputError(
        f"--model: llama.cpp cannot load {job.source}: {cause}"
        "\n    expected: a whole .gguf file that this llama.cpp knows"
        "\n    fix: fetch it again, or name a server that runs it: bench.load --url"
    )


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep what Ctrl-C does here: the server would take it, and end the whole process at the second one."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        with suppress(ValueError):  # another thread than the main one has none
            for number, handler in kept.items():
                signal.signal(number, handler)


@contextmanager
def _captured() -> Iterator[Callable[[], str]]:
    """Yield a function that returns what llama.cpp wrote to standard error in the block: it raises no reason itself."""
    sys.stderr.flush()
    with ExitStack() as stack:
        file = 2
        if not stat.S_ISREG(os.fstat(2).st_mode):  # a worker's is a file: what is printed before an abort stays there
            file = stack.enter_context(tempfile.TemporaryFile()).fileno()
            kept = os.dup(2)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, 2)
            os.dup2(file, 2)
        start = os.fstat(file).st_size

        def log() -> str:
            end = time.monotonic() + 1  # it is written by a thread
            text = ""
            while "exiting due to" not in text and time.monotonic() < end:
                time.sleep(0.01)
                text = os.pread(file, 65536, start).decode(errors="replace")
            return text

        yield log


def _kernel(package: Any, device: str, weights: str, threads: int) -> str:
    information = package.get_system_info()
    widest = next((name for name in _INSTRUCTIONS if f"{name} = 1" in information), "")
    where = "Metal" if device == "mps" else widest
    return f"llama.cpp's, {weights} weights, {f'{where}, ' * bool(where)}{threads} thread{'s' * (threads > 1)}"
