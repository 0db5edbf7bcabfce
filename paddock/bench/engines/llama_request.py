"""A request to llama.cpp's server: the rows of a batch, step by step as their tokens come."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from paddock.bench.errors import BenchError
from paddock.errors import one_line

_PATIENCE = 900.0
"""Most seconds for one step of all rows, or for their prompts."""


class Request:
    """A request to the server: the rows of a batch, whose tokens are counted as they come.

    llama.cpp keeps a token back whose bytes are not a whole character, and sends it with the next one: what counts is
    how many it says it has made (`tokens_predicted`).
    """

    def __init__(self, address: str, key: str, prompts: list[list[int]], new: int, n_probs: int) -> None:
        self._rows, self._new = len(prompts), new
        self._counts = [0] * self._rows
        self._ends: dict[int, Mapping[str, Any]] = {}
        self._wanted, self._messages = 0, 0
        self._waited = self._harness = 0.0
        self.broken = False
        """Whether a probability was not a finite number."""
        self._connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=_PATIENCE)
        self._response: http.client.HTTPResponse | None = None
        body = {
            "prompt": prompts, "n_predict": new, "n_probs": n_probs, "ignore_eos": True, "cache_prompt": False,
            "stream": True, "samplers": ["top_k"], "top_k": 1,
        }  # fmt: skip
        try:
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            self._connection.request("POST", "/completion", json.dumps(body), headers)
            self._response = self._connection.getresponse()
            if self._response.status != 200:
                raise _failed(_message(self._response.read()))
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _silent(error) from None
        except BenchError:
            self.close()
            raise
        self._events = self._stream(self._response)

    def step(self) -> None:
        """Return when each row has one token more."""
        self._wanted += 1
        if self._wanted > self._new:
            raise BenchError(f"llama.cpp was asked for {self._new} tokens of a row, and the harness waits for more")
        began, waited = time.perf_counter(), self._waited
        while min(self._counts) < self._wanted:
            self._take(next(self._events))
        if self._wanted > 1:
            self._harness += time.perf_counter() - began - (self._waited - waited)

    def finish(self) -> dict[str, float]:
        """Read to the end; see `paddock.bench.engines.llama.LlamaEngine.finish`."""
        while len(self._ends) < self._rows:
            self._take(next(self._events))
        self.close()
        timings = [end["timings"] for end in self._ends.values()]
        return {
            "prefill_s": max(row["prompt_ms"] for row in timings) / 1000,
            "decode_s": max(row["predicted_ms"] for row in timings) / 1000,
            "tokens": float(sum(row["predicted_n"] for row in timings)),
            "harness_s": self._harness,
            "together": float(sum(self._counts) - self._messages),
        }

    def close(self) -> None:
        """End the connection, and with it the request."""
        if self._response is not None:
            self._response.close()
        self._connection.close()

    def _take(self, event: Mapping[str, Any]) -> None:
        if "error" in event:
            raise _failed(_message(json.dumps(event).encode()))
        row = int(event.get("index", 0))
        made = int(event.get("tokens_predicted", 0))
        for chosen in event.get("completion_probabilities") or ():
            self.broken = self.broken or not isinstance(chosen.get("logprob"), int | float)
        if event.get("stop"):
            self._ends[row] = event
            if made < self._new:
                raise BenchError(
                    f"llama.cpp ended a row after {made} of {self._new} tokens ({event.get('stop_type', 'unknown')})"
                )
        else:
            self._messages += 1
        self._counts[row] = made

    def _stream(self, response: http.client.HTTPResponse) -> Iterator[Mapping[str, Any]]:
        """Yield the events as they come. Raises BenchError where the server ends early, or is silent for too long."""
        rest = b""
        limit = time.perf_counter() + _PATIENCE
        while True:
            began = time.perf_counter()
            try:
                piece = response.read1(65536)
            except (OSError, http.client.HTTPException) as error:
                raise _silent(error) from None
            now = time.perf_counter()
            self._waited += now - began
            if not piece:
                raise BenchError("llama.cpp's server ended the answer before its last token")
            *events, rest = (rest + piece).split(b"\n\n")
            for event in events:
                if event.startswith(b"data: {"):
                    limit = now + _PATIENCE
                    yield json.loads(event[6:])
            if now > limit:  # its signs of life are not tokens
                raise _silent(TimeoutError(f"no token within {_PATIENCE:g} s"))


def _failed(message: str) -> BenchError:
    return BenchError(f"llama.cpp's server failed: {one_line(message)}")


def _silent(error: Exception) -> BenchError:
    return BenchError(f"llama.cpp's server does not answer: {error}")


def _message(answer: bytes) -> str:
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(answer)["error"]["message"])
    return answer.decode(errors="replace")
