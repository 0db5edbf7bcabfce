"""The engine's HTTP interface over the client's own connection, for what the client's commands do not tell.

`docker system dial-stdio` speaks to whatever the client is set to (a socket, TLS, ssh), so no setting is read twice.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from io import BufferedReader
from typing import Any, cast

from paddock.build.docker import problems, process


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: Any


def get(client: Sequence[str], environ: Mapping[str, str], path: str, headers: Mapping[str, str]) -> Answer:
    """One answer with its JSON. Raises BuildError where the engine says nothing."""
    with _asked(client, environ, "GET", path, headers) as response:
        return Answer(response.status, _json(response.read()))


def events(
    client: Sequence[str], environ: Mapping[str, str], path: str, headers: Mapping[str, str]
) -> Generator[dict[str, Any], None, None]:
    """What the engine reports while it does what `path` says; it stops doing so when the iterator is closed."""
    with _asked(client, environ, "POST", path, headers) as response:
        if response.status >= 400:
            yield {"error": _json(response.read()).get("message", f"HTTP {response.status}")}
        else:
            for line in response:
                if line.strip():
                    yield _json(line)


@contextlib.contextmanager
def _asked(
    client: Sequence[str], environ: Mapping[str, str], method: str, path: str, headers: Mapping[str, str]
) -> Iterator[HTTPResponse]:
    head = {"Host": "docker", "Content-Length": "0", "Connection": "close", **headers}
    words = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    with process.started([*client, "system", "dial-stdio"], environ) as dialled:
        assert dialled.stdin is not None and dialled.stdout is not None  # noqa: S101, PT018 - started with pipes
        try:
            dialled.stdin.write(f"{method} {path} HTTP/1.1\r\n{words}\r\n".encode())
            dialled.stdin.flush()
            response = HTTPResponse(cast("Any", _Connection(cast("BufferedReader", dialled.stdout))), method=method)
            response.begin()
            yield response
        except (OSError, HTTPException) as error:
            assert dialled.stderr is not None  # noqa: S101 - started with pipes
            dialled.kill()
            said = dialled.stderr.read().decode(errors="replace")
            raise problems.engine(said or str(error), "the docker engine broke off") from None
        finally:
            # It has nothing to finish, and newer clients mind no other signal here. With the connection the engine
            # ends what it does for us.
            dialled.kill()


class _Connection:
    """As much of a socket as HTTPResponse asks for."""

    def __init__(self, stream: BufferedReader) -> None:
        self._stream = stream

    def makefile(self, mode: str) -> BufferedReader:
        return self._stream


def _json(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {"message": text.decode(errors="replace")[:500]}
    return found if isinstance(found, dict) else {"message": str(found)}
