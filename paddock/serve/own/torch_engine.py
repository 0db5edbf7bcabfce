"""The engine on torch: a transformers model, our own decode loop and packed Linear layers.

On the processor activations and cache are fp32 whatever the weights are, and models of Llama's kind have a short step
of their own.
"""

from __future__ import annotations

import gc
import time
from typing import Any

import torch
import transformers

from paddock.models.shapes import cache_element
from paddock.models.tensors import Tensor
from paddock.serve.errors import ServeError
from paddock.serve.own import loading, parallel, refusals
from paddock.serve.own.packing.convert import kernel
from paddock.serve.own.packing.formats import refusal
from paddock.serve.own.processor_step import Pick, ProcessorStep, most_probable
from paddock.serve.own.protocol import Info, Spec


class TorchEngine:
    """A causal language model of transformers on one device, or one rank's or stage's part of it."""

    def __init__(self) -> None:
        self._model: Any = None
        self._cache: Any = None
        self._own: ProcessorStep | None = None
        self._invalid: torch.Tensor | None = None
        self._spec: Spec | None = None

    def load(self, spec: Spec) -> Info:
        """Load the model. Raises ServeError, and ServeInputError for a dtype or checkpoint that cannot be loaded."""
        self._spec, device = spec, torch.device(spec.device)
        if error := refusal(spec.dtype, device.type, loading.capability(device)):
            raise error
        _limit_memory(spec.memory_fraction, device)
        start = time.perf_counter()
        loaded = loading.load(spec, device, parallel.rank(), parallel.world_size())
        model = loaded.model
        if spec.source:
            _check_weights(model)
        if device.type == "cpu" and spec.dtype != "fp16":
            _compute_in_fp32(model)
            self._own = ProcessorStep(model, spec.length) if ProcessorStep.fits(model) else None
        seconds = time.perf_counter() - start
        self._model = model
        self._invalid = torch.zeros((), dtype=torch.bool, device=device)
        return Info(
            "torch",
            f"torch {torch.__version__}, transformers {transformers.__version__}",
            kernel(spec.dtype, device),
            _streamed_bytes(model) - _idle_expert_bytes(model),
            cache_element(spec.dtype, processor=device.type == "cpu"),
            seconds - loaded.pack_seconds,
            loaded.pack_seconds,
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
        with torch.inference_mode():
            self._cache = transformers.DynamicCache(config=self._model.config)
            return self.forward(x.to(self._loaded().device), self._cache, pick), self._cache

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
            (token, best), cache = self.read(ids)
            if self._own:
                self._own.start(cache)
            return self._checked(token, best)

    def decode(self, token: torch.Tensor) -> torch.Tensor:
        """Return the next token of each row, [batch, 1]."""
        with torch.inference_mode():
            return self._checked(*(self._own or self._cached)(token))

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits at every position of the prompts, [batch, length, vocabulary] fp32 on the processor."""
        with torch.inference_mode():
            logits: torch.Tensor = self._model(input_ids=ids.to(self._loaded().device), use_cache=False).logits
            return logits.float().cpu()

    def check(self) -> None:
        """Raise ServeError where a logit of any step so far was no finite number."""
        if self._invalid is not None and bool(self._invalid):
            raise ServeError(
                "the model's logits are not finite numbers\n"
                "    fix: try --dtype bf16 or fp32; with those too, the checkpoint or the GPU is damaged (./inv smoke)"
            )

    def unload(self) -> None:
        """Give the memory back."""
        self._model = self._cache = self._own = None
        gc.collect()  # a model's modules and hooks point at each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _cached(self, ids: torch.Tensor) -> Any:
        return self.forward(ids, self._cache)

    def _checked(self, token: torch.Tensor, best: torch.Tensor) -> torch.Tensor:
        """Note a largest logit that is no finite number, as it is where any of them is NaN, and return the token."""
        self._invalid |= ~torch.isfinite(best).all()
        return token

    def _loaded(self) -> Spec:
        if self._spec is None:
            raise ServeError("no model is loaded")
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


def _limit_memory(part: float, device: torch.device) -> None:
    """Cap this process's allocator; the processor has no such cap, and a model was admitted before it came here."""
    if part < 1 and device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(part)
    if part < 1 and device.type == "mps":
        torch.mps.set_per_process_memory_fraction(float(part))  # it refuses a number that is no float


def _check_weights(model: Any) -> None:
    """Check that weights and scales are finite. Raises ServeError with the name of one that is not.

    Logits do not show it: torch 2.15's attention on the processor makes zeros of what is not a number.
    """
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and tensor.numel() and not torch.isfinite(torch.stack(tensor.aminmax())).all():
            raise ServeError(
                f"the checkpoint's {name} holds what is not a finite number\n"
                "    fix: fetch the checkpoint again, and compare its checksums with those of where it came from"
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


def _idle_expert_bytes(model: Any) -> int:
    """Return the bytes of the experts that a token does not use: a step of one row does not read them."""
    found = refusals.of_transformers(model.config, "model")
    if not found.experts:
        return 0
    held = sum(
        weight.numel() * weight.element_size()
        for name, weight in model.named_parameters()
        if Tensor(name, 0, 0, "").is_expert
    )
    return int(held) * (found.experts - found.experts_active) // found.experts


def _notes(loaded: loading.Loaded, spec: Spec) -> tuple[str, ...]:
    notes = []
    if loaded.unpacked and spec.dtype in ("int8", "int4"):
        names = ", ".join(dict.fromkeys(loaded.unpacked))
        notes.append(f"not packed, since their size does not fit: {names}")
    if loaded.read_whole:
        notes.append("the checkpoint was read whole on the processor: it is none in .safetensors of the model's names")
    return tuple(notes)
