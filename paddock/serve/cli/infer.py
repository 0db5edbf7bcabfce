"""`serve.infer`: one question to an instance, through the gateway."""

from __future__ import annotations

import http.client
import json as jsonlib
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from paddock.errors import printable
from paddock.openai.documents import parsed
from paddock.openai.errors import ExchangeError, reported
from paddock.openai.stream import Part, StreamReader
from paddock.serve.admission.keys import api_keys
from paddock.serve.agents.home import Home, Member
from paddock.serve.cli.output import say
from paddock.serve.cli.parameters import Infer
from paddock.serve.errors import ServeError
from paddock.terminal import JsonOutput, caller_path, work_begins

_ANSWER_S = 600.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opener that gives prompt and API key to no proxy of the environment: the gateway is on this machine."""


def infer(flags: Mapping[str, Any]) -> int:
    """Ask an instance through the gateway, and print the answer as it comes. Raises ServeError."""
    parameters = Infer.from_flags(flags)
    json, head = JsonOutput.parse(parameters.json), Home.of().head()
    work_begins()
    text, reader = "", StreamReader()
    for part in _parts(reader, head, parameters):
        text += part.text
        if not json.replaces_text:
            sys.stdout.write(printable(part.text))
            sys.stdout.flush()
    usage = reader.usage and dict(reader.usage.document)
    json.write({"schema": 1, "id": parameters.id, "text": text, "usage": usage})
    say(json, "")
    return 0


def _parts(reader: StreamReader, head: Member, parameters: Infer) -> Iterator[Part]:
    """Yield the parts of a streamed completion. Raises ServeError."""
    body = {
        "model": parameters.id, "prompt": parameters.prompt, "max_tokens": parameters.max_tokens, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    keys = api_keys(caller_path(str(parameters.key_file)) if parameters.key_file else None)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {keys[0]}"} if keys else {})}
    url = f"{head.url}/completions"
    request = urllib.request.Request(url, jsonlib.dumps(body).encode(), headers)  # noqa: S310 - HTTP of the head
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
