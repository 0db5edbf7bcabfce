"""Replica of a model: one engine on one group of devices, and its answers token by token."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paddock.bench.engine.protocol import Spec
from paddock.serve.agents.ray_process import DEVICES
from paddock.serve.deployment.tokens import tokens
from paddock.serve.errors import ServeError


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of an answer. The last one has a `finish`: `stop` at the model's end token, or `length`."""

    text: str
    prompt_tokens: int
    new_tokens: int
    finish: str = ""


class Replica:
    """One model, loaded. It answers one request at a time; the others wait before it."""

    def __init__(self, spec: Spec) -> None:
        from paddock.bench.engine.torch_engine import TorchEngine

        if os.environ.get(DEVICES):
            spec = replace(spec, device="cpu")  # devices of a file are a rehearsal: the processor computes
        self._spec = spec
        self._tokens = tokens(spec.source, spec.shape.vocabulary)
        self._engine = TorchEngine()
        self._info = self._engine.load(spec)
        self._turn = asyncio.Lock()
        self._busy = 0.0
        self._requests = self._answered = 0

    async def generate(
        self, prompt: str, messages: Sequence[Mapping[str, str]], max_tokens: int
    ) -> AsyncIterator[Piece]:
        """Yield the answer as it grows. Raises ServeError for a prompt beyond the context.

        A caller that goes away ends the work after the step that runs.
        """
        import torch

        ids = self._tokens.encode(prompt, messages) or [0]
        room = self._spec.length - len(ids)
        if room < 1:
            raise ServeError(f"the prompt has {len(ids)} tokens, and the context has {self._spec.length}")
        self._requests += 1
        async with self._turn:
            began = time.perf_counter()
            try:
                token = await asyncio.to_thread(self._engine.prefill, torch.tensor([ids]))
                async for piece in self._decode(token, len(ids), min(max_tokens, room)):
                    yield piece
                self._answered += 1
            finally:
                self._busy += time.perf_counter() - began

    async def _decode(self, token: Any, prompt: int, most: int) -> AsyncIterator[Piece]:
        ids: list[int] = []
        text = ""
        while True:
            ids.append(int(token[0, 0]))
            ended = ids[-1] in self._tokens.end
            whole = self._tokens.decode(ids[:-1] if ended else ids)
            # A character of several tokens is shown once it is whole.
            new, text = ("", text) if whole.endswith("\ufffd") and len(ids) < most else (whole[len(text) :], whole)
            finish = "stop" if ended else "length" if len(ids) == most else ""
            yield Piece(new, prompt, len(ids), finish)
            if finish:
                return
            token = await asyncio.to_thread(self._engine.decode, token)

    def statistics(self) -> dict[str, Any]:
        """Return the counts of this replica since it was loaded; seconds for times."""
        return {
            "requests": self._requests,
            "answered": self._answered,
            "busy_seconds": round(self._busy, 3),
            "load_seconds": round(self._info.load_s, 3),
            "weight_bytes": self._info.weight_bytes,
        }
