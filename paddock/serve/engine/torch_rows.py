"""Rows of a torch model: a static cache with a place for each row, and one step for all of them.

A prompt is read alone, and its keys and values are copied to the row. Rows of different lengths share a step: each has
its own position, and a mask hides the places behind it. The used rows are the first ones of the cache, so that a step
reads no others; the last one moves where one leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import transformers
from transformers.cache_utils import CacheLayerMixin

from paddock.serve.engine.rows import OutOfMemory
from paddock.serve.engine.sampling import Draws, drawn
from paddock.serve.errors import ServeError, first_line, in_one_line
from paddock.serve.own.operations import Positions
from paddock.serve.own.processor_step import Pick, ProcessorStep, most_probable
from paddock.serve.own.refusals import of_transformers, rows_refusal
from paddock.serve.own.torch_engine import TorchEngine

_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


class TorchRows:
    """Rows of a loaded engine. Raises ServeError for a model whose layers do not keep every token.

    Those of a stage of a pipeline take and return hidden states in the host's memory, [rows, length, hidden], where the
    stage has no embedding or no output head.
    """

    def __init__(self, engine: TorchEngine, slots: int, length: int) -> None:
        config = engine.model.config
        if error := rows_refusal(of_transformers(config, f"a {config.model_type}")):
            raise ServeError(in_one_line(error))
        self._engine, self.slots = engine, slots
        self._places = Places(engine.model, self.slots, length)
        self._step: Any = RowsStep(engine.model, self._places, self._pick) if engine.has_own_step else self._forward
        self._draws: Draws = ()

    def join(self, ids: Any, draws: Draws = ()) -> Any:
        """Read a prompt, append its row and return its first token. Raises OutOfMemory, and appends nothing."""
        self._draws = draws
        length = len(ids) if isinstance(ids, Sequence) else ids.shape[1]
        with _memory(f"for a prompt of {length} tokens"), torch.inference_mode():
            output, cache = self._engine.read(torch.tensor([ids]) if isinstance(ids, Sequence) else ids, self._pick)
            self._places.append(cache, length)
            answer = _answer(output)
        return answer[0] if isinstance(answer, list) else answer

    def decode(self, tokens: Any, draws: Draws = ()) -> Any:
        """Return the token after the last one of each row. Raises OutOfMemory, and the step can be tried again."""
        places, self._draws = self._places, draws
        x = torch.tensor(tokens)[:, None] if isinstance(tokens, Sequence) else tokens
        with _memory(f"for a step of {x.shape[0]} rows"), torch.inference_mode():
            places.prepare()
            answer = _answer(self._step(x.to(places.device)))
            places.advance()
        return answer

    def leave(self, row: int) -> None:
        """Free a row. The last row takes its number."""
        with torch.inference_mode():
            self._places.remove(row)

    def _forward(self, x: torch.Tensor) -> Any:
        places = self._places
        return self._engine.forward(
            x, places.cache, self._pick, position_ids=places.positions[:, None], attention_mask=places.mask
        )

    def _pick(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        token, best = most_probable(logits)
        for row, draw in enumerate(self._draws):
            if draw is not None:
                token[row, 0] = drawn(logits[row, -1], draw)
        return token, best


def _answer(output: Any) -> Any:
    """Return the token of each row, None where its logit is no finite number; or hidden states in the host's memory."""
    if isinstance(output, torch.Tensor):
        return output.cpu()
    tokens, best = output
    finite = torch.isfinite(best[:, 0]).tolist()
    return [token if valid else None for token, valid in zip(tokens[:, 0].tolist(), finite, strict=True)]


class Places:
    """Keys and values of the rows. `prepare` sets what one step of all rows needs."""

    def __init__(self, model: Any, slots: int, length: int) -> None:
        self._slots, self.length = slots, length
        self.device = model.device
        self.layers: list[_Layer] = []
        self.cache: Any = None
        self._ends: list[int] = []
        self.end = 0
        self.positions = self.rows = self.mask = torch.empty(0)

    def append(self, cache: Any, length: int) -> None:
        """Copy a prompt's keys and values to the next row."""
        if not self.layers:
            self.layers = [_Layer(self, layer.keys, layer.values, self._slots, self.length) for layer in cache.layers]
            self.cache = transformers.Cache(layers=self.layers)
        row = len(self._ends)
        for own, read in zip(self.layers, cache.layers, strict=True):
            own.keys[row, :, :length] = read.keys[0, :, :length]
            own.values[row, :, :length] = read.values[0, :, :length]
        self._ends.append(length)

    def remove(self, row: int) -> None:
        """Free a row, and move the last one there."""
        end, last = self._ends.pop(), len(self._ends)
        if row == last:
            return
        self._ends[row] = end
        for layer in self.layers:
            layer.keys[row, :, :end] = layer.keys[last, :, :end]
            layer.values[row, :, :end] = layer.values[last, :, :end]

    def prepare(self) -> None:
        """Set positions and mask for one more token of every row."""
        self.end = max(self._ends) + 1
        self.rows = torch.arange(len(self._ends), device=self.device)
        self.positions = torch.tensor(self._ends, device=self.device)
        dtype = self.layers[0].keys.dtype
        hidden = torch.arange(self.end, device=self.device) > self.positions[:, None]
        mask = torch.zeros(hidden.shape, dtype=dtype, device=self.device)
        self.mask = mask.masked_fill_(hidden, torch.finfo(dtype).min)[:, None, None]

    def advance(self) -> None:
        """Keep the token of the step."""
        self._ends = [end + 1 for end in self._ends]


class _Layer(CacheLayerMixin):  # type: ignore[misc]  # transformers is unknown to the checker
    """Cache of one layer: every row is written at its own position."""

    def __init__(self, places: Places, keys: torch.Tensor, values: torch.Tensor, slots: int, length: int) -> None:
        super().__init__()
        self._places, self._length = places, length
        self.keys = keys.new_zeros(slots, keys.shape[1], length, keys.shape[3])
        self.values = values.new_zeros(slots, values.shape[1], length, values.shape[3])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        places, count = self._places, key_states.shape[0]
        self.keys[places.rows, :, places.positions] = key_states[:, :, 0]
        self.values[places.rows, :, places.positions] = value_states[:, :, 0]
        return self.keys[:count, :, : places.end], self.values[:count, :, : places.end]

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the memory is taken at once."""

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._places.end, 0

    def get_seq_length(self) -> int:
        return self._places.end - 1

    def get_max_length(self) -> int:
        return self._length


class RowsStep(ProcessorStep):
    """Step of models of Llama's kind on the processor, with a position of its own for each row."""

    def __init__(self, model: Any, places: Places, pick: Pick) -> None:
        super().__init__(model, places.length)
        self._places, self.pick = places, pick

    def __call__(self, token: torch.Tensor) -> Any:
        """Return the next token of each row, [rows, 1], and its logit."""
        places = self._places
        cache = ((layer.keys, layer.values) for layer in places.layers)
        return self._step(token, cache, Positions(places.positions, places.end, places.mask))


@contextmanager
def _memory(what: str) -> Iterator[None]:
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise OutOfMemory(f"the device has no memory {what}: {first_line(error)}") from None
    except RuntimeError as error:
        if not any(part in str(error) for part in _NO_MEMORY):
            raise
        raise OutOfMemory(f"the device has no memory {what}: {first_line(error)}") from None
