"""Replica of a model: one engine on one group of devices, and its answers token by token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.bench.engine.protocol import Info, Spec
from paddock.serve.deployment.tokens import tokens
from paddock.serve.deployment.workers import load_rows, on_this_machine, sleep_while_waiting, take_device
from paddock.serve.engine.limits import resource_mode
from paddock.serve.engine.loop import Loop, Token
from paddock.serve.engine.pace import Pace
from paddock.serve.engine.rows import Rows, warm_up
from paddock.serve.errors import PromptTooLong, ServeError


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of an answer. The last one has a `finish`: `stop` at the model's end token, or `length`."""

    text: str
    prompt_tokens: int
    new_tokens: int
    finish: str = ""


class Replica:
    """One model, loaded. It answers as many requests side by side as the spec's batch; the others wait.

    `mode` is its resource mode: a name, or a policy as JSON text. `ranks` is the number of devices that share it.
    """

    def __init__(self, spec: Spec, mode: str = "", ranks: int = 1) -> None:
        sleep_while_waiting()
        spec = on_this_machine(spec)
        policy = resource_mode(mode)
        self._spec = spec
        self._tokens = tokens(spec.source, spec.shape.vocabulary)
        self._lease = take_device(spec, policy.current()(), ranks)
        self._info, rows = self._load(spec)
        warm_up(rows)
        self._loop = Loop(rows, Pace(policy.current()))

    def _load(self, spec: Spec) -> tuple[Info, Rows]:
        """Load the model, and return what is known of it, and its rows."""
        return load_rows(spec)

    async def generate(
        self, prompt: str, messages: Sequence[Mapping[str, str]], max_tokens: int
    ) -> AsyncIterator[Piece]:
        """Yield the answer as it grows. Raises PromptTooLong, and ServeError where the engine fails.

        A caller that goes away frees its row after the step that runs.
        """
        ids = self._tokens.encode(prompt, messages) or [0]
        room = self._spec.length - len(ids)
        if room < 1:
            raise PromptTooLong(f"the prompt has {len(ids)} tokens, and the context has {self._spec.length}")
        events: asyncio.Queue[Token | ServeError] = asyncio.Queue()
        caller = asyncio.get_running_loop()

        def deliver(event: Token | ServeError) -> None:
            caller.call_soon_threadsafe(events.put_nowait, event)

        job = self._loop.submit(ids, min(max_tokens, room), deliver, self._tokens.end)
        answer: list[int] = []
        text = ""
        try:
            while True:
                event = await events.get()
                if isinstance(event, ServeError):
                    raise event
                answer.append(event.id)
                whole = self._tokens.decode(answer[:-1] if event.finish == "stop" else answer)
                # A character of several tokens is shown once it is whole.
                partial = whole.endswith("\ufffd") and not event.finish
                new, text = ("", text) if partial else (whole[len(text) :], whole)
                yield Piece(new, len(ids), len(answer), event.finish)
                if event.finish:
                    return
        finally:
            self._loop.cancel(job)

    def statistics(self) -> dict[str, Any]:
        """Return the counts of this replica since it was loaded; seconds for times."""
        return {
            **self._loop.statistics(),
            "lease": self._lease.id if self._lease else None,
            "load_seconds": round(self._info.load_s, 3),
            "weight_bytes": self._info.weight_bytes,
        }

    def __del__(self) -> None:
        """End the loop and the lease: Ray Serve calls this when the replica ends."""
        if loop := getattr(self, "_loop", None):
            loop.close()
        if lease := getattr(self, "_lease", None):
            lease.release()
