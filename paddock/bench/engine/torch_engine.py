"""The engine on torch: a transformers model, our own decode loop and packed Linear layers.

On the processor activations and cache are fp32 whatever the weights are, and models of Llama's kind have a short step
of their own. On a GPU the one-token step is compiled into a graph over a static cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import transformers

from paddock.bench.engine import loading, parallel
from paddock.bench.engine.processor_step import Pick, ProcessorStep, most_probable
from paddock.bench.engine.protocol import Info, Spec
from paddock.bench.engine.shapes import cache_element
from paddock.bench.errors import BenchError, BenchInputError
from paddock.bench.quantisation.convert import kernel


class TorchEngine:
    """A causal language model of transformers on one device, or one rank's or stage's part of it."""

    def __init__(self) -> None:
        self._model: Any = None
        self._cache: Any = None
        self._graphed = False
        self._own: ProcessorStep | None = None
        self._step: Callable[[torch.Tensor], Any] = self._cached
        self._invalid: torch.Tensor | None = None
        self._spec: Spec | None = None

    def load(self, spec: Spec) -> Info:
        """Load the model. Raises BenchError, and BenchInputError for a dtype or checkpoint that cannot be loaded."""
        self._spec, device = spec, torch.device(spec.device)
        _check_dtype(spec.dtype, device)
        if device.type == "cuda" and spec.memory_fraction < 1:
            torch.cuda.set_per_process_memory_fraction(spec.memory_fraction)
        start = time.perf_counter()
        loaded = loading.load(spec, device, parallel.rank(), parallel.world_size())
        model = loaded.model
        if device.type == "cpu" and spec.dtype != "fp16":
            _compute_in_fp32(model)
            self._own = ProcessorStep(model, spec.length) if ProcessorStep.fits(model) else None
            self._step = self._own or self._cached
        seconds = time.perf_counter() - start
        self._model = model
        self._invalid = torch.zeros((), dtype=torch.bool, device=device)
        self._graphed = device.type == "cuda" and spec.compiled
        compile_s = self._compile() if self._graphed else 0.0
        return Info(
            "torch",
            f"torch {torch.__version__}, transformers {transformers.__version__}",
            kernel(spec.dtype, device),
            _streamed_bytes(model),
            cache_element(spec.dtype, processor=device.type == "cpu"),
            seconds - loaded.pack_seconds,
            loaded.pack_seconds,
            compile_s,
            "compiled into a CUDA graph" if self._graphed else "Paddock's own" if self._own else "eager",
            _notes(loaded, spec),
        )

    @property
    def model(self) -> Any:
        """The loaded model of transformers."""
        return self._model

    @property
    def has_own_step(self) -> bool:
        """Return whether one token is computed by `ProcessorStep`, and not by the model's own modules."""
        return self._own is not None

    def read(self, x: torch.Tensor, pick: Pick = most_probable) -> tuple[Any, Any]:
        """Read prompts, and return what `forward` does of their last tokens, and the cache of them all."""
        spec = self._loaded()
        with torch.inference_mode():
            self._cache = self._new_cache(x.shape[0])
            return self.forward(x.to(spec.device), self._cache, pick), self._cache

    def forward(self, x: torch.Tensor, cache: Any, pick: Pick = most_probable, **more: Any) -> Any:
        """Compute this part of the model: ids [batch, length] in, the next token of each row and its logit out.

        A later stage of a pipeline takes hidden states, [batch, length, hidden], and an earlier one returns them.
        """
        spec = self._loaded()
        if spec.reads_tokens:
            more |= {"input_ids": x}
        else:
            more |= {"inputs_embeds": x.to(self._model.model.layers[0].input_layernorm.weight.dtype)}
        if not spec.gives_tokens:
            return self._model.model(**more, past_key_values=cache, use_cache=True).last_hidden_state
        output = self._model(**more, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return pick(output.logits[:, -1:])

    def prefill(self, ids: torch.Tensor) -> torch.Tensor:
        """Read prompts [batch, length] and return the first new token of each row, [batch, 1]."""
        with torch.inference_mode():
            (token, best), _ = self.read(ids)
            if self._own:
                self._own.start(self._cache)
            return self._checked(token, best)

    def decode(self, token: torch.Tensor) -> torch.Tensor:
        """Return the next token of each row, [batch, 1]."""
        with torch.inference_mode():
            # A graph writes each step's token to the same place.
            token, best = self._step(token)
            return self._checked(token.clone() if self._graphed else token, best)

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits at every position of the prompts, [batch, length, vocabulary] fp32 on the processor."""
        with torch.inference_mode():
            logits: torch.Tensor = self._model(input_ids=ids.to(self._loaded().device), use_cache=False).logits
            return logits.float().cpu()

    def check(self) -> None:
        """Raise BenchError where a logit of any step so far was no finite number."""
        if self._invalid is not None and bool(self._invalid):
            raise BenchError(
                "the model's logits are not finite numbers\n"
                "    fix: try --dtype bf16 or fp32; with those too, the checkpoint or the GPU is damaged (./inv smoke)"
            )

    def unload(self) -> None:
        """Give the memory back."""
        self._model = self._cache = self._own = None
        self._step = self._cached
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _cached(self, ids: torch.Tensor) -> Any:
        return self.forward(ids, self._cache)

    def _checked(self, token: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
        """Note a largest logit that is no finite number, as it is where any of them is NaN, and return the token."""
        self._invalid |= ~torch.isfinite(best).all()
        return token

    def _new_cache(self, batch: int) -> Any:
        spec = self._loaded()
        if torch.device(spec.device).type != "cuda":
            return transformers.DynamicCache(config=self._model.config)
        if self._cache is None or self._cache.max_batch_size != batch:
            return transformers.StaticCache(config=self._model.config, max_cache_len=spec.length)
        self._cache.reset()
        return self._cache

    def _compile(self) -> float:
        """Compile the one-token step for the largest batch and return the seconds."""
        spec, start = self._loaded(), time.perf_counter()
        self._step = torch.compile(self._cached, mode="reduce-overhead", fullgraph=False, dynamic=False)
        token = self.prefill(torch.zeros(spec.batch, 8, dtype=torch.long))
        for _ in range(3):
            token = self.decode(token)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def _loaded(self) -> Spec:
        if self._spec is None:
            raise BenchError("no model is loaded")
        return self._spec


def _compute_in_fp32(model: Any) -> None:
    """Leave the packed weights as they are, and compute everything between them in fp32."""
    embedding = model.get_input_embeddings()
    for module in model.modules():
        if module is not embedding and not hasattr(module, "in_features"):
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.float()
    if embedding is not None:
        embedding.register_forward_hook(lambda _module, _inputs, output: output.float())


def _check_dtype(dtype: str, device: torch.device) -> None:
    """Raise BenchInputError for a dtype that the GPU lacks."""
    if device.type != "cuda" or torch.version.cuda is None:
        return
    major, minor = torch.cuda.get_device_capability()
    if dtype in ("bf16", "int4") and major < 8:
        raise BenchInputError(
            f"--dtype {dtype}: {torch.cuda.get_device_name()} (compute capability {major}.{minor}) has no bf16\n"
            "    expected: fp16 or fp32; bf16, and int4 which computes in it, need compute capability 8.0"
        )


def _streamed_bytes(model: Any) -> int:
    """Return the bytes of weights that one decode step reads: all but the embedding that it looks up.

    A head that shares the embedding's memory is read, and counts once.
    """
    embedding = model.get_input_embeddings()
    tensors: dict[int, int] = {
        tensor.data_ptr(): tensor.numel() * tensor.element_size()
        for module in model.modules()
        if module is not embedding
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))
        if tensor.ndim > 1
    }
    scales = sum(
        tensor.numel() * tensor.element_size()
        for module in model.modules()
        for name, tensor in module.named_buffers(recurse=False)
        if name == "scale" and tensor.ndim == 1
    )
    return int(sum(tensors.values()) + scales)


def _notes(loaded: loading.Loaded, spec: Spec) -> tuple[str, ...]:
    notes = []
    if loaded.unpacked and spec.dtype in ("int8", "int4"):
        names = ", ".join(dict.fromkeys(loaded.unpacked))
        notes.append(f"not packed, since their size does not fit: {names}")
    if loaded.read_whole:
        notes.append("the checkpoint was read whole on the processor: it is none in .safetensors of the model's names")
    return tuple(notes)
