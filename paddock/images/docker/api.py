"""The engine's HTTP interface over the client's own connection, for what no command of the client answers.

A digest is looked up by the engine, not by `docker buildx imagetools inspect`: the engine may be on another machine,
with its own network, mirrors and certificates, and it is what will pull.

`docker system dial-stdio` speaks to whatever the client is set to (a socket, TLS, ssh), so no setting is read twice.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from io import BufferedReader
from typing import Any, cast

from paddock.images.docker import problems, process


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any


def get(client: Sequence[str], environ: Mapping[str, str], path: str, headers: Mapping[str, str]) -> Answer:
    """Return one response with its JSON. Raises BuildError where the engine does not respond."""
    head = {"Host": "docker", "Connection": "close", **headers}
    words = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    with process.started([*client, "system", "dial-stdio"], environ) as dialled:
        assert dialled.stdin and dialled.stdout and dialled.stderr  # noqa: S101, PT018 - started with pipes
        try:
            # Its input stays open: the engine takes its end for our not waiting any more.
            dialled.stdin.write(f"GET {path} HTTP/1.1\r\n{words}\r\n".encode())
            dialled.stdin.flush()
            response = HTTPResponse(cast("Any", _Connection(cast("BufferedReader", dialled.stdout))))
            response.begin()
            return Answer(response.status, _json(response.read()))
        except (OSError, HTTPException) as error:
            dialled.kill()
            with contextlib.suppress(OSError):  # it would try again to write what nobody reads
                dialled.stdin.close()
            stderr = dialled.stderr.read().decode(errors="replace")
            raise problems.engine(stderr or str(error), "the docker engine broke off") from None
        finally:
            dialled.kill()  # newer clients mind no other signal here


class _Connection:
    """The part of a socket that HTTPResponse needs."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream

    def makefile(self, mode: str) -> BufferedReader:
        return self._stream


def _json(text: bytes) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        return {"message": text.decode(errors="replace")[:500]}
    return body if isinstance(body, dict) else {"message": str(body)}
