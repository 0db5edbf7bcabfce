"""Replica of a model: one engine on one group of devices, and its answers token by token."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

from paddock.openai.answers import Piece
from paddock.serve.admission.options import check_own_engine
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.requests import DEFAULT_TOKENS, Generation, known_fields
from paddock.serve.deployment.workers import load_rows, on_this_machine, sleep_while_waiting, take_device
from paddock.serve.engine.lease import largest_memory_part
from paddock.serve.engine.limits import resource_mode
from paddock.serve.engine.loop import Loop, Token
from paddock.serve.engine.pace import Pace
from paddock.serve.engine.rows import OutOfMemory, Rows, warm_up
from paddock.serve.engine.text import AnswerText
from paddock.serve.engine.tokens import tokens
from paddock.serve.errors import PromptTooLong, ServeError
from paddock.serve.own.protocol import Info, Spec

_SHORT = 4096
"""Characters of a prompt that is encoded at once; a thread takes longer to start."""
_MOST_FAILURES = 3
"""Requests that may fail one after the other before the replica is unhealthy."""


class Replica:
    """One model, loaded. It answers as many requests side by side as the spec's batch; the others wait.

    `mode` is its resource mode: a name, or a policy as JSON text. `ranks` is the number of devices that share it.
    """

    def __init__(self, spec: Spec, mode: str = "", ranks: int = 1) -> None:
        sleep_while_waiting()
        spec = on_this_machine(spec)
        policy = resource_mode(mode)
        self._id = uuid.uuid4().hex[:12]
        self._spec = spec = replace(spec, memory_fraction=largest_memory_part(policy))
        self._failures, self._unloaded = 0, False
        self._tokens = tokens(spec.source, spec.shape.vocabulary)
        self._lease = take_device(spec, policy, ranks)
        self._info, rows = self._load(spec)
        warm_up(rows)
        self._loop = Loop(rows, Pace(policy.current()))

    def _load(self, spec: Spec) -> tuple[Info, Rows]:
        """Load the model, and return what is known of it, and its rows."""
        return load_rows(spec)

    async def generate(self, generation: Generation) -> AsyncIterator[Piece]:
        """Yield the answer as it grows. Raises PromptTooLong, RequestError, and ServeError where the engine fails.

        A caller that goes away frees its row after the step that runs.
        """
        check_own_engine(generation.document, known_fields(chat=generation.chat))
        prompt = generation.prompt, generation.messages, self._spec.length
        if len(generation.prompt) <= _SHORT:
            ids = self._tokens.encode(*prompt) or [0]
        else:  # it takes up to seconds, in which the streams of all others would stand still
            ids = await asyncio.to_thread(self._tokens.encode, *prompt) or [0]
        room = self._spec.length - len(ids)
        if room < 1:
            raise PromptTooLong(f"the prompt has {len(ids)} tokens, and the context has {self._spec.length}")
        events: asyncio.Queue[Token | ServeError] = asyncio.Queue()
        caller = asyncio.get_running_loop()

        def deliver(event: Token | ServeError) -> None:
            caller.call_soon_threadsafe(events.put_nowait, event)

        try:
            most = generation.max_tokens or min(DEFAULT_TOKENS, generation.most)
            job = self._loop.submit(ids, min(most, room), deliver, self._tokens.end, generation.sampling)
        except ServeError as error:
            raise self._stated(error) from None
        answer, count, finish = AnswerText(self._tokens, generation.stop), 0, ""
        try:
            while not finish:
                text = ""
                # Tokens that are there already go together: each piece costs a message to the gateway.
                for event in [await events.get(), *_ready(events)]:
                    if isinstance(event, ServeError):
                        raise self._stated(event)
                    count, finish = count + 1, event.finish
                    text += answer.add(None if finish == "stop" else event.id, bool(finish))
                    if answer.stopped:
                        finish = "stop"
                        self._loop.finish(job)
                        break
                if finish:
                    self._failures = 0
                if text or finish or count == 1:
                    yield Piece(text, len(ids), count, finish)
        finally:
            self._loop.cancel(job)

    def _stated(self, error: ServeError) -> Exception:
        """Return an error of the engine as its caller gets it, and count those that follow each other."""
        if self._unloaded:
            return RequestError("the model has been unloaded", 502, "model_unloaded")
        if not isinstance(error, OutOfMemory):
            self._failures += 1
        return error

    def check_health(self) -> None:
        """Raise ServeError where no request succeeds any more: Ray Serve asks, and starts an unhealthy replica anew.

        A device that has failed answers every request with an error, and its process lives on.
        """
        if self._failures >= _MOST_FAILURES:
            raise ServeError(f"the last {self._failures} requests failed in the engine")

    def unload(self) -> None:
        """End the requests that wait and run with a stated error; Ray Serve ends the replica afterwards."""
        self._unloaded = True
        threading.Thread(target=self._loop.close, name="unload", daemon=True).start()

    def statistics(self) -> dict[str, Any]:
        """Return the counts of this replica since it was loaded; seconds for times."""
        return {
            "replica": self._id,
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


def _ready(events: asyncio.Queue[Token | ServeError]) -> Iterator[Token | ServeError]:
    while not events.empty():
        yield events.get_nowait()
