"""Requests of completions, as the gateway hands them on."""

from __future__ import annotations

import json
from typing import Any

from paddock.serve.admission.requests import Generation, completion


def generation(prompt: str, most: int, **more: Any) -> Generation:
    """Return the request for an answer of at most so many tokens, streamed."""
    return completion(
        json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": most, "stream": True, **more}).encode()
    )
