"""The engine on torch: model classes of transformers, a static cache, and weights that torchao packs.

On a GPU the one-token step is compiled into a graph over a cache of fixed size; on a CPU it is eager.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from paddock.bench.engines import torch_step
from paddock.bench.engines.door import BenchJob, Info, Prepared, Timer, process_bytes
from paddock.bench.engines.formats import plain_format
from paddock.bench.engines.torch_roof import CudaTimer, TorchRoof
from paddock.bench.engines.torch_step import GraphStep
from paddock.bench.engines.torch_weights import Packing
from paddock.bench.errors import BenchError, BenchInputError
from paddock.models import config as configurations
from paddock.models.meta import quiet
from paddock.models.model import PLAIN
from paddock.models.tensors import Tensor

_PLAIN = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
_SPREAD = 0.02
"""Random weights are uniform within plus and minus this, as most models are initialised."""
_REASON = 200
"""Characters of torch's reason for not compiling, which goes on for pages."""


class TorchEngine:
    """A causal language model of transformers on one device.

    `graphed` and `backend` are for tests: a GPU's decode step is a graph that inductor compiles, a CPU's is not.
    """

    def __init__(self, *, graphed: bool | None = None, backend: Any = "inductor") -> None:
        self._graphed, self._backend = graphed, backend
        self._model: Any = None
        self._cache: Any = None
        self._graph: GraphStep | None = None
        self._ready: tuple[int, int] | None = None
        self._prepared = Prepared(0.0, "eager")

    def load(self, job: BenchJob) -> Info:
        """Load the model. Raises BenchInputError for a checkpoint that cannot be loaded."""
        self._device = torch.device(job.device)
        if self._device.type == "cuda" and not torch.cuda.is_available():
            raise BenchError(
                f"torch {torch.__version__} sees no GPU here: it is built for another maker's, or the driver is too old"
                "\n    expected: torch for this GPU\n    fix: install that, or --engine llama.cpp on the CPU"
            )
        _limit_memory(job.memory_fraction, self._device)
        start = time.perf_counter()
        packing = self._packing = Packing(job.dtype, self._device)
        name = job.dtype if job.dtype in PLAIN else plain_format(self._device.type, capability(self._device))
        plain = _PLAIN[name]
        if job.source:
            self._model = _checkpoint(Path(job.source), plain, packing, self._device)
        else:
            self._model = _random(job, plain, packing, self._device)
        self._synchronise()
        self._invalid = torch.zeros((), dtype=torch.bool, device=self._device)
        return Info(
            packing.kernel, "fp8" if job.dtype == "fp8" else name, _step_bytes(self._model),
            4 if plain is torch.float32 else 2, time.perf_counter() - start - packing.seconds, packing.seconds,
            tuple(packing.notes()),
        )  # fmt: skip

    def prepare(self, batch: int, length: int) -> Prepared:
        """Get ready for `batch` rows of up to `length` tokens: compile the decode step, where it is compiled.

        A step of a model that cannot be compiled stays eager, and says why.
        """
        graphed = self._device.type == "cuda" if self._graphed is None else self._graphed
        if not graphed:
            return Prepared(0.0, "eager")
        if self._ready == (batch, length):
            return replace(self._prepared, compile_s=0.0)
        start = time.perf_counter()
        prepared = self._compile(batch, length)
        self._ready, self._prepared = (batch, length), replace(prepared, compile_s=time.perf_counter() - start)
        return self._prepared

    def prefill(self, ids: Any) -> torch.Tensor:
        """Read prompts [batch, prompt] and return the first new token of each row, [batch, 1]."""
        with torch.inference_mode():
            x = torch.as_tensor(ids).to(self._device)
            if self._graph is not None:
                return self._checked(*self._graph.read(x))
            self._cache = transformers.DynamicCache(config=self._model.config)
            return self._forward(x)

    def decode(self, token: torch.Tensor) -> torch.Tensor:
        """Return the next token of each row, [batch, 1]."""
        with torch.inference_mode():
            return self._graph(token) if self._graph is not None else self._forward(token)

    def finish(self) -> Mapping[str, float]:
        """Return nothing: torch keeps no times of its own."""
        return {}

    def timer(self) -> Timer:
        """Return the GPU's own clock, or the wall's."""
        return CudaTimer() if self._device.type == "cuda" else Timer(self._synchronise)

    def roof(self) -> TorchRoof:
        """Return the measures of its device."""
        return TorchRoof(self._device)

    def forget_peak(self) -> None:
        """Reset the peak of the GPU's memory."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def memory(self) -> int:
        """Return the most bytes that this process had of the GPU, or what it has of the machine."""
        if self._device.type == "cuda":
            return int(torch.cuda.max_memory_allocated())
        return process_bytes()

    def check(self) -> None:
        """Raise BenchError where a logit of any step so far was not a finite number."""
        if bool(self._invalid):
            raise BenchError(
                "the model's logits are not finite numbers\n"
                "    fix: try --dtype bf16 or fp32; with those too, the checkpoint or the GPU is damaged (./inv smoke)"
            )

    def unload(self) -> None:
        """Give the memory back."""
        self._model = self._cache = self._graph = self._ready = None
        torch_step.release()
        gc.collect()  # a model's modules and hooks point at each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _forward(self, x: torch.Tensor) -> torch.Tensor:
        output = self._model(input_ids=x, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        best, token = output.logits[:, -1:].max(-1)
        return self._checked(token, best)

    def _checked(self, token: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
        """Note a largest logit that is not a finite number, as it is where any of them is NaN, and return the token."""
        self._invalid |= ~torch.isfinite(best).all()
        return token

    def _compile(self, batch: int, length: int) -> Prepared:
        self._graph = None
        if not GraphStep.fits(self._model):
            return Prepared(
                0.0, "eager", "its attention has a sliding window, for which there is no cache of fixed size"
            )
        graph = GraphStep(self._model, batch, length, self._invalid, self._backend, self._packing.options)
        try:
            form = graph.compile()
        except torch._dynamo.exc.TorchDynamoException as error:
            torch_step.release()
            return Prepared(0.0, "eager", f"it does not compile: {' '.join(str(error).split())[:_REASON]}")
        self._graph = graph
        return Prepared(0.0, form)

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        elif self._device.type == "mps":
            torch.mps.synchronize()


def capability(device: torch.device) -> tuple[int, int] | None:
    """Return the compute capability of a GPU of NVIDIA's, None for every other device."""
    if device.type != "cuda" or torch.version.cuda is None:
        return None
    major, minor = torch.cuda.get_device_capability()
    return major, minor


def _random(job: BenchJob, plain: torch.dtype, packing: Packing, device: torch.device) -> Any:
    """Return a model of random weights: each is made on the device and packed before the next one."""
    from accelerate import init_empty_weights

    arguments = job.shape.config()
    config = transformers.AutoConfig.for_model(arguments.pop("model_type"), **arguments)
    with quiet(), init_empty_weights(include_buffers=False):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=plain).eval()
    model.tie_weights()
    generator = torch.Generator(device).manual_seed(job.seed)
    # Of the unpacked weights only one that is tied is needed again.
    tied = {id(model.get_input_embeddings().weight)} if model.config.tie_word_embeddings else set()
    made: dict[int, nn.Parameter] = {}
    for name in [name for name, _ in model.named_modules()]:
        module = model.get_submodule(name)
        for key, buffer in list(module.named_buffers(recurse=False)):
            module._buffers[key] = buffer.to(device)
        for key, weight in list(module.named_parameters(recurse=False)):
            if id(weight) not in made:
                made[id(weight)] = _weight(weight, device, generator)
            module._parameters[key] = made[id(weight)]
        packing.pack(model, name)
        made = {key: weight for key, weight in made.items() if key in tied}
    return model


def _weight(like: torch.Tensor, device: torch.device, generator: torch.Generator) -> nn.Parameter:
    weight = torch.empty(like.shape, dtype=like.dtype, device=device)
    if like.ndim < 2:
        weight.fill_(1)
    else:
        weight.uniform_(-_SPREAD, _SPREAD, generator=generator)
    return nn.Parameter(weight, requires_grad=False)


def _checkpoint(folder: Path, plain: torch.dtype, packing: Packing, device: torch.device) -> Any:
    """Return the model of a checkpoint's folder. Raises BenchInputError."""
    try:
        with quiet():
            model = transformers.AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=plain, local_files_only=True, device_map={"": str(device)}
            ).eval()
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # safetensors and transformers have no common one
        reason = str(error).strip().partition("\n")[0]
        raise BenchInputError(
            f"--model: cannot read {folder}: {reason}\n    expected: a folder with config.json and whole .safetensors"
            " files\n    fix: fetch it again, and compare its size and checksum with those of where it came from"
        ) from None
    _check_weights(model)
    for name in [name for name, _ in model.named_modules()]:
        packing.pack(model, name)
    return model


def _check_weights(model: Any) -> None:
    """Check that weights are finite. Raises BenchError with the name of one that is not.

    Logits do not show it: torch 2.15's attention on the CPU makes zeros of what is not a number.
    """
    for name, tensor in model.named_parameters():
        if tensor.is_floating_point() and tensor.numel() and not torch.isfinite(torch.stack(tensor.aminmax())).all():
            raise BenchError(
                f"the checkpoint's {name} holds what is not a finite number\n"
                "    fix: fetch the checkpoint again, and compare its checksums with those of where it came from"
            )


def _limit_memory(part: float, device: torch.device) -> None:
    """Cap this process's allocator; the CPU has no such cap, and a model was admitted before it came here."""
    if part < 1 and device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(part)
    if part < 1 and device.type == "mps":
        torch.mps.set_per_process_memory_fraction(float(part))  # it takes no whole number


def _step_bytes(model: Any) -> int:
    """Return the bytes of weights that one decode step reads: all but the embedding that it looks up, and idle experts.

    A head that shares the embedding's memory is read, and counts once.
    """
    embedding = model.get_input_embeddings()
    seen: dict[int, int] = {}
    for module in model.modules():
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            if module is not embedding:
                seen |= {part.data_ptr(): part.numel() * part.element_size() for part in _parts(tensor)}
    return sum(seen.values()) - _idle_expert_bytes(model)


def _parts(tensor: Any) -> list[torch.Tensor]:
    """Return the plain tensors that a packed one is made of: values, scales, zeros."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [part for name in names for part in _parts(getattr(tensor, name))]


def _idle_expert_bytes(model: Any) -> int:
    """Return the bytes of the experts that a token does not use: a step of one row does not read them."""
    found = configurations.model(configurations.of(model.config.get_text_config().to_dict(), "model"), "model")
    if not found.experts:
        return 0
    held = sum(
        weight.numel() * weight.element_size()
        for name, weight in model.named_parameters()
        if Tensor(name, 0, 0, "").is_expert
    )
    return int(held) * (found.experts - found.experts_active) // found.experts
