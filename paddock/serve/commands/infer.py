"""`serve.infer`: one question to an instance, through the gateway."""

from __future__ import annotations

import http.client
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paddock.console.command import command
from paddock.console.output import work_begins
from paddock.console.parameters import Parameters, parameter
from paddock.errors import printable
from paddock.openai.documents import parsed
from paddock.openai.errors import ExchangeError, reported
from paddock.openai.stream import Part, StreamReader
from paddock.serve.admission.keys import api_keys
from paddock.serve.agents.home import Home, Member
from paddock.serve.errors import ServeError

_SCHEMA = 1
_ANSWER_S = 600.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opener that gives prompt and API key to no proxy of the environment: the gateway is on this machine."""


@dataclass(frozen=True, kw_only=True)
class Infer(Parameters):
    """Parameters of `serve.infer`."""

    id: str = parameter(..., "the instance, as serve.models shows it")
    prompt: str = parameter(..., "text to continue")
    max_tokens: int = parameter(64, "most tokens of the answer")
    key_file: Path | None = parameter(None, "the file with the API key, else PADDOCK_SERVE_KEYS")


@command(checks_values_first=True)
def infer(parameters: Infer) -> int:
    """Ask an instance through the gateway, and print the answer as it comes. Raises ServeError."""
    head, out = Home.of().head(), parameters.json
    work_begins()
    text, reader = "", StreamReader()
    for part in _parts(reader, head, parameters):
        text += part.text
        if not out.replaces_text:
            sys.stdout.write(printable(part.text))
            sys.stdout.flush()
    usage = reader.usage and dict(reader.usage.document)
    out.write({"schema": _SCHEMA, "id": parameters.id, "text": text, "usage": usage})
    if not out.replaces_text:
        sys.stdout.write("\n")
    return 0


def _parts(reader: StreamReader, head: Member, parameters: Infer) -> Iterator[Part]:
    """Yield the parts of a streamed completion. Raises ServeError."""
    body = {
        "model": parameters.id, "prompt": parameters.prompt, "max_tokens": parameters.max_tokens, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    keys = api_keys(parameters.key_file)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {keys[0]}"} if keys else {})}
    url = f"{head.url}/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310 - HTTP of the head
    try:
        with _DIRECT.open(request, timeout=_ANSWER_S) as response:
            for line in response:
                yield from reader.feed(0.0, line)
            yield from reader.end(0.0)
    except ExchangeError as error:
        raise ServeError(str(error)) from None
    except urllib.error.HTTPError as error:
        document = parsed(error.read().decode(errors="replace"))
        said = reported(document) if isinstance(document, dict) else ""
        raise ServeError(said or f"the gateway answers {error.code}") from None
    except (OSError, http.client.HTTPException) as error:
        raise ServeError(f"{url} does not answer: {error}\n    fix: serve.down, then serve.up") from None
